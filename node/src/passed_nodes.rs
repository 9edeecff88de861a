//! The nodes by which a stream has come over bonds. Each relay adds itself to the list that travels with the stream's
//! description; one that finds itself there takes the stream no further, so that a loop of relays carries nothing.
//!
//! The list comes from another node: it is bounded, and what is not a list of numbers is refused.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The most nodes that a stream may pass.
const NODES_MAX: usize = 16;
/// The line of a description that has the list.
const ATTRIBUTE: &str = "a=x-selvedge-passed:";

/// A running node, among all: a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u64);

impl NodeId {
    /// Another one each time.
    pub(crate) fn random() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }
}

/// The nodes that a stream has passed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedNodes(Vec<NodeId>);

/// Why a stream that comes over a bond is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PassedError {
    /// It has been here.
    #[error(
        "it has passed this node already, {0} nodes ago: relays form a loop; end one of their bonds"
    )]
    Loop(usize),
    /// It has come by as many nodes as a stream may.
    #[error("it has passed {NODES_MAX} nodes, and may pass no more; take it from an earlier one")]
    TooMany,
    /// The list is none.
    #[error("the list of nodes that it has passed can't be read; the far end runs another version")]
    Malformed,
}

impl PassedNodes {
    /// Reads the list of a description, empty if that has none, as `own` gets it.
    pub(crate) fn read(description: &str, own: NodeId) -> Result<Self, PassedError> {
        let Some(list) = description.lines().find_map(|line| line.strip_prefix(ATTRIBUTE)) else {
            return Ok(Self::default());
        };
        let mut nodes = Vec::new();
        for word in list.trim_end().split(' ') {
            if nodes.len() == NODES_MAX {
                return Err(PassedError::TooMany);
            }
            let is_plain = word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u64::from_str_radix(word, 16).ok().filter(|_| is_plain);
            nodes.push(NodeId(number.ok_or(PassedError::Malformed)?));
        }
        match nodes.iter().rev().position(|node| *node == own) {
            Some(since) => Err(PassedError::Loop(since + 1)),
            None if nodes.len() == NODES_MAX => Err(PassedError::TooMany),
            None => Ok(Self(nodes)),
        }
    }

    /// The same with one more.
    pub(crate) fn and(&self, node: NodeId) -> Self {
        Self(self.0.iter().copied().chain([node]).collect())
    }
}

/// The line of a description.
impl fmt::Display for PassedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.0.iter().map(|NodeId(number)| format!("{number:016x}")).collect();
        write!(f, "{ATTRIBUTE}{}", nodes.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(count: u64) -> PassedNodes {
        PassedNodes((1..=count).map(NodeId).collect())
    }

    #[test]
    fn a_node_takes_only_what_has_not_been_there() {
        let text = |nodes: &PassedNodes| format!("cam\n1\nv=0\n{nodes}\r\na=other\n");
        let own = NodeId(99);
        assert_eq!(PassedNodes::read("cam\n1\nv=0\n", own), Ok(PassedNodes::default()));
        for count in 1..16 {
            assert_eq!(PassedNodes::read(&text(&passed(count)), own), Ok(passed(count)));
        }
        let looped = passed(2).and(own).and(NodeId(7));
        assert_eq!(PassedNodes::read(&text(&looped), own), Err(PassedError::Loop(2)));
        assert_eq!(PassedNodes::read(&text(&passed(16)), own), Err(PassedError::TooMany));
        assert_eq!(PassedNodes::read(&text(&passed(400)), own), Err(PassedError::TooMany));
        assert!(NodeId::random() != NodeId::random());
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in ["", " ", "1", "+000000000000001", "00000000000000012", "zzzzzzzzzzzzzzzz"] {
            let read = PassedNodes::read(&format!("x\n{ATTRIBUTE}{list}\n"), NodeId(1));
            assert_eq!(read, Err(PassedError::Malformed), "{list:?}");
        }
    }
}

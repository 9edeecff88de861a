//! The tree of weights by which `hwfq` shares a link: its inner nodes. Streams hang below them or below the
//! link itself, as their contracts state. A trace or a node file gives it to the scheduler.
//!
//! Aurora final report, section 2, "3.4 QoS": service classes are the inner nodes, real services
//! the leaves.

use alloc::vec::Vec;

use selvedge_units::Duration;

/// An inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// The parent: 0 for the link itself, `n` for the `n`-th node of the list.
    pub parent: u32,
    /// Its share against its siblings, streams and nodes alike; at least 1.
    pub weight: u32,
}

/// A tree of weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: Vec<TreeNode>,
    update: Option<Duration>,
}

/// Why a list of nodes is not a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The `n`-th node, from 1, does not hang below an earlier one.
    #[error(
        "node {node} hangs below node {parent}; list parents before children, 0 being the link"
    )]
    Parent {
        /// The node.
        node: usize,
        /// The stated parent.
        parent: u32,
    },
    /// The `n`-th node, from 1, has the weight 0.
    #[error("node {0} has the weight 0; give it at least 1")]
    Weight(usize),
    /// An update period of zero.
    #[error("an update period of 0; give it at least 1 ns")]
    Update,
    /// More nodes than [`Tree::NODES_MAX`].
    #[error("{0} nodes; a tree has at most {most}", most = Tree::NODES_MAX)]
    TooMany(usize),
}

impl Tree {
    /// The most inner nodes that a tree can have.
    pub const NODES_MAX: usize = 1 << 20;

    /// A tree of these nodes, parents before children. `update`: `None` for exact sharing; else
    /// the flat approximation, its weights mapped anew with this period.
    ///
    /// # Errors
    /// [`TreeError`] for the first invalid node.
    pub fn new(nodes: Vec<TreeNode>, update: Option<Duration>) -> Result<Self, TreeError> {
        if nodes.len() > Self::NODES_MAX {
            return Err(TreeError::TooMany(nodes.len()));
        }
        for (node, &TreeNode { parent, weight }) in (1..).zip(&nodes) {
            if parent as usize >= node {
                return Err(TreeError::Parent { node, parent });
            }
            if weight == 0 {
                return Err(TreeError::Weight(node));
            }
        }
        if update == Some(Duration(0)) {
            return Err(TreeError::Update);
        }
        Ok(Self { nodes, update })
    }

    /// The inner nodes, parents before children.
    #[must_use]
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// How often the flat approximation maps its weights anew; `None`: exact sharing.
    #[must_use]
    pub const fn update(&self) -> Option<Duration> {
        self.update
    }

    /// The node that a contract's `parent` names; a node that does not exist means the link.
    pub(crate) fn place(&self, parent: u32) -> u32 {
        if parent as usize <= self.nodes.len() { parent } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn what_is_no_tree_is_refused() {
        let node = |parent, weight| TreeNode { parent, weight };
        let tree = |nodes, update| Tree::new(nodes, update).map_err(|error| error.to_string());
        assert!(tree(vec![node(0, 1), node(1, 2), node(1, 3)], Some(Duration(1))).is_ok());
        let says = |nodes, update| tree(nodes, update).unwrap_err();
        assert!(says(vec![node(1, 1)], None).starts_with("node 1 hangs below node 1;"));
        assert!(says(vec![node(0, 1), node(3, 1)], None).starts_with("node 2 hangs below node 3;"));
        assert!(says(vec![node(0, 0)], None).starts_with("node 1 has the weight 0;"));
        assert!(says(vec![], Some(Duration(0))).starts_with("an update period of 0;"));
        let many = vec![node(0, 1); Tree::NODES_MAX + 1];
        assert!(says(many, None).starts_with("1048577 nodes;"));
    }
}

//! What members say to each other over their socket, once each: who they are, and where a source is to
//! put what a sink wants. `docs/events-local.md` has the bytes.

use selvedge_control_event::Overflow;
use serde::{Deserialize, Serialize};

/// The protocol's version: a member of another is refused.
pub const VERSION: u32 = 2;

/// How a sink is called when it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WakeMethod {
    /// By its mailbox's bell, a futex: for a thread that waits for nothing else.
    #[default]
    Futex,
    /// By an eventfd, for a program that waits for descriptors.
    Event,
    /// By a real-time signal with a value: the first eight bytes of the newest event.
    Signal {
        /// Which: `SIGRTMIN()` to `SIGRTMAX()`.
        number: i32,
        /// Whether each event brings one, even while the sink is awake.
        every: bool,
    },
}

/// A message. Encoded by `postcard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message<'a> {
    /// First of all, from both sides.
    Hello { version: u32, channel: &'a str, source: bool, sink: bool },
    /// From a sink to a source: its mailbox, by a memfd, and its eventfd if it is called so.
    Attach { wake_method: WakeMethod, full: Full },
}

/// [`Overflow`], as it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Full {
    DropOldest,
    DropNewest,
    Latest,
    Block,
}

impl From<Overflow> for Full {
    fn from(overflow: Overflow) -> Self {
        match overflow {
            Overflow::DropOldest => Self::DropOldest,
            Overflow::DropNewest => Self::DropNewest,
            Overflow::Latest => Self::Latest,
            Overflow::Block => Self::Block,
        }
    }
}

impl<'a> Message<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// `None` for what is none.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (parsed, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(parsed)
    }
}

/// Reads bytes as a member does, for fuzzing: whether they are a message. What is one comes back from
/// its own bytes as it was.
#[doc(hidden)]
#[must_use]
pub fn is_message(bytes: &[u8]) -> bool {
    let Some(parsed) = Message::decode(bytes) else { return false };
    let again = parsed.encode();
    assert!(again.len() <= bytes.len(), "a message grew on its way");
    assert_eq!(Message::decode(&again), Some(parsed));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_no_part_of_one_is_one() {
        let wake_method = WakeMethod::Signal { number: -3, every: false };
        for say in [
            Message::Hello { version: VERSION, channel: "load", source: true, sink: false },
            Message::Attach { wake_method, full: Full::Block },
        ] {
            let bytes = say.encode();
            assert!(is_message(&bytes));
            assert_eq!(Message::decode(&bytes), Some(say));
            for end in 0..bytes.len() {
                assert!(!is_message(&bytes[..end]));
            }
            for bit in 0..bytes.len() * 8 {
                let mut wrong = bytes.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(Message::decode(&wrong), Some(say));
            }
        }
    }
}

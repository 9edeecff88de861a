//! The messages of two hosts, over the engine, by which they switch to rings.
//!
//! ```text
//! source                                       sink
//!   Request       "are you on my machine?"  ->
//!                 <-  Offer, or Refuse
//!   (connects, by the name and with the token offered; the ring is there)
//!   SwitchToRing  the last by the engine    ->   from here on the sink reads the ring
//!                 <-  SwitchSeen
//!   SwitchBack    the ring is gone          ->   from here on the sink reads from the engine again
//! ```

use serde::{Deserialize, Serialize};

/// Stands where a frame has its kind, in messages that are not for the exchange.
pub(crate) const MARK: u8 = 8;
/// The longest of these messages, in bytes.
const RING_MESSAGE_MAX: usize = 256;

/// The identity of a machine, as far as its memory can be shared: the kernel's boot identity, and
/// the network namespace, since hosts that are separated there must stay apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) boot: u128,
    pub(crate) network: u64,
}

impl Machine {
    /// This machine; `None` if it does not state its identity.
    pub(crate) fn this() -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).ok()?;
        let network = std::fs::metadata("/proc/self/ns/net").ok()?.ino();
        Some(Self { boot, network })
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RingMessage<'a> {
    /// The sender has events for the receiver, and states its machine.
    Request(Machine),
    /// The receiver may connect to this name, with this token.
    Offer { name: &'a str, token: &'a str },
    /// The sender is not on this machine, or has no room.
    Refuse,
    /// From now on the sender's messages come by the ring.
    SwitchToRing,
    /// The sender reads the ring.
    SwitchSeen,
    /// From now on the sender's messages come by the engine again.
    SwitchBack,
}

impl<'a> RingMessage<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![MARK]).unwrap_or_default()
    }

    /// Decodes a message; `None` if it is not one.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (mark, rest) = bytes.split_first()?;
        if *mark != MARK || bytes.len() > RING_MESSAGE_MAX {
            return None;
        }
        let (parsed, rest) = postcard::take_from_bytes(rest).ok()?;
        rest.is_empty().then_some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_no_part_of_one_is_one() {
        let machine = Machine::this().unwrap();
        assert_eq!(Machine::this(), Some(machine));
        let offer = RingMessage::Offer { name: "selvedge-1", token: "secret" };
        for say in [
            RingMessage::Request(machine),
            offer,
            RingMessage::Refuse,
            RingMessage::SwitchToRing,
            RingMessage::SwitchSeen,
            RingMessage::SwitchBack,
        ] {
            let bytes = say.encode();
            assert_eq!(RingMessage::decode(&bytes), Some(say.clone()));
            for end in 0..bytes.len() {
                assert_eq!(RingMessage::decode(&bytes[..end]), None);
            }
            let long = [&bytes[..], &[0]].concat();
            assert_eq!(RingMessage::decode(&long), None);
        }
        assert_eq!(RingMessage::decode(&[MARK, 9]), None);
        assert_eq!(RingMessage::decode(&[&[MARK, 1][..], &[0xff; 300]].concat()), None);
    }
}

//! Reliable transport: each message once, in order. It is message-oriented, with selective
//! retransmission, a window, and an acknowledgement module of its own.
//!
//! | offset | data | acknowledgement |
//! |---|---|---|
//! | 0 | 1 | 2 |
//! | 1 | the message's number, `u64`, big-endian | the next number wanted, `u64` |
//! | 9 | the message | the received ones of the 256 numbers from that one on, a bit each |
//! | 41 | | how many messages the receiver keeps from that number on, `u32` |
//! | 45 | | the received ones of the numbers after those 256, as far as there are any |
//!
//! In the paper the window does not adapt: it is the room of the receiver. Here it is twice what the path delivers
//! in its shortest round trip, from the paper's window up to that room. An older receiver states no room and keeps
//! 256 messages; an older sender reads no further than the first 256 bits. A loss is detected by messages that
//! overtook the lost one (RFC 8985's rule, by times of sending), or by a time-out after RFC 6298.

mod ack;
mod flight;
mod format;
mod sender;

use selvedge_units::{Duration, Instant};

use self::ack::Receiver;
use self::format::{ACK, BITS, DATA};
use self::sender::Sender;
use super::interface::{Call, Critical, Direction, Module, Outputs, Reason};
use crate::concurrency::{Concurrency, SingleThreaded, State};
use crate::message::Message;

/// Sends until acknowledged, delivers once and in order.
#[derive(Debug)]
pub struct Reliable<C: Concurrency = SingleThreaded> {
    sender: C::State<Sender>,
    receiver: C::State<Receiver>,
}

impl<C: Concurrency> Default for Reliable<C> {
    /// Gives up a peer that acknowledges nothing for 30 s.
    fn default() -> Self {
        Self::new(Duration::from_secs(30))
    }
}

impl<C: Concurrency> Reliable<C> {
    /// Gives up a peer that acknowledges nothing for this long.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            sender: C::State::new(Sender::new(patience)),
            receiver: C::State::new(Receiver::default()),
        }
    }

    /// The number of retransmissions so far.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.sender.with(|sender| sender.retransmissions)
    }
}

impl<C: Concurrency> Module<C> for Reliable<C> {
    fn critical(&self, _: Direction) -> Critical {
        Critical::Whole
    }

    fn down(&self, message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        self.sender.with(|sender| sender.send(message, call, out));
    }

    fn up(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let header = message.pull::<9>().map(|[kind, number @ ..]| (kind, number));
        match header.map(|(kind, number)| (kind, u64::from_be_bytes(number))) {
            Some((DATA, number)) => {
                self.receiver.with(|receiver| receiver.data(number, message, call, out));
            }
            Some((ACK, next)) => {
                let Some(bits) = message.pull::<BITS>() else {
                    return call.drop(message, Reason::Malformed);
                };
                let room = message.pull::<4>().map(u32::from_be_bytes);
                let bits = [&bits, message.bytes()];
                let acknowledged =
                    self.sender.with(|sender| sender.acknowledged(next, room, bits, call, out));
                if !acknowledged {
                    return call.drop(message, Reason::Malformed);
                }
                call.buffers.recycle(message);
            }
            _ => call.drop(message, Reason::Malformed),
        }
    }

    fn handle_timeout(&self, call: &Call<'_, C>, out: &mut Outputs) {
        self.receiver.with(|receiver| receiver.acknowledge(call, out));
        self.sender.with(|sender| sender.handle_timeout(call, out));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let acknowledgement = self.receiver.with(|receiver| receiver.poll_timeout());
        let retransmission = self.sender.with(|sender| sender.poll_timeout());
        [acknowledgement, retransmission].into_iter().flatten().min()
    }

    fn takes(&self, ticket: u64) -> bool {
        self.sender.with(|sender| sender.takes(ticket))
    }

    fn is_acknowledged(&self) -> bool {
        self.sender.with(|sender| sender.is_acknowledged())
            && self.receiver.with(|receiver| receiver.poll_timeout().is_none())
    }

    fn has_lost_peer(&self) -> bool {
        self.sender.with(|sender| sender.peer_lost)
    }
}

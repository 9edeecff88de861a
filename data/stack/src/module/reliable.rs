//! Reliable transport: each message once, in order; message-oriented, with selective
//! retransmission, a fixed window, and an acknowledgement module of its own.
//!
//! | offset | data | acknowledgement |
//! |---|---|---|
//! | 0 | 1 | 2 |
//! | 1 | the message's number, `u64`, big-endian | the next number wanted, `u64` |
//! | 9 | the message | which of the 256 numbers behind that one are here, a bit each |
//!
//! As in the paper the window does not adapt: it is what the receiver has room for. What is lost
//! is told from what overtook it (RFC 8985's rule, by times of sending), or by a time-out after
//! RFC 6298.

mod ack;
mod sender;

use std::sync::Mutex;

use selvedge_units::{Instant, Span};

use self::ack::Receiver;
use self::sender::Sender;
use super::{Call, Critical, Direction, Module, Outputs, Reason, lock};
use crate::message::Message;

/// Messages on their way at most; the receiver keeps as many that came early.
pub(super) const WINDOW: u64 = 256;
/// Bytes on their way at most, unless one message alone is larger.
pub(super) const WINDOW_BYTES: usize = 1 << 20;
const DATA: u8 = 1;
const ACK: u8 = 2;

/// Sends until acknowledged, delivers once and in order.
#[derive(Debug)]
pub struct Reliable {
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
}

impl Default for Reliable {
    /// Gives up a peer that acknowledges nothing for 30 s.
    fn default() -> Self {
        Self::new(Span::from_secs(30))
    }
}

impl Reliable {
    /// Gives up a peer that acknowledges nothing for so long.
    #[must_use]
    pub fn new(patience: Span) -> Self {
        Self { sender: Mutex::new(Sender::new(patience)), receiver: Mutex::default() }
    }

    /// Messages sent again so far.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        lock(&self.sender).retransmissions
    }

    fn up(&self, mut message: Message, call: &Call<'_>, out: &mut Outputs) {
        let header = message.pull::<9>().map(|[kind, number @ ..]| (kind, number));
        match header.map(|(kind, number)| (kind, u64::from_be_bytes(number))) {
            Some((DATA, number)) => lock(&self.receiver).data(number, message, call, out),
            Some((ACK, next)) => {
                let Some(bits) = message.pull::<{ ack::BITS }>() else {
                    return call.drop(message, Reason::Malformed);
                };
                if !lock(&self.sender).acknowledged(next, &bits, call, out) {
                    return call.drop(message, Reason::Malformed);
                }
                call.buffers.give(message);
            }
            _ => call.drop(message, Reason::Malformed),
        }
    }
}

impl Module for Reliable {
    fn name(&self) -> &'static str {
        "reliable"
    }

    fn critical(&self, _: Direction) -> Critical {
        Critical::Whole
    }

    fn handle(&self, direction: Direction, message: Message, call: &Call<'_>, out: &mut Outputs) {
        match direction {
            Direction::Down => lock(&self.sender).send(message, call, out),
            Direction::Up => self.up(message, call, out),
        }
    }

    fn tick(&self, call: &Call<'_>, out: &mut Outputs) {
        lock(&self.receiver).acknowledge(call, out);
        lock(&self.sender).tick(call, out);
    }

    fn due(&self) -> Option<Instant> {
        let acknowledgement = lock(&self.receiver).due();
        let retransmission = lock(&self.sender).due();
        [acknowledgement, retransmission].into_iter().flatten().min()
    }

    fn takes(&self, ticket: u64) -> bool {
        lock(&self.sender).takes(ticket)
    }

    fn is_quiet(&self) -> bool {
        lock(&self.sender).is_quiet() && lock(&self.receiver).due().is_none()
    }

    fn is_dead(&self) -> bool {
        lock(&self.sender).dead
    }
}

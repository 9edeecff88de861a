//! The window beside a flow that fills the buffers: it grows by a packet a round trip and a little of itself, by several
//! until it first loses one, and shrinks by three tenths on loss, as CUBIC's does (RFC 9438).

use selvedge_units::{Bitrate, Bytes, Duration};

/// The packet by which a window grows.
const PACKET: u64 = 1_500;
/// How many of them before the first loss: it may have begun with far too little.
const FIRST: u64 = 4;
/// A large window grows by this part of itself in a round trip.
const PART: u64 = 48;

#[derive(Clone, Debug)]
pub(crate) struct Window {
    bytes: u64,
    /// Losses of packets below this number are of one event, which is answered.
    answered: u64,
    has_lost: bool,
}

impl Window {
    pub(crate) fn new(bytes: Bytes, next: u64) -> Self {
        Self { bytes: bytes.0.max(2 * PACKET), answered: next, has_lost: false }
    }

    pub(crate) fn handle_arrived(&mut self, arrived: Bytes) {
        let packets = if self.has_lost { PACKET } else { PACKET * FIRST };
        let in_a_round = packets + self.bytes / PART;
        self.bytes = self.bytes.saturating_add(in_a_round.saturating_mul(arrived.0) / self.bytes);
    }

    /// The packet of this number is lost; `next` is the number of the packet that is sent next.
    pub(crate) fn handle_lost(&mut self, number: u64, next: u64) {
        if number >= self.answered {
            (self.answered, self.has_lost) = (next, true);
            self.bytes = (self.bytes / 10 * 7).max(2 * PACKET);
        }
    }

    pub(crate) fn rate(&self, round_trip: Duration) -> Bitrate {
        Bytes(self.bytes) / round_trip.max(Duration::from_millis(1))
    }
}

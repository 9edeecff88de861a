//! The receiving side, and the acknowledgement module (the paper's "Relb").

use std::collections::VecDeque;

use selvedge_units::{Duration, Instant};

use super::super::interface::{Call, Outputs, Reason};
use super::format::{ACK, BITS, BYTES_MAX, BYTES_MIN, ROOM_MAX, ROOM_MIN};
use crate::concurrency::Concurrency;
use crate::message::Message;

/// An acknowledgement is sent at once after this number of messages, or of bytes: a quarter of the least window;
const EVERY: u32 = ROOM_MIN as u32 / 4;
const EVERY_BYTES: usize = BYTES_MIN as usize / 4;
/// or this long after the first message that waits for one.
const DELAY: Duration = Duration::from_micros(500);

/// The received messages.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    next: u64,
    /// Messages that came early; the first has number `next`.
    early: VecDeque<Option<Message>>,
    early_bytes: usize,
    /// The number of messages not acknowledged yet, and since when.
    unacknowledged: u32,
    bytes: usize,
    since: Option<Instant>,
    /// Whether the next acknowledgement is sent at once.
    immediate: bool,
    sent: u32,
}

impl Receiver {
    pub(super) fn data<C: Concurrency>(
        &mut self,
        number: u64,
        mut message: Message,
        call: &Call<'_, C>,
        out: &mut Outputs,
    ) {
        self.since.get_or_insert(call.now);
        message.ticket = number;
        if call.connection.is_full() && number >= self.next {
            // The peer retransmits it. The acknowledgement of earlier messages shows the peer that
            // this end lives.
            return call.drop(message, Reason::NoRoom);
        }
        self.unacknowledged += 1;
        self.bytes += message.len();
        if number < self.next {
            self.immediate = true;
            call.drop(message, Reason::Duplicate);
        } else if !self.has_room(number - self.next, message.len()) {
            call.drop(message, Reason::OutOfWindow);
        } else {
            let at = (number - self.next) as usize;
            if self.early.len() <= at {
                self.early.resize_with(at + 1, || None);
            }
            self.early_bytes += message.len();
            if let Some(again) = self.early[at].replace(message) {
                self.early_bytes -= again.len();
                self.immediate = true;
                call.drop(again, Reason::Duplicate);
            }
            while let Some(Some(_)) = self.early.front() {
                if let Some(Some(message)) = self.early.pop_front() {
                    self.next += 1;
                    self.early_bytes -= message.len();
                    out.up(message);
                }
            }
            // The sender should learn of the gap: of a long one by few acknowledgements, which cost more.
            let few = self.early.len() / EVERY as usize;
            self.immediate |= !self.early.is_empty() && self.unacknowledged as usize >= few;
        }
        if self.immediate || self.unacknowledged >= EVERY || self.bytes >= EVERY_BYTES {
            self.emit(call, out);
        }
    }

    /// Whether a message of so many bytes, so many numbers after the next, is kept. The next one always is.
    fn has_room(&self, after: u64, bytes: usize) -> bool {
        after == 0 || after < ROOM_MAX && (self.early_bytes + bytes) as u64 <= BYTES_MAX
    }

    /// Sends the acknowledgement that is due by now.
    pub(super) fn acknowledge<C: Concurrency>(&mut self, call: &Call<'_, C>, out: &mut Outputs) {
        if self.poll_timeout().is_some_and(|due| due <= call.now) {
            self.emit(call, out);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.since.map(|since| since + DELAY)
    }

    fn emit<C: Concurrency>(&mut self, call: &Call<'_, C>, out: &mut Outputs) {
        (self.unacknowledged, self.bytes, self.since, self.immediate) = (0, 0, None, false);
        let mut header = [0; 13 + ROOM_MAX as usize / 8];
        header[0] = ACK;
        header[1..9].copy_from_slice(&self.next.to_be_bytes());
        header[9 + BITS..13 + BITS].copy_from_slice(&(ROOM_MAX as u32).to_be_bytes());
        for (n, _) in self.early.iter().enumerate().filter(|(_, early)| early.is_some()) {
            // The room lies between the first bits and the others.
            let at = if n / 8 < BITS { 9 + n / 8 } else { 13 + n / 8 };
            header[at] |= 1 << (n % 8);
        }
        let used = self.early.len().div_ceil(8).max(BITS);
        let mut message = Message::copy_of(&header[..13 + used], call.buffers);
        self.sent = self.sent.wrapping_add(1);
        message.name = self.sent | 1 << 31;
        message.arrived = call.now;
        message.control = true;
        out.down(message);
    }
}

//! The sending side: the messages in flight, and their retransmission.

use std::collections::VecDeque;

use selvedge_units::{Duration, Instant};

use super::super::interface::{Call, Outputs, Reason};
use super::flight::{Amount, Flight};
use super::format::{DATA, ROOM_MAX};
use crate::concurrency::Concurrency;
use crate::message::Message;

/// Bounds of the retransmission time-out, and its value before any sample.
const RTO_MIN: Duration = Duration::from_millis(5);
const RTO_MAX: Duration = Duration::from_secs(1);
/// The upper bound when only a few messages are in flight: they load a link little, no later
/// message reveals their loss, and a large one in fragments may succeed in only one try in twenty.
const RTO_MAX_OF_FEW: Duration = Duration::from_millis(100);
const FEW: usize = 8;
const RTO_FIRST: Duration = Duration::from_millis(100);
/// After so many messages without a sample the round trip counts as unknown.
const UNMEASURED_MAX: u32 = 64;
/// The most retransmissions of a message whose first transmission may be taken for the one that arrived.
const GUESSED_MAX: u32 = 3;
/// The largest number of retransmissions in one tick, and which part of a long window it may be.
const AGAIN_MAX: usize = 16;
const AGAIN_PART: usize = 16;

/// The sender's state.
#[derive(Debug)]
pub(super) struct Sender {
    /// The lowest unacknowledged number.
    base: u64,
    /// The messages from `base` on.
    window: VecDeque<Slot>,
    bytes: usize,
    /// The number of those that wait for an acknowledgement.
    open: usize,
    flight: Flight,
    /// When the first of them may be retransmitted, at the earliest.
    due: Option<Instant>,
    /// Smoothed round trip and its variation; `None` before the first sample.
    smoothed: Option<(Duration, Duration)>,
    /// The number of messages that arrived since the last sample.
    unmeasured: u32,
    /// When an acknowledgement last came, or a message was sent while none was in flight.
    last_heard: Instant,
    give_up_after: Duration,
    pub(super) peer_lost: bool,
    pub(super) retransmissions: u64,
}

#[derive(Debug)]
enum Slot {
    /// Not sent yet: elements may bring messages out of order.
    Absent,
    Sent(Sent),
    Acknowledged,
}

#[derive(Debug)]
struct Sent {
    message: Message,
    /// When it was sent last, and first.
    at: Instant,
    first: Instant,
    /// What had been acknowledged when it was first sent.
    delivered: Amount,
    /// The number of its retransmissions.
    retransmissions: u32,
}

/// Of the messages that one acknowledgement names and that were sent once, the last: when it was sent, and what had
/// been acknowledged then.
#[derive(Clone, Copy)]
struct Newest {
    at: Instant,
    before: Option<Amount>,
}

impl Sender {
    pub(super) fn new(give_up_after: Duration) -> Self {
        Self {
            base: 0,
            window: VecDeque::new(),
            bytes: 0,
            open: 0,
            flight: Flight::default(),
            due: None,
            smoothed: None,
            unmeasured: 0,
            last_heard: Instant::ZERO,
            give_up_after,
            peer_lost: false,
            retransmissions: 0,
        }
    }

    pub(super) fn takes(&self, ticket: u64) -> bool {
        let window = self.flight.window();
        !self.peer_lost
            && ticket.wrapping_sub(self.base) < window.messages
            && (self.bytes as u64) < window.bytes
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.peer_lost || self.window.is_empty()
    }

    pub(super) fn send<C: Concurrency>(
        &mut self,
        mut message: Message,
        call: &Call<'_, C>,
        out: &mut Outputs,
    ) {
        let number = message.ticket;
        // The user interface calls `takes` first; twice the window allows for messages in pipes.
        if self.peer_lost || number < self.base || number - self.base >= 2 * ROOM_MAX {
            return call.drop(message, Reason::OutOfWindow);
        }
        let mut header = [DATA; 9];
        header[1..].copy_from_slice(&number.to_be_bytes());
        message.push(&header);
        if self.window.is_empty() {
            self.last_heard = call.now;
        }
        let at = (number - self.base) as usize;
        if self.window.len() <= at {
            self.window.resize_with(at + 1, || Slot::Absent);
        }
        self.bytes += message.len();
        self.open += 1;
        let due = call.now + self.timeout(0, self.longest());
        self.due = Some(self.due.map_or(due, |first| first.min(due)));
        out.down(message.duplicate(call.buffers));
        let delivered = self.flight.delivered();
        self.window[at] = Slot::Sent(Sent {
            message,
            at: call.now,
            first: call.now,
            delivered,
            retransmissions: 0,
        });
    }

    /// Handles an acknowledgement: the next number wanted, how many messages from there the receiver keeps, and
    /// which of them it has. `false` if it acknowledges messages that were never sent.
    pub(super) fn acknowledged<C: Concurrency>(
        &mut self,
        next: u64,
        room: Option<u32>,
        bits: [&[u8]; 2],
        call: &Call<'_, C>,
        out: &mut Outputs,
    ) -> bool {
        if next > self.base + self.window.len() as u64 {
            return false;
        }
        let mut newest = None;
        for number in self.base..next {
            self.mark_acknowledged(number, call, &mut newest);
        }
        let bytes = bits.into_iter().flatten().take(ROOM_MAX as usize / 8).enumerate();
        for (n, byte) in bytes.filter(|(_, byte)| **byte != 0) {
            for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
                self.mark_acknowledged(next.saturating_add(n as u64 * 8 + bit), call, &mut newest);
            }
        }
        while matches!(self.window.front(), Some(Slot::Acknowledged)) {
            self.window.pop_front();
            self.base += 1;
        }
        // A peer that acknowledges nothing new lives as well: it may have no room.
        self.last_heard = call.now;
        if let Some(room) = room {
            self.flight.handle_room(room.into());
        }
        if let Some(Newest { at, before }) = newest {
            if let Some(before) = before {
                self.flight.sample(call.now, call.now.since(at), before);
            }
            self.retransmit_overtaken(at, call, out);
            self.find_due();
        }
        true
    }

    /// Marks a message as arrived; `newest` is the one of those marked that was sent last.
    fn mark_acknowledged<C: Concurrency>(
        &mut self,
        number: u64,
        call: &Call<'_, C>,
        newest: &mut Option<Newest>,
    ) {
        let at = number.wrapping_sub(self.base) as usize;
        let Some(slot @ Slot::Sent(_)) = self.window.get_mut(at) else { return };
        let Slot::Sent(sent) = std::mem::replace(slot, Slot::Acknowledged) else { return };
        if sent.retransmissions == 0 {
            if newest.is_none_or(|newest| newest.at <= sent.at) {
                *newest = Some(Newest { at: sent.at, before: Some(sent.delivered) });
            }
            self.sample(call.now.since(sent.at));
        } else {
            self.handle_unmeasured(&sent, call.now);
            newest.get_or_insert(Newest { at: Instant::ZERO, before: None });
        }
        self.bytes -= sent.message.len();
        self.open -= 1;
        self.flight.handle_delivered(sent.message.len());
        call.buffers.recycle(sent.message);
    }

    /// Handles the arrival of a message that was retransmitted: it is unknown which transmission arrived (Karn).
    /// A round trip that is longer than the time-out would so never be measured. Where there is no measurement, or
    /// none for long, the first transmission is taken, unless there were too many.
    fn handle_unmeasured(&mut self, sent: &Sent, now: Instant) {
        self.unmeasured += 1;
        if self.unmeasured >= UNMEASURED_MAX {
            (self.smoothed, self.unmeasured) = (None, 0);
        }
        if sent.retransmissions <= GUESSED_MAX && self.smoothed.is_none() {
            self.smoothed = Some((now.since(sent.first), Duration::ZERO));
        }
    }

    fn sample(&mut self, round_trip: Duration) {
        self.unmeasured = 0;
        // RFC 6298, section 2.
        self.smoothed = Some(match self.smoothed {
            None => (round_trip, Duration(round_trip.0 / 2)),
            Some((smoothed, variation)) => {
                let off = smoothed.0.abs_diff(round_trip.0);
                (
                    Duration(smoothed.0 - smoothed.0 / 8 + round_trip.0 / 8),
                    Duration(variation.0 - variation.0 / 4 + off / 4),
                )
            }
        });
    }

    /// The longest wait, by the number of unacknowledged messages.
    fn longest(&self) -> Duration {
        if self.open > FEW { RTO_MAX } else { RTO_MAX_OF_FEW }
    }

    fn timeout(&self, again: u32, longest: Duration) -> Duration {
        let once = match self.smoothed {
            None => RTO_FIRST,
            Some((smoothed, variation)) => (smoothed + variation * 4).max(RTO_MIN),
        };
        // Not before an answer can arrive.
        (once * (1 << again.min(6))).min(once.max(longest))
    }

    /// Retransmits messages that were sent well before one that arrived.
    fn retransmit_overtaken<C: Concurrency>(
        &mut self,
        newest: Instant,
        call: &Call<'_, C>,
        out: &mut Outputs,
    ) {
        let slack = self.smoothed.map_or(RTO_MIN, |(smoothed, _)| Duration(smoothed.0 / 4));
        self.retransmit(call, out, |sent, _| sent.at + slack < newest);
    }

    /// Retransmits messages that have waited too long; gives up a silent peer.
    pub(super) fn handle_timeout<C: Concurrency>(&mut self, call: &Call<'_, C>, out: &mut Outputs) {
        if self.window.is_empty() || self.peer_lost {
            return;
        }
        if call.now.since(self.last_heard) >= self.give_up_after {
            self.peer_lost = true;
            (self.bytes, self.open, self.due) = (0, 0, None);
            for slot in self.window.drain(..) {
                if let Slot::Sent(sent) = slot {
                    call.buffers.recycle(sent.message);
                }
            }
            return;
        }
        if self.due.is_some_and(|due| due <= call.now) {
            self.retransmit(call, out, |sent, timeout| sent.at + timeout <= call.now);
            self.find_due();
        }
    }

    fn retransmit<C: Concurrency>(
        &mut self,
        call: &Call<'_, C>,
        out: &mut Outputs,
        lost: impl Fn(&Sent, Duration) -> bool,
    ) {
        let timeouts = self.timeouts();
        let most = AGAIN_MAX.max(self.window.len() / AGAIN_PART);
        let sent = self.window.iter_mut().filter_map(|slot| match slot {
            Slot::Sent(sent) if lost(sent, timeouts[sent.retransmissions.min(6) as usize]) => {
                Some(sent)
            }
            _ => None,
        });
        for sent in sent.take(most) {
            (sent.at, sent.retransmissions) = (call.now, sent.retransmissions + 1);
            self.retransmissions += 1;
            out.down(sent.message.duplicate(call.buffers));
        }
    }

    /// The time-out after each number of retransmissions; it grows no more after six.
    fn timeouts(&self) -> [Duration; 7] {
        let longest = self.longest();
        std::array::from_fn(|again| self.timeout(again as u32, longest))
    }

    /// Finds when the first message may be retransmitted.
    fn find_due(&mut self) {
        let timeouts = self.timeouts();
        let due = self.window.iter().filter_map(|slot| match slot {
            Slot::Sent(sent) => Some(sent.at + timeouts[sent.retransmissions.min(6) as usize]),
            _ => None,
        });
        self.due = due.min();
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        Some(self.due?.min(self.last_heard + self.give_up_after))
    }
}

//! The sending side: the messages in flight, and their retransmission.

use std::collections::VecDeque;

use selvedge_units::{Duration, Instant};

use super::super::interface::{Call, Outputs, Reason};
use super::format::{BITS, DATA, WINDOW, WINDOW_BYTES};
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
/// The largest number of retransmissions in one tick.
const AGAIN_MAX: usize = 16;

/// The sender's state.
#[derive(Debug)]
pub(super) struct Sender {
    /// The lowest unacknowledged number.
    base: u64,
    /// The messages from `base` on.
    window: VecDeque<Slot>,
    bytes: usize,
    /// Smoothed round trip and its variation; `None` before the first sample.
    smoothed: Option<(Duration, Duration)>,
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
    at: Instant,
    /// The number of its retransmissions.
    retransmissions: u32,
}

impl Sender {
    pub(super) fn new(give_up_after: Duration) -> Self {
        Self {
            base: 0,
            window: VecDeque::new(),
            bytes: 0,
            smoothed: None,
            last_heard: Instant::ZERO,
            give_up_after,
            peer_lost: false,
            retransmissions: 0,
        }
    }

    pub(super) fn takes(&self, ticket: u64) -> bool {
        !self.peer_lost && ticket.wrapping_sub(self.base) < WINDOW && self.bytes < WINDOW_BYTES
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
        if self.peer_lost || number < self.base || number - self.base >= 2 * WINDOW {
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
        out.down(message.duplicate(call.buffers));
        self.window[at] = Slot::Sent(Sent { message, at: call.now, retransmissions: 0 });
    }

    /// Handles an acknowledgement; `false` if it acknowledges messages that were never sent.
    pub(super) fn acknowledged<C: Concurrency>(
        &mut self,
        next: u64,
        bits: &[u8; BITS],
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
        for (n, byte) in bits.iter().enumerate().filter(|(_, byte)| **byte != 0) {
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
        if let Some(newest) = newest {
            self.retransmit_overtaken(newest, call, out);
        }
        true
    }

    /// Marks a message as arrived; `newest` is the latest sending time of those marked.
    fn mark_acknowledged<C: Concurrency>(
        &mut self,
        number: u64,
        call: &Call<'_, C>,
        newest: &mut Option<Instant>,
    ) {
        let at = number.wrapping_sub(self.base) as usize;
        let Some(slot @ Slot::Sent(_)) = self.window.get_mut(at) else { return };
        let Slot::Sent(sent) = std::mem::replace(slot, Slot::Acknowledged) else { return };
        // Of a retransmitted message it is unknown which transmission arrived (Karn).
        if sent.retransmissions == 0 {
            *newest = (*newest).max(Some(sent.at));
            self.sample(call.now.since(sent.at));
        } else {
            *newest = newest.or(Some(Instant::ZERO));
        }
        self.bytes -= sent.message.len();
        call.buffers.recycle(sent.message);
    }

    fn sample(&mut self, round_trip: Duration) {
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
        let open = self.window.iter().filter(|slot| matches!(slot, Slot::Sent(_)));
        if open.take(FEW + 1).count() > FEW { RTO_MAX } else { RTO_MAX_OF_FEW }
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
            self.bytes = 0;
            for slot in self.window.drain(..) {
                if let Slot::Sent(sent) = slot {
                    call.buffers.recycle(sent.message);
                }
            }
            return;
        }
        self.retransmit(call, out, |sent, timeout| sent.at + timeout <= call.now);
    }

    fn retransmit<C: Concurrency>(
        &mut self,
        call: &Call<'_, C>,
        out: &mut Outputs,
        lost: impl Fn(&Sent, Duration) -> bool,
    ) {
        let longest = self.longest();
        let timeouts: [Duration; 7] =
            std::array::from_fn(|again| self.timeout(again as u32, longest));
        let sent = self.window.iter_mut().filter_map(|slot| match slot {
            Slot::Sent(sent) if lost(sent, timeouts[sent.retransmissions.min(6) as usize]) => {
                Some(sent)
            }
            _ => None,
        });
        for sent in sent.take(AGAIN_MAX) {
            (sent.at, sent.retransmissions) = (call.now, sent.retransmissions + 1);
            self.retransmissions += 1;
            out.down(sent.message.duplicate(call.buffers));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.peer_lost {
            return None;
        }
        let longest = self.longest();
        let next = self.window.iter().filter_map(|slot| match slot {
            Slot::Sent(sent) => Some(sent.at + self.timeout(sent.retransmissions, longest)),
            _ => None,
        });
        next.min().map(|next| next.min(self.last_heard + self.give_up_after))
    }
}

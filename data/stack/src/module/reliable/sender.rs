//! The sending side: what is on its way, and when it goes again.

use std::collections::VecDeque;

use selvedge_units::{Duration, Instant};

use super::super::interface::{Call, Outputs, Reason};
use super::format::{BITS, DATA, WINDOW, WINDOW_BYTES};
use crate::concurrency::Concurrency;
use crate::message::Message;

/// Bounds of the retransmission time-out, and its value before any sample.
const RTO_MIN: Duration = Duration::from_millis(5);
const RTO_MAX: Duration = Duration::from_secs(1);
/// The upper bound for the last few messages: they are little for a link, nothing behind them says
/// that they are lost, and of a large one in fragments one try in twenty may come through.
const RTO_MAX_OF_FEW: Duration = Duration::from_millis(100);
const FEW: usize = 8;
const RTO_FIRST: Duration = Duration::from_millis(100);
/// How many go again in one tick.
const AGAIN_MAX: usize = 16;

/// What was sent.
#[derive(Debug)]
pub(super) struct Sender {
    /// The lowest number that is not acknowledged.
    base: u64,
    /// From `base` on.
    window: VecDeque<Slot>,
    bytes: usize,
    /// Smoothed round trip and its variation; none before the first sample.
    smoothed: Option<(Duration, Duration)>,
    /// When an acknowledgement last came, or something was sent into silence.
    last_heard: Instant,
    give_up_after: Duration,
    pub(super) peer_lost: bool,
    pub(super) retransmissions: u64,
}

#[derive(Debug)]
enum Slot {
    /// Not here yet: elements may bring messages out of order.
    Absent,
    Sent(Sent),
    Acknowledged,
}

#[derive(Debug)]
struct Sent {
    message: Message,
    at: Instant,
    /// How often it has been sent again.
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
        // The user interface asks `takes` first; twice the window allows for what was in pipes.
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

    /// Takes an acknowledgement; `false` if it acknowledges what was never sent.
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
        // One that acknowledges nothing new lives as well: it may have no room.
        self.last_heard = call.now;
        if let Some(newest) = newest {
            self.retransmit_overtaken(newest, call, out);
        }
        true
    }

    /// Marks a message as arrived; `newest` is when the latest of those was sent.
    fn mark_acknowledged<C: Concurrency>(
        &mut self,
        number: u64,
        call: &Call<'_, C>,
        newest: &mut Option<Instant>,
    ) {
        let at = number.wrapping_sub(self.base) as usize;
        let Some(slot @ Slot::Sent(_)) = self.window.get_mut(at) else { return };
        let Slot::Sent(sent) = std::mem::replace(slot, Slot::Acknowledged) else { return };
        // One that went twice does not say which of them came (Karn).
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

    /// The longest wait, by how many are not acknowledged.
    fn longest(&self) -> Duration {
        let open = self.window.iter().filter(|slot| matches!(slot, Slot::Sent(_)));
        if open.take(FEW + 1).count() > FEW { RTO_MAX } else { RTO_MAX_OF_FEW }
    }

    fn timeout(&self, again: u32, longest: Duration) -> Duration {
        let once = match self.smoothed {
            None => RTO_FIRST,
            Some((smoothed, variation)) => (smoothed + variation * 4).max(RTO_MIN),
        };
        // Not before an answer could have come.
        (once * (1 << again.min(6))).min(once.max(longest))
    }

    /// Sends again what was sent well before something that arrived.
    fn retransmit_overtaken<C: Concurrency>(
        &mut self,
        newest: Instant,
        call: &Call<'_, C>,
        out: &mut Outputs,
    ) {
        let slack = self.smoothed.map_or(RTO_MIN, |(smoothed, _)| Duration(smoothed.0 / 4));
        self.retransmit(call, out, |sent, _| sent.at + slack < newest);
    }

    /// Sends again what has waited too long; gives up a silent peer.
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

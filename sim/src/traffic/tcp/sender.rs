//! The sending half of a connection: what is sent, what is taken for lost and sent again, and when.
//!
//! What is under way is estimated as in RFC 6675: all that was sent, less what arrived and what is lost.
//! Without SACK, each duplicate acknowledgement is one segment that arrived, which is RFC 6582's inflation of
//! the window, and RFC 3042's limited transmit, in other words.

use selvedge_units::Instant;

use super::TcpParams;
use super::ranges::Ranges;
use super::round_trip::RoundTrip;
use super::window::Window;
use crate::packet::{Ack, Segment};

/// Duplicate acknowledgements that mean a loss.
const DUPLICATES: u64 = 3;

/// Whether something is being repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing is known to be lost.
    #[default]
    Open,
    /// A loss was seen by acknowledgements. Without SACK, only the first of those that show another loss
    /// restarts the timer (RFC 6582, the impatient variant).
    Recovery { is_first: bool },
    /// A timeout has passed, and all is sent again.
    TimedOut,
}

/// Bytes by their sequence numbers: `acked` is at most `resent` and `lost`, and these at most `sent`.
#[derive(Clone, Debug, Default)]
pub(super) struct Sender {
    segment: u64,
    window_max: u64,
    has_sack: bool,
    window: Window,
    round_trip: RoundTrip,
    phase: Phase,
    /// What there is to send.
    written: u64,
    /// All before it was sent once.
    sent: u64,
    /// All before it has arrived.
    acked: u64,
    /// All before it that was lost was sent again.
    resent: u64,
    /// All before it that did not arrive is lost.
    lost: u64,
    /// What arrived beyond `acked`.
    arrived: Ranges,
    /// Duplicate acknowledgements in a row.
    duplicates: u64,
    /// Repairing ends when this is acknowledged.
    recover: u64,
    /// A first loss is sent again whatever the window says.
    is_urgent: bool,
    /// Whether the window kept it from sending.
    is_limited: bool,
    sent_at: Instant,
    timer: Option<Instant>,
    pub(super) retransmissions: u64,
    pub(super) timeouts: u64,
}

impl Sender {
    pub(super) fn new(params: &TcpParams) -> Self {
        Self {
            segment: params.segment_size(),
            window_max: params.window(),
            has_sack: params.has_sack(),
            window: Window::new(params),
            round_trip: RoundTrip::new(params.timeout_min),
            ..Self::default()
        }
    }

    /// There is so much more to send.
    pub(super) const fn write(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// The congestion window in bytes.
    pub(super) const fn window(&self) -> u64 {
        self.window.size()
    }

    /// When it is to be called if nothing is acknowledged before.
    pub(super) const fn timer(&self) -> Option<Instant> {
        self.timer
    }

    const fn outstanding(&self) -> u64 {
        self.sent - self.acked
    }

    pub(super) fn handle_ack(&mut self, now: Instant, ack: &Ack) {
        if ack.next > self.sent || ack.next < self.acked {
            return;
        }
        if self.has_sack {
            for (offset, length) in ack.blocks {
                let start = ack.next + u64::from(offset);
                let end = (start + u64::from(length)).min(self.sent);
                self.arrived.insert(start.max(self.acked), end);
            }
        }
        if ack.next > self.acked {
            self.round_trip.measure(now.since(ack.echo));
            self.advance(now, ack.next);
        } else if self.outstanding() > 0 && self.phase != Phase::TimedOut {
            self.duplicates += 1;
        }
        self.look_for_losses();
    }

    /// Something new was acknowledged.
    fn advance(&mut self, now: Instant, next: u64) {
        let bytes = next - self.acked;
        self.acked = next;
        self.arrived.remove_below(next);
        (self.resent, self.lost) = (self.resent.max(next), self.lost.max(next));
        let (mut restarts_timer, is_whole) = (true, next >= self.recover);
        match self.phase {
            Phase::Recovery { .. } if is_whole => {
                self.window.recover(self.sent - next);
                (self.phase, self.duplicates, self.recover) = (Phase::Open, 0, 0);
            }
            Phase::Recovery { is_first } if !self.has_sack => {
                // What is missing next is lost, and one duplicate was for what filled the gap.
                restarts_timer = is_first;
                self.phase = Phase::Recovery { is_first: false };
                let arrived = bytes.div_ceil(self.segment);
                self.duplicates = (self.duplicates + 1).saturating_sub(arrived);
                self.lose_first();
            }
            Phase::Recovery { .. } => {}
            Phase::Open | Phase::TimedOut => {
                self.phase = if is_whole { Phase::Open } else { self.phase };
                self.duplicates = 0;
                if self.is_limited {
                    self.window.grow(bytes, now, self.round_trip.mean());
                }
            }
        }
        if restarts_timer {
            self.timer = (self.outstanding() > 0).then(|| now + self.round_trip.timeout());
        }
    }

    /// The first segment that is outstanding is lost, and is sent again at once.
    fn lose_first(&mut self) {
        self.lost = self.lost.max((self.acked + self.segment).min(self.sent));
        self.is_urgent = true;
    }

    fn look_for_losses(&mut self) {
        // Behind a timeout, duplicates are for what was sent again in vain (RFC 6582, 4).
        let is_news = self.acked > self.recover || self.recover == 0;
        let mut is_lost = self.duplicates >= DUPLICATES && is_news;
        if self.has_sack {
            // What has more than two segments' bytes arrived behind it is lost.
            let mut behind = 0;
            let is_enough = |(start, end): &(u64, u64)| {
                behind += end - start;
                behind > (DUPLICATES - 1) * self.segment
            };
            let last = self.arrived.backwards().find(is_enough);
            is_lost = last.is_some();
            self.lost = self.lost.max(last.map_or(0, |(start, _)| start));
        }
        if is_lost && self.phase == Phase::Open {
            self.window.reduce(self.outstanding());
            self.phase = Phase::Recovery { is_first: true };
            (self.recover, self.resent) = (self.sent, self.acked);
            self.lose_first();
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.timer.is_none_or(|timer| timer > now) {
            return;
        }
        self.timeouts += 1;
        self.round_trip.back_off();
        // Not again if what is sent again is lost, too (RFC 5681, 3.1).
        if self.phase != Phase::TimedOut {
            self.window.reduce(self.under_way());
        }
        self.window.time_out();
        self.phase = Phase::TimedOut;
        (self.recover, self.lost, self.resent) = (self.sent, self.sent, self.acked);
        (self.duplicates, self.is_urgent) = (0, false);
        self.timer = Some(now + self.round_trip.timeout());
    }

    /// The bytes that are under way.
    fn under_way(&self) -> u64 {
        let missing = self.lost.saturating_sub(self.resent);
        let lost = missing - self.arrived.covered(self.resent, self.lost);
        let duplicates = if self.has_sack { 0 } else { self.duplicates };
        let arrived = self.arrived.total() + duplicates * self.segment;
        self.outstanding().saturating_sub(lost + arrived)
    }

    /// The next bytes that were lost and not sent again.
    fn next_lost(&self) -> Option<(u64, u64)> {
        let start = self.arrived.around(self.resent).map_or(self.resent, |(_, end)| end);
        let end = self.arrived.next(start).map_or(self.lost, |(next, _)| next.min(self.lost));
        (start < end).then(|| (start, (end - start).min(self.segment)))
    }

    pub(super) fn poll_segment(&mut self, now: Instant) -> Option<Segment> {
        let lost = self.next_lost();
        if self.outstanding() == 0 && now.since(self.sent_at) > self.round_trip.timeout() {
            self.window.restart();
        }
        let room = self.window_max.saturating_sub(self.outstanding());
        let new = (self.written - self.sent).min(self.segment);
        let new = (0 < new && new <= room).then_some((self.sent, new));
        let Some((sequence, length)) = lost.or(new) else {
            self.is_limited = false;
            return None;
        };
        let (under_way, is_urgent) = (self.under_way(), self.is_urgent && lost.is_some());
        self.is_limited = under_way > 0 && under_way + length > self.window.size() && !is_urgent;
        if self.is_limited {
            return None;
        }
        if sequence < self.sent {
            self.retransmissions += 1;
            self.resent = sequence + length;
            self.is_urgent = false;
        } else {
            self.sent += length;
        }
        self.sent_at = now;
        self.timer.get_or_insert_with(|| now + self.round_trip.timeout());
        Some(Segment { sequence, length: length as u32 })
    }
}

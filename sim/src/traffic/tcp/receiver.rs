//! The receiving half of a connection: puts bytes in order, and acknowledges them.

use selvedge_units::{Duration, Instant};

use super::TcpParams;
use super::ranges::Ranges;
use crate::packet::{Ack, Segment};

/// What has arrived, and what of it is acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    has_sack: bool,
    ack_every: u32,
    ack_delay: Duration,
    window: u64,
    /// The first byte that is missing: all before it arrived, and were handed on once.
    next: u64,
    /// What arrived beyond it.
    early: Ranges,
    /// The latest segment's first byte.
    latest: u64,
    /// The last acknowledgement's `next`.
    acked: u64,
    /// The timestamp that the next acknowledgement gives back.
    echo: Instant,
    /// Segments since the last acknowledgement.
    unacked: u32,
    /// When an acknowledgement is due.
    due: Option<Instant>,
}

impl Receiver {
    pub(super) fn new(params: &TcpParams) -> Self {
        Self {
            has_sack: params.has_sack(),
            ack_every: params.ack_every,
            ack_delay: params.ack_delay,
            window: params.window(),
            ..Self::default()
        }
    }

    /// How many bytes have arrived in order.
    pub(super) const fn received(&self) -> u64 {
        self.next
    }

    /// When an acknowledgement is due.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A segment that was sent at this time has come.
    pub(super) fn handle_segment(&mut self, now: Instant, sent: Instant, segment: &Segment) {
        let (start, end) =
            (segment.sequence, segment.sequence.saturating_add(segment.length.into()));
        // What is beyond the window, no sender of ours sends.
        if end > self.next.saturating_add(self.window) {
            return;
        }
        if start <= self.acked {
            self.echo = self.echo.max(sent);
        }
        self.unacked += 1;
        self.latest = start;
        let is_plain = start <= self.next && end > self.next && self.early.total() == 0;
        if is_plain {
            self.next = end;
        } else {
            self.early.insert(start.max(self.next), end);
            if let Some((_, end)) = self.early.around(self.next) {
                self.next = end;
                self.early.remove_below(end);
            }
        }
        // What is out of order, or fills a gap, is acknowledged at once (RFC 5681, 4.2).
        let is_due = !is_plain || self.unacked >= self.ack_every;
        let due = if is_due { now } else { now + self.ack_delay };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// The acknowledgement that is due.
    pub(super) fn poll_ack(&mut self, now: Instant) -> Option<Ack> {
        self.due.take_if(|due| *due <= now)?;
        self.unacked = 0;
        self.acked = self.next;
        let mut blocks = [(0, 0); 3];
        if self.has_sack {
            // The latest segment's, then those that began last.
            let latest = self.early.around(self.latest);
            let others = self.early.backwards().filter(|range| Some(*range) != latest);
            for (block, (start, end)) in blocks.iter_mut().zip(latest.into_iter().chain(others)) {
                *block = ((start - self.next) as u32, (end - start) as u32);
            }
        }
        Some(Ack { next: self.next, echo: self.echo, blocks })
    }
}

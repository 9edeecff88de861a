//! The congestion window: slow start, then NewReno's growth (RFC 5681) or CUBIC's.

use selvedge_units::{Duration, Instant};

use super::cubic::Cubic;
use super::{Control, TcpParams};

/// The congestion window in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    size: u64,
    segment: u64,
    initial: u64,
    /// Below this, slow start.
    threshold: u64,
    /// What grows it beyond slow start. NewReno: a segment for each window that is acknowledged.
    cubic: Option<Cubic>,
    /// Bytes that count towards NewReno's next segment.
    counted: u64,
}

impl Window {
    pub(super) fn new(params: &TcpParams) -> Self {
        let segment = params.segment_size();
        let initial = segment * u64::from(params.initial_window.max(1));
        let cubic = (params.control == Control::Cubic).then(Cubic::default);
        Self { size: initial, segment, initial, threshold: u64::MAX, cubic, counted: 0 }
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// So many bytes were acknowledged while the window was in use.
    pub(super) fn grow(&mut self, acked: u64, now: Instant, round_trip: Duration) {
        if self.size < self.threshold {
            self.size += acked.min(self.segment);
        } else if let Some(cubic) = &mut self.cubic {
            self.size = cubic.grow(self.size, self.segment, acked, now, round_trip);
        } else {
            self.counted += acked;
            if self.counted >= self.size {
                self.counted -= self.size;
                self.size += self.segment;
            }
        }
    }

    /// A segment was lost while so many bytes were outstanding.
    pub(super) fn reduce(&mut self, outstanding: u64) {
        self.counted = 0;
        let left = match &mut self.cubic {
            None => outstanding / 2,
            Some(cubic) => {
                cubic.reduce(self.size);
                outstanding / 10 * 7
            }
        };
        self.threshold = left.max(2 * self.segment);
        self.size = self.threshold;
    }

    /// No acknowledgement came.
    pub(super) fn time_out(&mut self) {
        self.cubic.as_mut().map(Cubic::time_out);
        self.size = self.segment;
    }

    /// All losses are repaired: so that no burst follows, it is at most what is outstanding, and one segment.
    pub(super) fn recover(&mut self, outstanding: u64) {
        self.size = self.threshold.min(outstanding.max(self.segment) + self.segment);
    }

    /// Nothing was sent for long: begin as at first.
    pub(super) fn restart(&mut self) {
        self.size = self.size.min(self.initial);
    }
}

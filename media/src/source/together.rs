//! Synchronises two streams of one file: one clock, one pace, and one zero of time for both.
//!
//! Each has a pipeline of its own, which stands at the same place of the same file. Frames are due at
//! the same distance from the file's beginning in both, over all its loops; pictures that are shown
//! later than they are decoded are sent later by the same time. A stream that is opened again joins the
//! other at its present place. The node makes pairs; [`super::Source::run`] queries them for sending times.

use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_units::{Duration, Instant};

use super::Source;
use crate::pace::Pacer;

/// How far a source may fall behind and still catch up.
pub(super) const SLACK: Duration = Duration::from_millis(500);
/// How long our time begins before the file does: decoding begins before the first picture is shown.
const LEAD: Duration = Duration::from_secs(2);

/// The pace of two streams of one file, which outlives both: either may be opened again, or start
/// later.
#[derive(Clone, Debug)]
pub struct Pair(Arc<Shared>);

impl Default for Pair {
    /// Neither plays yet. The clock is set past the beginning of any file, so that the first frame has
    /// a place on it.
    fn default() -> Self {
        let now = std::time::Instant::now();
        Self(Arc::new(Shared {
            clock: now.checked_sub((LEAD * 10).to_std()).unwrap_or(now),
            pacer: Mutex::new(Pacer::new(SLACK)),
            newest: Mutex::new(LEAD),
        }))
    }
}

#[derive(Debug)]
struct Shared {
    clock: std::time::Instant,
    pacer: Mutex<Pacer>,
    /// Where the newest pass of either began, by the clock of the file's frames.
    newest: Mutex<Duration>,
}

/// A stream's share in the pair.
#[derive(Clone, Debug)]
pub(super) struct Together {
    pair: Pair,
    /// How much later than its decoding time a frame is sent.
    lag: Duration,
    /// Where the current pass began.
    began: Duration,
    /// Whether it started while the other played: past frames are left out, up to an intra picture.
    pub(super) catches_up: bool,
}

impl Together {
    /// When its time began.
    pub(super) fn began(&self) -> std::time::Instant {
        self.pair.0.clock
    }

    pub(super) fn now(&self) -> Instant {
        Instant(u64::try_from(self.pair.0.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// When a frame is to be sent.
    pub(super) fn due(&self, now: Instant, decode: Duration) -> Instant {
        self.pair.0.pacer.lock().due(now, decode + self.lag)
    }

    /// Whether a frame was due before now.
    pub(super) fn is_past(&self, decode: Duration) -> bool {
        let position = self.pair.0.pacer.lock().position(self.now());
        position.is_some_and(|position| decode + self.lag < position)
    }

    /// The file begins again; returns the place of our zero on its clock.
    pub(super) fn next_pass(&mut self, length: Duration) -> i64 {
        self.began += length;
        let mut newest = self.pair.0.newest.lock();
        *newest = newest.max(self.began);
        -i64::try_from(self.began.0).unwrap_or(i64::MAX)
    }
}

impl Source {
    /// The pair that synchronises it.
    #[must_use]
    pub fn pair(&self) -> Option<Pair> {
        self.together.as_ref().map(|together| together.pair.clone())
    }

    /// Synchronises it with the other stream of a pair, within some milliseconds, as far as their
    /// threads wake up in time; if that stream plays already, from its present place.
    pub fn join(&mut self, pair: &Pair) {
        let lag = self.ahead.front().map(|unit| self.framing.lag(unit)).unwrap_or_default();
        let began = *pair.0.newest.lock();
        let mut together =
            Together { pair: pair.clone(), lag, began: Duration::ZERO, catches_up: false };
        self.framing.align(together.next_pass(began));
        together.catches_up = pair.0.pacer.lock().position(together.now()).is_some();
        self.together = Some(together);
    }
}

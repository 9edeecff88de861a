//! Two streams of one file that keep together: one clock, one pace, and one zero of time for both.
//!
//! Each has a pipeline of its own, which stands at the same place of the same file. Frames are due at the
//! same distance from the file's beginning in both, over all its loops; pictures that are shown later than
//! they are decoded are sent so much later. The node makes pairs; [`super::Source::run`] asks when to send.

use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_units::{Duration, Instant};

use super::Source;
use super::run::SLACK;
use crate::pace::Pacer;

/// How long our time begins before the file does: decoding begins before the first picture is shown.
const LEAD: Duration = Duration::from_secs(2);

/// What a stream shares with the other.
#[derive(Clone, Debug)]
pub(super) struct Together {
    clock: std::time::Instant,
    pacer: Arc<Mutex<Pacer>>,
    /// How much later than for decoding its frames are sent.
    lag: Duration,
    /// Where the pass that runs began, by the clock of the file's frames.
    began: Duration,
}

impl Together {
    pub(super) fn now(&self) -> Instant {
        Instant(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// When a frame is to be sent.
    pub(super) fn due(&self, now: Instant, decode: Duration) -> Instant {
        self.pacer.lock().due(now, decode + self.lag)
    }

    /// The file begins again; where our zero lies by its clock.
    pub(super) fn next_pass(&mut self, length: Duration) -> i64 {
        self.began += length;
        -i64::try_from(self.began.0).unwrap_or(i64::MAX)
    }
}

impl Source {
    /// Lets the picture and the sound of one file keep together from their beginning on, within some
    /// milliseconds, as far as their threads wake up in time.
    pub fn keep_together(picture: &mut Self, sound: &mut Self) {
        let clock = std::time::Instant::now();
        let pacer = Arc::new(Mutex::new(Pacer::new(SLACK)));
        for source in [picture, sound] {
            let lag = source.ahead.front().map(|unit| source.framing.lag(unit)).unwrap_or_default();
            let mut shared =
                Together { clock, pacer: Arc::clone(&pacer), lag, began: Duration::ZERO };
            source.framing.align(shared.next_pass(LEAD));
            source.together = Some(shared);
        }
    }
}

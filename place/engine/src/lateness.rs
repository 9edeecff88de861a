//! How late an engine's thread wakes up, and what share of its link it used in spite of that. The engine
//! records both at each wake-up and each report. Both cover the last five to ten seconds, so that they follow
//! the machine's present state, in memory that does not grow.

use selvedge_data_stream::Histogram;
use selvedge_os::wake::Woken;
use selvedge_units::{Bytes, Duration, Instant};

/// Half of the time that is covered.
const HALF: Duration = Duration::from_secs(5);

/// The bytes that a link sent, and those that its rate allowed while frames waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Bytes sent.
    pub sent: Bytes,
    /// Bytes that the rate allowed.
    pub could_send: Bytes,
}

impl Use {
    const fn since(self, before: Self) -> Self {
        let sent = Bytes(self.sent.0.saturating_sub(before.sent.0));
        let could_send = Bytes(self.could_send.0.saturating_sub(before.could_send.0));
        Self { sent, could_send }
    }

    /// The share that was used, at most 1: a bucket that was full when frames arrived lets slightly more
    /// pass. `None` if no frame had to wait.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        let Self { sent, could_send } = self;
        (could_send.0 > 0).then(|| (sent.0 as f64 / could_send.0 as f64).min(1.0))
    }
}

/// The last seconds of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentPacing {
    /// How much later than requested the thread woke up.
    pub lateness: Histogram,
    /// The use of the link.
    pub used: Use,
}

/// Keeps [`RecentPacing`].
#[derive(Debug, Default)]
pub struct Pacing {
    /// The half that is being filled, and the previous one, each with the link's use at its beginning.
    halves: [(Histogram, Use); 2],
    began: Instant,
}

impl Pacing {
    /// Records a wake-up that was due at `due`, unless another thread woke the engine.
    pub(crate) fn woke(&mut self, woken: Woken, due: Instant, now: Instant) {
        if woken == Woken::TimedOut {
            self.late(now.since(due));
        }
    }

    /// Records an event that was this much later than planned.
    pub fn late(&mut self, by: Duration) {
        self.halves[0].0.record(by);
    }

    /// The values to report; `used` is the link's use since its start.
    pub fn recent(&mut self, now: Instant, used: Use) -> RecentPacing {
        if now.since(self.began) >= HALF {
            self.began = now;
            self.halves.swap(0, 1);
            self.halves[0] = (Histogram::default(), used);
        }
        let [(filling, _), (before, began)] = &self.halves;
        let mut lateness = before.clone();
        lateness.merge(filling);
        RecentPacing { lateness, used: used.since(*began) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(sent: u64, could_send: u64) -> Use {
        Use { sent: Bytes(sent), could_send: Bytes(could_send) }
    }

    #[test]
    fn old_lateness_and_use_are_forgotten() {
        let (mut pacing, second) = (Pacing::default(), Duration::from_secs(1));
        let mut now = Instant::ZERO;
        for n in 0..20 {
            now += second;
            pacing.woke(Woken::TimedOut, now - Duration(n), now);
            pacing.woke(Woken::Notified, Instant::ZERO, now);
            let recent = pacing.recent(now, used(n * 50, n * 100));
            assert!(recent.lateness.count() <= 10, "{n}");
            assert!(n < 10 || recent.lateness.count() >= 5, "{n}");
            assert!(n < 10 || recent.used.could_send <= Bytes(1000), "{n}");
            assert!(n == 0 || recent.used.share() == Some(0.5), "{n}");
        }
    }

    #[test]
    fn a_link_that_nobody_waited_for_has_no_share() {
        assert_eq!(used(100, 0).share(), None);
        assert_eq!(used(101, 100).share(), Some(1.0));
    }
}

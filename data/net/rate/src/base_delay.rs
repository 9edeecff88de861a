//! The least delay of a path, of the last ten seconds: what is more is a queue.

use selvedge_units::{Duration, Instant};

/// Of how much time each of two halves is.
const HALF: Duration = Duration::from_secs(5);

/// A time from one clock to another, in nanoseconds: their origins differ, so it may be negative.
pub(crate) type Delay = i128;

/// The least delay of the present five seconds and of those before.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseDelay {
    began: Instant,
    present: Option<Delay>,
    before: Option<Delay>,
}

impl BaseDelay {
    /// Takes a delay. Where the queue of another flow never drains, the least delay is kept for a minute.
    pub(crate) fn handle_delay(&mut self, now: Instant, delay: Delay, keeps: bool) {
        if now.since(self.began) >= if keeps { HALF * 12 } else { HALF } {
            (self.before, self.present, self.began) = (self.present, None, now);
        }
        self.present = Some(self.present.map_or(delay, |least| least.min(delay)));
    }

    /// By how much a delay exceeds the least one.
    pub(crate) fn queueing(&self, delay: Delay) -> Duration {
        let least = [self.present, self.before].into_iter().flatten().min();
        let more = delay - least.unwrap_or(delay);
        Duration(u64::try_from(more.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_delay_is_forgotten_after_ten_seconds() {
        let mut base = BaseDelay::default();
        for (second, delay) in [(0, 10), (1, -20), (6, 30), (9, 40)] {
            base.handle_delay(Instant::ZERO + Duration::from_secs(second), delay, false);
        }
        assert_eq!((base.queueing(40), base.queueing(-30)), (Duration(60), Duration(0)));
        base.handle_delay(Instant::ZERO + Duration::from_secs(12), 50, false);
        assert_eq!(base.queueing(50), Duration(20));
        base.handle_delay(Instant::ZERO + Duration::from_secs(60), 70, true);
        assert_eq!(base.queueing(50), Duration(20));
    }
}

//! The least delay of a path, of the last ten seconds: what is more is a queue.

use selvedge_units::{Duration, Instant};

/// Of how much time each of two halves is.
const HALF: Duration = Duration::from_secs(5);

/// From an instant of one clock to an instant of another. The clocks' origins differ, so only differences mean
/// something, and it may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay(i128);

impl Delay {
    /// From `sent` to `arrived`, each on its own clock.
    #[must_use]
    pub const fn between(sent: Instant, arrived: Instant) -> Self {
        Self(arrived.0 as i128 - sent.0 as i128)
    }

    /// By how much it is longer than `other`; zero if it is not.
    #[must_use]
    pub fn since(self, other: Self) -> Duration {
        Duration(u64::try_from((self.0 - other.0).max(0)).unwrap_or(u64::MAX))
    }

    /// It, shorter by a span.
    pub(crate) const fn less(self, span: Duration) -> Self {
        Self(self.0 - span.0 as i128)
    }

    /// It, longer by a span.
    const fn more(self, span: Duration) -> Self {
        Self(self.0 + span.0 as i128)
    }

    /// It, moved towards `other` by so many thousandths of the difference.
    pub(crate) const fn moved(self, other: Self, thousandths: u64) -> Self {
        Self(self.0 + (other.0 - self.0) * thousandths as i128 / 1_000)
    }

    /// By how much it is off the middle between two others.
    pub(crate) const fn off_middle(self, [one, other]: [Self; 2]) -> Duration {
        Duration(((one.0 + other.0) / 2 - self.0).unsigned_abs() as u64)
    }

    /// The longest of late: another that is longer is taken at once, a shorter one by a 24th of the difference.
    #[must_use]
    pub fn longest(self, other: Self) -> Self {
        Self(if other.0 > self.0 { other.0 } else { self.0 - (self.0 - other.0) / 24 })
    }
}

/// The least delay of the present five seconds and of those before.
#[derive(Clone, Debug, Default)]
pub struct BaseDelay {
    began: Instant,
    present: Option<Delay>,
    before: Option<Delay>,
}

impl BaseDelay {
    /// Takes a delay. Where the queue of another flow never drains (`keeps`), the least delay is kept for a minute.
    pub fn handle_delay(&mut self, now: Instant, delay: Delay, keeps: bool) {
        if now.since(self.began) >= if keeps { HALF * 12 } else { HALF } {
            (self.before, self.present, self.began) = (self.present, None, now);
        }
        self.present = Some(self.present.map_or(delay, |least| least.min(delay)));
    }

    /// By how much a delay exceeds the least one.
    #[must_use]
    pub fn queueing(&self, delay: Delay) -> Duration {
        delay.since(self.least().unwrap_or(delay))
    }

    /// All delays were taken without the first span, and should have been without the second.
    pub(crate) fn handle_other(&mut self, [before, now]: [Duration; 2]) {
        for least in [&mut self.present, &mut self.before] {
            *least = least.map(|least| least.more(before).less(now));
        }
    }

    /// The least delay, if there was one.
    pub(crate) fn least(&self) -> Option<Delay> {
        [self.present, self.before].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_delay_is_forgotten_after_ten_seconds() {
        let mut base = BaseDelay::default();
        for (second, delay) in [(0, 10), (1, -20), (6, 30), (9, 40)] {
            base.handle_delay(Instant::ZERO + Duration::from_secs(second), Delay(delay), false);
        }
        let queueing = |base: &BaseDelay, delay| base.queueing(Delay(delay)).0;
        assert_eq!([queueing(&base, 40), queueing(&base, -30)], [60, 0]);
        base.handle_delay(Instant::ZERO + Duration::from_secs(12), Delay(50), false);
        assert_eq!(queueing(&base, 50), 20);
        base.handle_delay(Instant::ZERO + Duration::from_secs(60), Delay(70), true);
        assert_eq!(queueing(&base, 50), 20);
    }
}

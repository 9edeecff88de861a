//! The estimate of the round-trip time, and the timeout from it (RFC 6298).

use selvedge_units::Duration;

/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// The timeout before there is a measurement.
const TIMEOUT_FIRST: Duration = Duration::from_secs(1);
/// The clock of a sender is no finer: the shortest part of a timeout that is for variation.
const GRANULARITY: Duration = Duration::from_millis(1);

/// The estimate. It has none before the first acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    timeout_min: Duration,
    /// The mean, and the mean deviation.
    smoothed: Option<(Duration, Duration)>,
    /// Timeouts since the last acknowledgement of something new.
    backoff: u32,
}

impl RoundTrip {
    pub(super) const fn new(timeout_min: Duration) -> Self {
        Self { timeout_min, smoothed: None, backoff: 0 }
    }

    /// A segment was acknowledged after this time.
    pub(super) fn measure(&mut self, sample: Duration) {
        self.backoff = 0;
        self.smoothed = Some(match self.smoothed {
            None => (sample, sample / 2),
            Some((mean, deviation)) => {
                let off = Duration(mean.0.abs_diff(sample.0));
                ((mean * 7 + sample) / 8, (deviation * 3 + off) / 4)
            }
        });
    }

    /// A timeout has passed: the next one is twice as long.
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The mean, 0 before there is one.
    pub(super) fn mean(&self) -> Duration {
        self.smoothed.map_or(Duration::ZERO, |(mean, _)| mean)
    }

    /// How long to wait for an acknowledgement.
    pub(super) fn timeout(&self) -> Duration {
        let timeout = self
            .smoothed
            .map_or(TIMEOUT_FIRST, |(mean, deviation)| mean + (deviation * 4).max(GRANULARITY));
        (timeout.max(self.timeout_min) * (1 << self.backoff)).min(TIMEOUT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_standard() {
        let ms = Duration::from_millis;
        let mut round_trip = RoundTrip::new(ms(200));
        assert_eq!(round_trip.timeout(), ms(1_000));
        round_trip.measure(ms(100));
        // 100 + 4 * 50.
        assert_eq!(round_trip.timeout(), ms(300));
        round_trip.measure(ms(180));
        // 110 + 4 * (50 * 3 / 4 + 80 / 4).
        assert_eq!((round_trip.mean(), round_trip.timeout()), (ms(110), ms(340)));
        round_trip.back_off();
        round_trip.back_off();
        assert_eq!(round_trip.timeout(), ms(1_360));
        (0..100).for_each(|_| round_trip.back_off());
        assert_eq!(round_trip.timeout(), TIMEOUT_MAX);
        (0..100).for_each(|_| round_trip.measure(ms(10)));
        assert_eq!(round_trip.timeout(), ms(200));
    }
}

//! Pacing: when the next packet may leave, so that the link's rate is kept over every window.
//!
//! A token bucket in its virtual-scheduling form (ITU-T I.371, the generic cell rate algorithm):
//! over any span `w` at most `rate * w + burst` bytes leave, whatever the pattern of arrivals and
//! however late the caller wakes. One moment is all its state.

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Decides when packets may leave a link.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rate: Bitrate,
    /// Nanoseconds that a byte takes, in units of 2^-32, rounded up; `None` if it has no room.
    step: Option<u64>,
    burst: Bytes,
    /// When the bucket is full again if nothing more is sent.
    full_at: Instant,
}

impl Pacer {
    /// A pacer whose bucket is full. `burst` should hold at least the largest packet: a larger
    /// one waits for a full bucket, and then overdraws it.
    #[must_use]
    pub const fn new(rate: Bitrate, burst: Bytes) -> Self {
        Self { rate, step: step(rate), burst, full_at: Instant::ZERO }
    }

    /// The time that these bytes take at this rate, rounded up, and at most 1 ns more for each 4 GB.
    /// By a multiplication: every frame asks several times, and a division takes much longer.
    #[must_use]
    #[inline]
    pub fn time(&self, size: Bytes) -> Duration {
        let Some(step) = self.step else { return size / self.rate };
        let units = u128::from(size.0) * u128::from(step);
        Duration(u64::try_from(units.div_ceil(1 << 32)).unwrap_or(u64::MAX))
    }

    /// The rate kept.
    #[must_use]
    pub const fn rate(&self) -> Bitrate {
        self.rate
    }

    /// Keeps another rate from `now` on. What the bucket lacks is kept in bytes, so that a
    /// change grants nothing.
    pub fn set_rate(&mut self, now: Instant, rate: Bitrate) {
        let lacking = self.rate * self.full_at.since(now);
        (self.rate, self.step) = (rate, step(rate));
        self.full_at = now + lacking / rate;
    }

    /// When a packet of this size on the wire may leave; not before `now` means at once.
    #[must_use]
    pub fn departure(&self, size: Bytes) -> Instant {
        self.before_full(self.slack(size))
    }

    /// How long before the bucket is full a packet of this size may leave.
    pub(super) fn slack(&self, size: Bytes) -> Duration {
        // Times are rounded up; taking the difference of two such spans could grant a nanosecond
        // or two, so the span that may be lacking is rounded down by hand.
        let spare = self.time(Bytes(self.burst.0.saturating_sub(size.0)));
        Duration(spare.0.saturating_sub(2))
    }

    /// So long before the bucket is full.
    #[inline]
    pub(super) fn before_full(&self, spare: Duration) -> Instant {
        Instant(self.full_at.0.saturating_sub(spare.0))
    }

    /// Takes a packet of this size from the bucket at `now`.
    pub fn take(&mut self, now: Instant, size: Bytes) {
        self.full_at = self.full_at.max(now) + self.time(size);
    }
}

const fn step(rate: Bitrate) -> Option<u64> {
    if rate.0 == 0 {
        return None;
    }
    let step = (8_000_000_000_u128 << 32).div_ceil(rate.0 as u128);
    if step <= u64::MAX as u128 { Some(step as u64) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Over every window the bytes sent stay within `rate * window + burst`, and while
        /// packets wait the link is never idle longer than the packet's own time.
        #[test]
        fn never_above_the_rate_and_never_idle(
            sizes in prop::collection::vec(40_u64..=1500, 2..200),
            oversleep in prop::collection::vec(0_u64..400_000, 200),
            kbps in 64_u64..100_000,
        ) {
            let rate = Bitrate::from_kbps(kbps);
            let burst = Bytes(1500);
            let mut pacer = Pacer::new(rate, burst);
            let mut now = Instant(5_000);
            let mut sent: Vec<(Instant, u64)> = Vec::new();
            for (&size, &late) in sizes.iter().zip(&oversleep) {
                let due = pacer.departure(Bytes(size));
                let idle = due.since(now);
                // Three roundings of a nanosecond each.
                prop_assert!(idle <= Bytes(size) / rate + Duration(3));
                now = now.max(due) + Duration(late);
                pacer.take(now, Bytes(size));
                sent.push((now, size));
            }
            for (i, &(from, _)) in sent.iter().enumerate() {
                let mut total = 0;
                for &(at, size) in &sent[i..] {
                    total += size;
                    let allowed = rate * at.since(from) + burst;
                    // One byte for the rounding of `rate * span`.
                    prop_assert!(total <= allowed.0 + 1, "{total} > {allowed} since {from:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn time_is_never_less_than_it_takes(
            size in prop_oneof![0..2000_u64, 0..5_000_000_000_u64, any::<u64>()],
            bps in prop_oneof![0..4_u64, 1..10_000_000_000_000_u64],
        ) {
            let (size, rate) = (Bytes(size), Bitrate(bps));
            let (time, exact) = (Pacer::new(rate, Bytes(1500)).time(size), size / rate);
            let slack = 1 + (size.0 >> 32);
            prop_assert!(time >= exact && time.0 - exact.0 <= slack, "{time:?} {exact:?}");
        }
    }

    #[test]
    fn a_change_of_rate_grants_nothing() {
        let mut pacer = Pacer::new(Bitrate::from_mbps(1), Bytes(1500));
        pacer.take(Instant::ZERO, Bytes(1500));
        pacer.set_rate(Instant::ZERO, Bitrate::from_mbps(10));
        assert!(pacer.departure(Bytes(1500)) >= Instant(1_199_000));
        pacer.set_rate(Instant::ZERO, Bitrate::from_mbps(1));
        assert!(pacer.departure(Bytes(1500)) >= Instant(11_990_000));
    }
}

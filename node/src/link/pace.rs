//! Pacing: when the next packet may leave, so that the link's rate is kept over every window.
//!
//! A token bucket in its virtual-scheduling form (ITU-T I.371, the generic cell rate algorithm):
//! over any span `w` at most `rate * w + burst` bytes leave, whatever the pattern of arrivals and
//! however late the caller wakes. One moment is all its state.

use selvedge_units::{Bitrate, Bytes, Instant};

/// Decides when packets may leave a link.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rate: Bitrate,
    burst: Bytes,
    /// When the bucket is full again if nothing more is sent.
    full_at: Instant,
}

impl Pacer {
    /// A pacer whose bucket is full. `burst` should hold at least the largest packet: a larger
    /// one waits for a full bucket, and then overdraws it.
    #[must_use]
    pub const fn new(rate: Bitrate, burst: Bytes) -> Self {
        Self { rate, burst, full_at: Instant::ZERO }
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
        self.rate = rate;
        self.full_at = now + lacking / rate;
    }

    /// When a packet of this size on the wire may leave; not before `now` means at once.
    #[must_use]
    pub fn departure(&self, size: Bytes) -> Instant {
        // `Bytes / Bitrate` rounds up; taking the difference of two such spans could grant a
        // nanosecond, so the span that may be lacking is rounded down by hand.
        let spare = Bytes(self.burst.0.saturating_sub(size.0));
        let spare = spare / self.rate;
        let spare = if spare.0 > 0 { spare.0 - 1 } else { 0 };
        Instant(self.full_at.0.saturating_sub(spare))
    }

    /// Takes a packet of this size from the bucket at `now`.
    pub fn take(&mut self, now: Instant, size: Bytes) {
        self.full_at = self.full_at.max(now) + size / self.rate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use selvedge_units::Span;

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
                prop_assert!(idle <= Bytes(size) / rate + Span(1));
                now = now.max(due) + Span(late);
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

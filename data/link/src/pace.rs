//! Pacing: when the next packet may leave, so that the link's rate is kept over every window.
//!
//! A token bucket in its virtual-scheduling form (ITU-T I.371, the generic cell rate algorithm).
//! While packets wait the bucket may hold `catch_up` bytes beyond `burst`, so that the bytes missed
//! by a late wake-up are sent afterwards; idle time fills it up to `burst` only. So over any
//! duration `w` at most `rate * w + burst + catch_up` bytes leave, whatever the pattern of arrivals
//! and however late the caller wakes. Its whole state is one instant.

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Decides when packets may leave a link.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rate: Bitrate,
    /// Nanoseconds that a byte takes, in units of 2^-32, rounded up; `None` if that does not fit.
    step: Option<u64>,
    burst: Bytes,
    /// How long `catch_up` bytes take at this rate, rounded down.
    catch_up: Duration,
    /// When the bucket is full again if nothing more is sent. If that has passed while packets
    /// waited, the time since then was missed.
    full_at: Instant,
}

impl Pacer {
    /// A pacer with a full bucket and without catch-up. `burst` should hold at least the largest
    /// packet: a larger one waits for a full bucket, and then overdraws it.
    #[must_use]
    pub const fn new(rate: Bitrate, burst: Bytes) -> Self {
        Self { rate, step: step(rate), burst, catch_up: Duration::ZERO, full_at: Instant::ZERO }
    }

    /// Catches up at most this number of bytes that were missed while packets waited.
    pub fn set_catch_up(&mut self, catch_up: Bytes) {
        // Not by `time`, which rounds up.
        let nanos = u128::from(catch_up.0) * 8_000_000_000;
        let span = nanos.checked_div(self.rate.0.into()).unwrap_or(0);
        self.catch_up = Duration(u64::try_from(span).unwrap_or(u64::MAX));
    }

    /// No packet could go before `now`: that time was not missed, and is not caught up.
    #[inline]
    pub fn idle_until(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now);
    }

    /// The time that these bytes take at this rate, rounded up, and at most 1 ns more for each 4
    /// GB. By a multiplication: every frame needs this several times, and a division takes much
    /// longer.
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

    /// Keeps another rate from `now` on. The bucket's deficit is kept in bytes, so that a change
    /// grants nothing. The caller must set the catch-up anew.
    pub fn set_rate(&mut self, now: Instant, rate: Bitrate) {
        let lacking = self.rate * self.full_at.since(now);
        (self.rate, self.step) = (rate, step(rate));
        self.full_at = now + lacking / rate;
    }

    /// When a packet of this size on the wire may leave; an instant that is not after `now` means
    /// at once.
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

    /// This long before the bucket is full.
    #[inline]
    pub(super) fn before_full(&self, spare: Duration) -> Instant {
        Instant(self.full_at.0.saturating_sub(spare.0))
    }

    /// When a packet that is sent at `now` behind `before` bytes would leave if there were no
    /// burst: never sooner than the rate alone allows, except for missed time.
    #[must_use]
    pub fn spaced(&self, now: Instant, before: Bytes) -> Instant {
        now.max(self.full_at.max(now - self.catch_up) + self.time(before))
    }

    /// Takes a packet of this size from the bucket at `now`.
    pub fn take(&mut self, now: Instant, size: Bytes) {
        self.full_at = self.full_at.max(now - self.catch_up) + self.time(size);
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
        /// Over every window the bytes sent stay within `rate * window + burst + catch_up`, and while
        /// packets wait the link is never idle longer than the packet's own time.
        #[test]
        fn never_above_the_rate_and_never_idle(
            sizes in prop::collection::vec(40_u64..=1500, 2..200),
            oversleep in prop::collection::vec(0_u64..400_000, 200),
            idle in prop::collection::vec(prop_oneof![4 => Just(0_u64), 1 => 0..20_000_000_u64], 200),
            catch_up in prop_oneof![Just(0_u64), 0..20_000_u64],
            kbps in 64_u64..100_000,
        ) {
            let rate = Bitrate::from_kbps(kbps);
            let (burst, catch_up) = (Bytes(1500), Bytes(catch_up));
            let mut pacer = Pacer::new(rate, burst);
            pacer.set_catch_up(catch_up);
            let mut now = Instant(5_000);
            let mut sent: Vec<(Instant, u64)> = Vec::new();
            for ((&size, &late), &idle) in sizes.iter().zip(&oversleep).zip(&idle) {
                if idle > 0 {
                    now += Duration(idle);
                    pacer.idle_until(now);
                }
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
                    let allowed = rate * at.since(from) + burst + catch_up;
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

    /// Sends full packets at 1 Mbit/s, 12 ms each, from a full bucket, each `late` after it may go.
    fn last_of(packets: u64, catch_up: Bytes, late: Duration) -> Instant {
        let mut pacer = Pacer::new(Bitrate::from_mbps(1), Bytes(1500));
        pacer.set_catch_up(catch_up);
        let mut now = Instant(1_000_000_000);
        pacer.idle_until(now);
        for _ in 0..packets {
            now = now.max(pacer.departure(Bytes(1500))) + late;
            pacer.take(now, Bytes(1500));
        }
        now
    }

    #[test]
    fn what_a_late_packet_missed_is_made_up_for_within_the_bound() {
        let (begun, packet) = (Instant(1_000_000_000), Duration::from_millis(12));
        let late = Duration::from_millis(5);
        let close = |at: Instant, wanted: Instant| at.since(wanted) < Duration(10_000);
        assert!(close(last_of(100, Bytes(0), late), begun + (packet + late) * 99 + late));
        assert!(close(last_of(100, Bytes(3000), late), begun + packet * 99 + late));
        for (catch_up, at_once) in [(0, 1), (3000, 3), (3001, 3), (6000, 5)] {
            let mut pacer = Pacer::new(Bitrate::from_mbps(1), Bytes(1500));
            pacer.set_catch_up(Bytes(catch_up));
            pacer.idle_until(begun);
            let (now, mut sent) = (begun + Duration::from_millis(100), 0);
            while pacer.departure(Bytes(1500)) <= now {
                pacer.take(now, Bytes(1500));
                sent += 1;
            }
            assert_eq!(sent, at_once, "{catch_up} B");
        }
    }

    /// Packets that a burst releases at once are a packet's time apart, and late ones catch up.
    #[test]
    fn a_burst_is_spaced_by_the_rate() {
        let (packet, apart) = (Bytes(1500), Duration::from_millis(12));
        let mut pacer = Pacer::new(Bitrate::from_mbps(1), Bytes(6000));
        pacer.set_catch_up(Bytes(3000));
        let now = Instant(1_000_000_000);
        pacer.idle_until(now);
        let whole = [0, 1500, 3000].map(|before| pacer.spaced(now, Bytes(before)));
        assert_eq!(whole, [now, now + apart, now + apart * 2]);
        for n in 0..4 {
            assert_eq!(pacer.spaced(now, Bytes(0)), now + apart * n);
            pacer.take(now, packet);
        }
        // Late by 36 ms: two packets are caught up, one of the burst's time has passed.
        let late = now + apart * 7;
        assert_eq!(pacer.spaced(late, Bytes(3000)), late);
        assert_eq!(pacer.spaced(late, Bytes(4500)), late + apart);
    }

    #[test]
    fn idle_time_gives_the_burst_only() {
        let mut pacer = Pacer::new(Bitrate::from_mbps(1), Bytes(1500));
        pacer.set_catch_up(Bytes(15_000));
        let now = Instant(1_000_000_000);
        pacer.idle_until(now);
        pacer.take(now, Bytes(1500));
        assert!(pacer.departure(Bytes(1500)) > now + Duration::from_micros(11_900));
    }
}

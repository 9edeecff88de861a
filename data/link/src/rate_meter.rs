//! Rates over the recent past, in fixed memory.

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const SLOT: Duration = Duration::from_millis(250);
const SLOTS: usize = 16;
const SECOND: usize = 4;

/// Bytes in each quarter of a second of the last four seconds.
#[derive(Clone, Debug, Default)]
pub struct RateMeter {
    bytes: [u64; SLOTS],
    /// The slot now filling, counted from time zero, and when it ends.
    slot: u64,
    until: Instant,
    began: Option<u64>,
}

impl RateMeter {
    /// Records bytes at `now`, which never goes back.
    #[inline]
    pub fn add(&mut self, now: Instant, size: Bytes) {
        if now >= self.until {
            self.start_slot(now);
        }
        self.bytes[(self.slot % SLOTS as u64) as usize] += size.0;
    }

    /// Begins to fill the slot of `now`.
    #[inline(never)]
    fn start_slot(&mut self, now: Instant) {
        let slot = now.0 / SLOT.0;
        let fresh = slot.saturating_sub(self.slot).min(SLOTS as u64);
        for n in 0..fresh {
            self.bytes[((slot - n) % SLOTS as u64) as usize] = 0;
        }
        self.slot = self.slot.max(slot);
        self.until = Instant(self.slot.saturating_add(1).saturating_mul(SLOT.0));
        self.began.get_or_insert(slot);
    }

    /// Mean rate over the last `slots` whole slots, or since the beginning if that is less.
    fn mean(&self, now: Instant, slots: usize) -> Bitrate {
        let Some(began) = self.began else { return Bitrate(0) };
        let filling = now.0 / SLOT.0;
        let from = filling.saturating_sub(slots as u64).max(began);
        let within = |slot: &u64| *slot <= self.slot && slot + (SLOTS as u64) > self.slot;
        let bytes = (from..filling).filter(within).map(|s| self.bytes[(s % SLOTS as u64) as usize]);
        Bytes(bytes.sum()) / (SLOT * (filling - from))
    }

    /// Mean rate over the last second.
    #[must_use]
    pub fn last_second(&self, now: Instant) -> Bitrate {
        self.mean(now, SECOND)
    }

    /// Mean rate over the last four seconds.
    pub(super) fn long_mean(&self, now: Instant) -> Bitrate {
        self.mean(now, SLOTS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_measured_and_forgotten() {
        let mut meter = RateMeter::default();
        for ms in (0..10_000).step_by(10) {
            meter.add(Instant(ms * 1_000_000), Bytes(1250));
        }
        let end = Instant(10_000_000_000);
        assert_eq!(meter.last_second(end), Bitrate::from_mbps(1));
        assert_eq!(meter.long_mean(end), Bitrate::from_mbps(1));
        assert_eq!(meter.last_second(end + Duration::from_secs(10)), Bitrate(0));
    }
}

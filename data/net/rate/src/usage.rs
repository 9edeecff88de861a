//! Whether a sender makes use of its rate: what it sent lately, beside what the rate allowed.

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Bytes of the present stretch of time and of the one before.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    began: Instant,
    /// Until when what the rate allowed is counted.
    counted: Instant,
    /// Sent and allowed, in the present stretch and the one before.
    present: [Bytes; 2],
    before: [Bytes; 2],
}

impl Usage {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { began: now, counted: now, present: [Bytes(0); 2], before: [Bytes(0); 2] }
    }

    /// At this rate since the last call; a stretch lasts `stretch`.
    pub(crate) fn handle_time(&mut self, now: Instant, rate: Bitrate, stretch: Duration) {
        self.present[1] += rate * now.since(self.counted);
        self.counted = now;
        if now.since(self.began) >= stretch {
            (self.before, self.present, self.began) = (self.present, [Bytes(0); 2], now);
        }
    }

    pub(crate) fn handle_sent(&mut self, size: Bytes) {
        self.present[0] += size;
    }

    /// Whether less than 80 % of what the rate allowed was sent.
    pub(crate) const fn is_low(&self) -> bool {
        let sent = self.present[0].0 + self.before[0].0;
        let allowed = self.present[1].0 + self.before[1].0;
        sent * 5 < allowed * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_long_ago_does_not_count() {
        let (rate, stretch) = (Bitrate::from_mbps(8), Duration::from_millis(100));
        let mut usage = Usage::new(Instant::ZERO);
        let mut at = |ms: u64, sent: u64| {
            usage.handle_time(Instant(ms * 1_000_000), rate, stretch);
            usage.handle_sent(Bytes(sent));
            usage.is_low()
        };
        assert!(!at(0, 1_000));
        let half = (1..=30).map(|n| at(n * 10, 5_000)).last();
        assert_eq!(half, Some(true));
        let all = (31..=60).map(|n| at(n * 10, 9_000)).last();
        assert_eq!(all, Some(false));
    }
}

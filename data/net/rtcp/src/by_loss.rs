//! The rate of a path whose receiver reports loss only, about once a second: no more is known then than whether the rate is
//! too high.

use selvedge_data_net_rate::RateParams;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// From a loss of a tenth on the rate falls, below a fiftieth it grows: parts of 256.
const MUCH: u8 = 26;
const LITTLE: u8 = 5;
/// A round trip that is longer by this is a queue.
const QUEUED: Duration = Duration::from_millis(50);
/// Reports that come more often are taken together.
const APART: Duration = Duration::from_millis(500);

/// What reports of loss say of a rate.
#[derive(Clone, Debug)]
pub(crate) struct ByLoss {
    params: RateParams,
    rate: Bitrate,
    /// It doubles until there is loss or a queue.
    is_starting: bool,
    at: Instant,
    /// Sent since then.
    sent: Bytes,
    least: Option<Duration>,
}

impl ByLoss {
    pub(crate) const fn new(now: Instant, params: RateParams) -> Self {
        Self { params, rate: params.start, is_starting: true, at: now, sent: Bytes(0), least: None }
    }

    pub(crate) const fn rate(&self) -> Bitrate {
        self.rate
    }

    pub(crate) fn handle_sent(&mut self, size: Bytes) {
        self.sent += size;
    }

    /// The receiver reports the share that was lost, in parts of 256.
    pub(crate) fn handle_loss(&mut self, now: Instant, lost: u8, round_trip: Option<Duration>) {
        let lasted = now.since(self.at);
        if lasted < APART {
            return;
        }
        if let Some(took) = round_trip {
            self.least = Some(self.least.map_or(took, |least| least.min(took)));
        }
        let queue = round_trip.zip(self.least).map(|(took, least)| took.0.saturating_sub(least.0));
        let is_queued = queue.is_some_and(|queue| queue > QUEUED.0);
        let sent = self.sent / lasted;
        let is_used = sent.0 >= self.rate.0 / 10 * 8;
        let rate = if lost >= MUCH {
            self.rate.0 / 512 * (512 - u64::from(lost))
        } else if is_queued {
            self.rate.min(sent).0 / 100 * 85
        } else if lost <= LITTLE && is_used {
            if self.is_starting { self.rate.0 * 2 } else { self.rate.0 / 100 * 108 }
        } else {
            self.rate.0
        };
        self.is_starting &= lost <= LITTLE && !is_queued;
        self.rate = Bitrate(rate.min(self.params.most.0).max(self.params.least.0));
        (self.at, self.sent) = (now, Bytes(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// A report each second of what was sent at the rate.
    fn run(by: &mut ByLoss, seconds: std::ops::Range<u64>, lost: u8, round_trip: u64) -> u64 {
        for second in seconds {
            by.handle_sent(by.rate() * MS(1_000));
            let now = Instant::ZERO + MS(1_000) * (second + 1);
            by.handle_loss(now, lost, Some(MS(round_trip)));
        }
        (by.rate().0 + 500) / 1_000
    }

    #[test]
    fn it_doubles_until_there_is_loss_and_then_grows_slowly() {
        let mut by = ByLoss::new(Instant::ZERO, RateParams::default());
        assert_eq!(run(&mut by, 0..3, 0, 40), 4_000);
        assert_eq!(run(&mut by, 3..4, 128, 40), 3_000);
        assert_eq!(run(&mut by, 4..5, 0, 40), 3_240);
        // Neither much nor little loss.
        assert_eq!(run(&mut by, 5..9, 12, 40), 3_240);
        // A queue.
        assert_eq!(run(&mut by, 9..10, 0, 140), 2_754);
    }

    #[test]
    fn it_does_not_grow_unused_nor_by_many_reports() {
        let mut by = ByLoss::new(Instant::ZERO, RateParams::default());
        for ms in 0..10_000 {
            by.handle_loss(Instant::ZERO + MS(ms), 0, None);
        }
        assert_eq!(by.rate(), Bitrate::from_kbps(500));
        for ms in 10_000..11_000 {
            by.handle_sent(Bytes(100_000));
            by.handle_loss(Instant::ZERO + MS(ms), 0, None);
        }
        assert!(by.rate() <= Bitrate::from_mbps(2), "{}", by.rate());
    }
}

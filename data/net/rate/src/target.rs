//! The queueing delay that a flow keeps: the longer, the less it has.
//!
//! Flows that share a queue see about one delay. The slower ones find it too short and grow, the faster ones shrink, towards
//! the same rate. With one target for all, each would keep what it happened to have.

use selvedge_units::{Bitrate, Duration};

/// The least queueing delay, which a flow of the first of [`RATES`] keeps.
pub(crate) const TARGET: Duration = Duration::from_millis(14);
/// The rates between which the delay grows, in bits per second: from the first down to the second.
const RATES: [u64; 2] = [1 << 22, 1 << 16];
/// What the delay grows by for each halving of the rate.
const HALVED: Duration = Duration::from_millis(6);

/// The queueing delay that a flow of this rate keeps.
pub(crate) fn target(rate: Bitrate) -> Duration {
    let [most, least] = RATES;
    let rate = rate.0.clamp(least, most);
    // In parts of 256; between two powers of two they are linear.
    let halvings = |rate: u64| u64::from(rate.ilog2()) * 256 + (rate << 8 >> rate.ilog2() & 255);
    TARGET + HALVED * (halvings(most) - halvings(rate)) / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_longer_for_slower_flows() {
        let ms = |kbps| target(Bitrate::from_kbps(kbps)).0 / 1_000_000;
        assert_eq!(
            [30_000, 4_195, 2_097, 1_573, 1_048, 150, 10].map(ms),
            [14, 14, 20, 23, 26, 43, 50]
        );
        assert!((50..5_000).all(|kbps| ms(kbps) >= ms(kbps + 1)));
    }
}

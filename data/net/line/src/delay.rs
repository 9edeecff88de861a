//! How long packets are under way: a delay, and what varies it.

use selvedge_units::{Duration, Instant};

use crate::random::Random;

/// What is added to a delay, or taken from it, packet by packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Jitter {
    /// Nothing.
    #[default]
    None,
    /// Between minus and plus this, all alike.
    Uniform(Duration),
    /// Normally distributed, with this standard deviation; at most 2.9 times as much.
    Normal(Duration),
    /// One of these, which were recorded somewhere, is added: quantiles at equal distances.
    Recorded(Vec<Duration>),
}

/// The delay of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayModel {
    /// The mean, but for recorded jitter, which is added to it.
    pub delay: Duration,
    /// What varies it. A packet that would take less than no time takes none.
    pub jitter: Jitter,
    /// Whether a packet may overtake an earlier one that is delayed more.
    pub reorders: bool,
}

/// The standard normal distribution's quantiles above its median, at (n + 0.5) / 256 for n from 128 to
/// 255, in 4096ths of a standard deviation.
const NORMAL: [u64; 128] = [
    20, 60, 100, 140, 181, 221, 261, 301, 341, 382, 422, 462, 503, 543, 584, 624, 665, 705, 746,
    787, 828, 869, 910, 951, 992, 1034, 1075, 1117, 1158, 1200, 1242, 1284, 1326, 1369, 1411, 1454,
    1497, 1539, 1583, 1626, 1669, 1713, 1757, 1801, 1845, 1890, 1935, 1979, 2025, 2070, 2116, 2162,
    2208, 2255, 2301, 2348, 2396, 2444, 2492, 2540, 2589, 2638, 2688, 2738, 2788, 2839, 2890, 2942,
    2994, 3046, 3100, 3153, 3207, 3262, 3318, 3374, 3430, 3487, 3545, 3604, 3664, 3724, 3785, 3847,
    3910, 3973, 4038, 4104, 4170, 4238, 4307, 4378, 4450, 4523, 4597, 4673, 4751, 4830, 4912, 4995,
    5080, 5168, 5258, 5351, 5447, 5545, 5647, 5753, 5863, 5977, 6095, 6219, 6350, 6486, 6631, 6784,
    6948, 7123, 7312, 7519, 7746, 8001, 8290, 8628, 9038, 9565, 10324, 11820,
];
/// A standard deviation in the table.
const SIGMA: u128 = 4096;

/// Gives each packet its time of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Delays {
    random: Random,
    /// No packet arrives before the one in front of it, unless they may be reordered.
    last: Instant,
}

impl Delays {
    pub(crate) const fn new(random: Random) -> Self {
        Self { random, last: Instant::ZERO }
    }

    /// When a packet arrives that leaves at `sent`; times of leaving do not go back.
    #[inline]
    pub(crate) fn arrival(&mut self, model: &DelayModel, sent: Instant) -> Instant {
        let arrival = sent + self.delay(model);
        if model.reorders {
            return arrival;
        }
        self.last = self.last.max(arrival);
        self.last
    }

    fn delay(&mut self, model: &DelayModel) -> Duration {
        let delay = model.delay;
        match &model.jitter {
            Jitter::None => delay,
            Jitter::Recorded(quantiles) if quantiles.is_empty() => delay,
            Jitter::Recorded(quantiles) => {
                delay + quantiles[self.random.below(quantiles.len() as u64) as usize]
            }
            Jitter::Uniform(most) => {
                let offset = self.random.below(most.0.saturating_mul(2).saturating_add(1));
                (delay + Duration(offset)) - *most
            }
            Jitter::Normal(sigma) => {
                let bits = self.random.bits();
                // 7 bits choose a quantile, 8 lie between it and the one below, one is the sign.
                let (n, between) = ((bits & 127) as usize, u128::from(bits >> 7 & 255));
                let below = if n == 0 { 0 } else { NORMAL[n - 1] };
                let parts = u128::from(below) * 256 + u128::from(NORMAL[n] - below) * between;
                let offset = u128::from(sigma.0) * parts / (SIGMA * 256);
                let offset = Duration(u64::try_from(offset).unwrap_or(u64::MAX));
                if bits >> 63 == 0 { delay + offset } else { delay - offset }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Duration = Duration::from_millis(50);
    const SPREAD: Duration = Duration::from_millis(10);

    /// Delays of packets that are sent every millisecond, in milliseconds.
    fn delays(jitter: Jitter, reorders: bool) -> Vec<f64> {
        let model = DelayModel { delay: MEAN, jitter, reorders };
        let mut delays = Delays::new(Random::named(5, "delay"));
        let sent = (0..100_000).map(|n| Instant::ZERO + Duration::from_millis(1) * n);
        sent.map(|sent| delays.arrival(&model, sent).since(sent).as_millis_f64()).collect()
    }

    fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, (squares / values.len() as f64).sqrt())
    }

    #[test]
    fn a_normal_jitter_has_the_moments_of_its_distribution() {
        let all = delays(Jitter::Normal(SPREAD), true);
        let (mean, deviation) = mean_and_deviation(&all);
        assert!((mean - 50.0).abs() < 0.15, "{mean}");
        assert!((deviation - 10.0).abs() < 0.2, "{deviation}");
        let within = all.iter().filter(|value| (*value - 50.0).abs() < 10.0).count();
        assert!((67_500..69_100).contains(&within), "{within} within one deviation");
    }

    #[test]
    fn a_uniform_jitter_fills_its_range() {
        let all = delays(Jitter::Uniform(SPREAD), true);
        let (mean, deviation) = mean_and_deviation(&all);
        assert!((mean - 50.0).abs() < 0.1, "{mean}");
        assert!((deviation - 10.0 / 3.0_f64.sqrt()).abs() < 0.05, "{deviation}");
        assert!(all.iter().all(|value| (40.0..=60.0).contains(value)));
    }

    #[test]
    fn recorded_delays_come_back_and_no_packet_takes_less_than_no_time() {
        let recorded = vec![Duration::from_millis(1), Duration::from_millis(30)];
        let all = delays(Jitter::Recorded(recorded), true);
        let long = all.iter().filter(|value| **value == 80.0).count();
        assert!((49_000..51_000).contains(&long), "{long}");
        assert!(all.iter().all(|value| [51.0, 80.0].contains(value)));
        let model = DelayModel { jitter: Jitter::Uniform(SPREAD), ..DelayModel::default() };
        let mut none = Delays::new(Random::named(5, "delay"));
        assert!((0..100).all(|_| none.arrival(&model, Instant(7)) >= Instant(7)));
    }

    #[test]
    fn packets_keep_their_order_unless_they_may_not() {
        let steps = |reorders| {
            let all = delays(Jitter::Normal(SPREAD), reorders);
            let arrivals: Vec<f64> = all.iter().enumerate().map(|(n, d)| n as f64 + d).collect();
            arrivals.windows(2).filter(|pair| pair[1] < pair[0] - 1e-6).count()
        };
        assert_eq!(steps(false), 0);
        assert!(steps(true) > 10_000, "{}", steps(true));
    }
}

//! CUBIC's growth of the window (RFC 9438), in integers: bytes, and milliseconds since the epoch.

use selvedge_units::{Duration, Instant};

/// What CUBIC remembers of the last congestion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cubic {
    /// The window at which the network was full, W_max.
    full: u64,
    epoch: Option<Epoch>,
    after_timeout: bool,
}

/// Growth since a reduction.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    since: Instant,
    /// The plateau of the curve.
    origin: u64,
    /// From the beginning to the plateau, K, in ms.
    plateau_ms: u64,
    /// What Reno's window would be, W_est.
    reno: u64,
    /// What was lost in rounding, of growth by the curve and of Reno's.
    rest: [u64; 2],
}

/// Grows by a part of `by / window`, and keeps what rounding takes.
fn share(by: u64, window: u64, rest: &mut u64) -> u64 {
    let all = by.saturating_add(*rest);
    *rest = all % window;
    all / window
}

/// The cube root, rounded down, of numbers below 2^126.
fn cube_root(n: u128) -> u64 {
    let mut root = 0_u128;
    for bit in (0..42).rev() {
        let next = root | 1 << bit;
        if next * next * next <= n {
            root = next;
        }
    }
    root as u64
}

impl Epoch {
    /// The curve, `0.4 (t - K)^3 + origin` in segments and seconds.
    fn curve(&self, segment: u64, at: Duration) -> u64 {
        let ms =
            (i128::from(at.0 / 1_000_000) - i128::from(self.plateau_ms)).clamp(-(1 << 30), 1 << 30);
        let grown = i128::from(segment) * ms * ms * ms * 4 / 10_000_000_000;
        u64::try_from(i128::from(self.origin) + grown).unwrap_or(0)
    }
}

impl Cubic {
    /// Congestion at this window. It gives up 3/10, and, where the window had not become as large as before,
    /// takes for full less than it is (fast convergence).
    pub(super) fn reduce(&mut self, window: u64) {
        self.full = if window < self.full { window / 20 * 17 } else { window };
        self.epoch = None;
    }

    /// Behind a timeout, growth begins on the plateau.
    pub(super) const fn time_out(&mut self) {
        self.after_timeout = true;
    }

    /// The window after `acked` bytes of congestion avoidance.
    pub(super) fn grow(
        &mut self,
        window: u64,
        segment: u64,
        acked: u64,
        now: Instant,
        round_trip: Duration,
    ) -> u64 {
        let (full, after_timeout) = (self.full, self.after_timeout);
        let epoch = self.epoch.get_or_insert_with(|| {
            let origin = if after_timeout { window } else { full.max(window) };
            // (origin - window) / 0.4 segments are the cube of seconds.
            let cube = u128::from(origin - window) * 2_500_000_000 / u128::from(segment);
            Epoch { since: now, origin, plateau_ms: cube_root(cube), reno: window, rest: [0; 2] }
        });
        self.after_timeout = false;
        let elapsed = now.since(epoch.since);
        let target = epoch.curve(segment, elapsed + round_trip).clamp(window, window * 3 / 2);
        // Reno's growth for CUBIC's reduction: 9/17 of a segment a round trip; a whole one where it is ahead.
        let (times, of) = if epoch.reno < full { (9, 17) } else { (1, 1) };
        epoch.reno += share(segment * acked * times / of, window, &mut epoch.rest[0]);
        if epoch.curve(segment, elapsed) < epoch.reno {
            return window.max(epoch.reno);
        }
        window + share((target - window).saturating_mul(acked), window, &mut epoch.rest[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_rounded_down() {
        for n in [0_u64, 1, 7, 8, 9, 26, 27, 1_000_000, 4_000_000_000_000] {
            let root = u128::from(cube_root(n.into()));
            assert!(root.pow(3) <= n.into() && (root + 1).pow(3) > n.into(), "{n}: {root}");
        }
        assert_eq!(cube_root(10_u128.pow(36)), 1_000_000_000_000);
        assert_eq!(cube_root(u128::MAX), (1 << 42) - 1);
    }

    #[test]
    fn the_window_comes_back_after_the_time_of_the_standard() {
        // W_max is 1000 segments: K is the cube root of 300 / 0.4, 9.09 s.
        let segment = 1_000;
        let mut cubic = Cubic::default();
        cubic.reduce(1_000_000);
        let (mut window, mut now) = (700_000, Instant::ZERO);
        let round_trip = Duration::from_millis(100);
        let mut at = |until| {
            while now < Instant(until) {
                now += Duration::from_millis(1);
                window = cubic.grow(window, segment, window / 100, now, round_trip);
            }
            window / segment
        };
        // 0.4 (t - 9.09)^3 + 1000, which the window lags by a round trip, and is reckoned one ahead.
        assert!((852..862).contains(&at(2_000_000_000)), "{}", at(0));
        assert!((995..=1_001).contains(&at(9_000_000_000)), "{}", at(0));
        assert!((1_120..1_145).contains(&at(16_000_000_000)), "{}", at(0));
    }

    #[test]
    fn at_short_round_trips_it_grows_as_reno_would() {
        let mut cubic = Cubic::default();
        cubic.reduce(20_000);
        let (mut window, mut now) = (14_000, Instant::ZERO);
        for _ in 0..100 {
            now += Duration::from_millis(1);
            window = cubic.grow(window, 1_000, window, now, Duration::from_millis(1));
        }
        // 6 segments at 9/17 each take 12 round trips; the others bring one each.
        assert!((106_000..=110_000).contains(&window), "{window}");
    }
}

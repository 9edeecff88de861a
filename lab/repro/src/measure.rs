//! What experiments need: a clock, medians and spreads, and the name of the processor.

use std::fs;
use std::time::{Duration, Instant as StdInstant};

pub(crate) use selvedge_lab_measure::median;

/// The least, the median (the higher of two) and the largest; NaN of none.
pub(crate) fn spread(figures: impl IntoIterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    [0, sorted.len() / 2, last].map(|at| sorted.get(at).copied().unwrap_or(f64::NAN))
}

/// How long `work` takes.
pub(crate) fn time(work: impl FnOnce()) -> Duration {
    let start = StdInstant::now();
    work();
    start.elapsed()
}

/// Waits, by the clock of the experiments.
pub(crate) fn pause(span: selvedge_units::Duration) {
    let clock = selvedge_os::clock::Clock::shared();
    clock.sleep_until(clock.now() + span);
}

/// The processor's name as the kernel reports it.
pub(crate) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| "this machine's processor".to_owned(), |(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([]), 0.0);
        assert_eq!(spread([3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
        assert!(spread([]).iter().all(|figure| figure.is_nan()));
    }
}

//! A histogram of durations in a fixed number of counters: linear up to 66 us, then 32 steps to
//! each doubling up to 69 s. A quantile read from it is at most 1.6 % off, and at most 0.6 us.

use selvedge_units::Duration;

/// Steps to a doubling, as a power of two.
const STEP_BITS: u32 = 5;
/// The finest step, as a power of two of nanoseconds: 1024 ns.
const UNIT_BITS: u32 = 10;
/// Units below this are counted one by one.
const LINEAR: u64 = 2 << STEP_BITS;
/// Doublings above the linear part: up to 2^36 ns.
const DOUBLINGS: usize = 20;
const BUCKETS: usize = LINEAR as usize + (DOUBLINGS << STEP_BITS);

/// Counts durations by length. 2.9 kB, however many are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u32; BUCKETS],
    count: u64,
    sum: u128,
    min: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            count: 0,
            sum: 0,
            min: Duration(u64::MAX),
            max: Duration::ZERO,
        }
    }
}

/// The bucket that a duration is counted in; the last takes all longer ones.
fn bucket(span: Duration) -> usize {
    let units = span.0 >> UNIT_BITS;
    if units < LINEAR {
        return units as usize;
    }
    // The leading bit gives the doubling, the bits after it the step within it.
    let doubling = units.ilog2() - STEP_BITS;
    let step = (units >> doubling) as usize;
    (((doubling as usize) << STEP_BITS) + step).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn middle(bucket: usize) -> Duration {
    let (first, width) = if bucket < LINEAR as usize {
        (bucket as u64, 1)
    } else {
        let doubling = (bucket >> STEP_BITS) - 1;
        let step = bucket - (doubling << STEP_BITS);
        ((step as u64) << doubling, 1 << doubling)
    };
    Duration((first << UNIT_BITS) + (width << UNIT_BITS) / 2)
}

impl Histogram {
    /// Counts a duration, in constant time.
    pub fn record(&mut self, span: Duration) {
        let count = &mut self.counts[bucket(span)];
        *count = count.saturating_add(1);
        self.count += 1;
        self.sum += u128::from(span.0);
        self.min = self.min.min(span);
        self.max = self.max.max(span);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The counters that are not zero, by their number: for another process to
    /// [`restore`](Self::restore).
    pub fn counters(&self) -> impl Iterator<Item = (usize, u32)> {
        self.counts.iter().copied().enumerate().filter(|&(_, count)| count > 0)
    }

    /// A histogram with these counters, of this sum and these ends. Unknown counters count in the
    /// last one.
    pub fn restore(
        counters: impl IntoIterator<Item = (usize, u32)>,
        sum: Duration,
        min: Duration,
        max: Duration,
    ) -> Self {
        let mut histogram = Self { sum: sum.0.into(), min, max, ..Self::default() };
        for (bucket, count) in counters {
            let slot = &mut histogram.counts[bucket.min(BUCKETS - 1)];
            *slot = slot.saturating_add(count);
            histogram.count += u64::from(count);
        }
        // An empty histogram has ends of its own.
        if histogram.count == 0 || min > max { Self::default() } else { histogram }
    }

    /// The sum of all durations; saturates.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration(u64::try_from(self.sum).unwrap_or(u64::MAX))
    }

    /// The shortest duration, exact; `None` if nothing was recorded.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.min)
    }

    /// How many durations were recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The mean, exact and rounded down; `None` if nothing was recorded.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        Some(Duration(mean as u64))
    }

    /// The longest duration, exact; `None` if nothing was recorded.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.max)
    }

    /// The shortest duration that at least the share `f` (0 ..= 1) of all do not exceed, as exact
    /// as the buckets are; `None` if nothing was recorded. Linear in the number of buckets.
    #[must_use]
    pub fn quantile(&self, f: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let share = f * self.count as f64;
        let whole = share as u64;
        let rank = if (whole as f64) < share { whole + 1 } else { whole }.clamp(1, self.count);
        if rank == self.count {
            return Some(self.max);
        }
        let mut below = 0;
        let holds_rank = |&count: &u32| {
            below += u64::from(count);
            below >= rank
        };
        let bucket = self.counts.iter().position(holds_rank).unwrap_or(BUCKETS - 1);
        Some(middle(bucket).clamp(self.min, self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_restore_it() {
        let mut histogram = Histogram::default();
        for nanos in [3, 70_000, 70_001, 9_999_999_999, u64::MAX >> 20] {
            histogram.record(Duration(nanos));
        }
        let ends = (histogram.min().unwrap(), histogram.max().unwrap());
        let counters: Vec<_> = histogram.counters().collect();
        let again = Histogram::restore(counters, histogram.sum(), ends.0, ends.1);
        assert_eq!(again, histogram);
        assert_eq!(
            Histogram::restore([], Duration(5), Duration(1), Duration(2)),
            Histogram::default()
        );
        assert_eq!(
            Histogram::restore([(usize::MAX, 1)], Duration(5), Duration(5), Duration(5)).count(),
            1
        );
    }

    #[test]
    fn buckets_follow_one_another_and_hold_their_middles() {
        for n in 0..BUCKETS {
            assert_eq!(bucket(middle(n)), n);
            assert!(n == 0 || middle(n - 1) < middle(n));
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration((1 << 36) - 1)), BUCKETS - 1);
        assert_eq!(bucket(Duration(u64::MAX)), BUCKETS - 1);
    }

    #[test]
    fn every_span_is_near_the_middle_of_its_bucket() {
        let mut span = 1_u64;
        while span < 1 << 36 {
            let off = middle(bucket(Duration(span))).0.abs_diff(span);
            assert!(off <= (span / 64).max(512), "{span} ns is {off} ns off");
            span += span / 37 + 1;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let mut histogram = Histogram::default();
        let spans: Vec<_> = (1..=1000).map(Duration::from_micros).collect();
        // Any order will do.
        for n in 0..1000 {
            histogram.record(spans[n * 617 % 1000]);
        }
        for (f, rank) in [(0.0, 1), (0.001, 1), (0.5, 500), (0.99, 990), (1.0, 1000), (7.0, 1000)] {
            let (is, should) = (histogram.quantile(f).unwrap().0, spans[rank - 1].0);
            assert!(is.abs_diff(should) <= (should / 64).max(512), "{f}: {is} for {should}");
        }
        assert_eq!(histogram.mean(), Some(Duration(500_500)));
        assert_eq!(histogram.max(), Some(Duration::from_millis(1)));
        assert!(histogram.quantile(f64::NAN).is_some());
    }

    #[test]
    fn of_nothing_there_is_no_mean() {
        let empty = Histogram::default();
        assert_eq!((empty.mean(), empty.quantile(0.5), empty.max()), (None, None, None));
    }

    #[test]
    fn what_is_too_long_is_still_counted() {
        let mut histogram = Histogram::default();
        histogram.record(Duration(u64::MAX));
        histogram.record(Duration(u64::MAX));
        assert_eq!((histogram.count(), histogram.mean()), (2, Some(Duration(u64::MAX))));
        assert_eq!(histogram.quantile(0.5), Some(Duration(u64::MAX)));
    }

    #[test]
    fn merging_is_recording_both() {
        let (mut a, mut b, mut both) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for n in 0..500 {
            let span = Duration(n * n * 7919);
            if n % 3 == 0 {
                a.record(span)
            } else {
                b.record(span)
            }
            both.record(span);
        }
        a.merge(&b);
        assert_eq!(a, both);
    }
}

//! `wfq` against the textbook: GPS, the fluid system itself, with whole queues in view, exact in fractions;
//! and frames tagged on arrival.

use proptest::prelude::*;
use selvedge_data_sched::Discipline;

use crate::run::{Stream, run};

/// A fraction, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ratio(i128, i128);

impl Ratio {
    fn new(above: i128, below: i128) -> Self {
        let (mut a, mut b) = (above.abs(), below);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self(above / a.max(1), below / a.max(1))
    }

    fn plus(self, other: Self) -> Self {
        Self::new(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self(-other.0, other.1))
    }

    fn times(self, other: Self) -> Self {
        Self::new(self.0 * other.0, self.1 * other.1)
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some((self.0 * other.1).cmp(&(other.0 * self.1)))
    }
}

/// The fluid system.
struct Fluid<'a> {
    weights: &'a [i128],
    now: Ratio,
    /// Work given out.
    work: Ratio,
    /// For each stream, where its last frame so far ends.
    ends: Vec<Ratio>,
    /// Each frame's stream, end, and the work at which the fluid system finished it.
    frames: Vec<(usize, Ratio, Option<Ratio>)>,
}

impl Fluid<'_> {
    fn arrive(&mut self, n: usize, size: i128) -> Ratio {
        let start = if self.ends[n] > self.now { self.ends[n] } else { self.now };
        self.ends[n] = start.plus(Ratio::new(size, self.weights[n]));
        self.frames.push((n, self.ends[n], None));
        self.ends[n]
    }

    /// Gives out this much work.
    fn give(&mut self, size: i128) {
        let mut left = Ratio(size, 1);
        loop {
            let busy: Vec<usize> =
                (0..self.ends.len()).filter(|&n| self.ends[n] > self.now).collect();
            let weights: i128 = busy.iter().map(|&n| self.weights[n]).sum();
            if weights == 0 {
                return;
            }
            // The next end of any frame.
            let mut next = self.ends[busy[0]];
            for &(_, end, done) in &self.frames {
                if done.is_none() && end > self.now && end < next {
                    next = end;
                }
            }
            let need = next.minus(self.now).times(Ratio(weights, 1));
            let step = if need > left { left } else { need };
            self.work = self.work.plus(step);
            self.now =
                if need > left { self.now.plus(left.times(Ratio(1, weights))) } else { next };
            left = left.minus(step);
            for (_, end, done) in &mut self.frames {
                if *end <= self.now && done.is_none() {
                    *done = Some(self.work);
                }
            }
            if left.0 == 0 {
                return;
            }
        }
    }
}

/// The largest excess, in bytes, of the work sent before a frame over the work that the fluid system had
/// given out by that frame's end. Also whether `wfq` went in the order of the tags.
fn latest(weights: &[u64], arrivals: &[(u64, usize, u64)]) -> (f64, Option<usize>) {
    let streams: Vec<Stream> = weights.iter().copied().map(Stream::weighing).collect();
    let run = run(Discipline::Wfq, &streams, arrivals, &[], None, 120);
    let weights: Vec<i128> = weights.iter().map(|&weight| i128::from(weight)).collect();
    let mut fluid = Fluid {
        weights: &weights,
        now: Ratio(0, 1),
        work: Ratio(0, 1),
        ends: vec![Ratio(0, 1); weights.len()],
        frames: Vec::new(),
    };
    let mut queues: Vec<Vec<(Ratio, usize)>> = vec![Vec::new(); weights.len()];
    let mut left: Vec<i128> = Vec::new();
    let (mut sent, mut disorder) = (0, None);
    for (t, slot) in run.slots.iter().enumerate() {
        for &(_, n, size) in arrivals.iter().filter(|a| a.0 == t as u64) {
            let end = fluid.arrive(n, i128::from(size));
            queues[n].push((end, fluid.frames.len() - 1));
            left.push(-1);
        }
        let Some(n) = slot.sent else { continue };
        let (end, frame) = queues[n].remove(0);
        let earlier = queues.iter().filter_map(|q| q.first()).any(|&(other, _)| {
            // By more than rounding may cause.
            other.plus(Ratio(1, 1 << 20)) < end
        });
        if earlier && disorder.is_none() {
            disorder = Some(t);
        }
        sent += i128::from(slot.size);
        left[frame] = sent;
        fluid.give(i128::from(slot.size));
    }
    let late = fluid.frames.iter().zip(&left).filter_map(|((.., done), &left)| {
        let Ratio(above, below) = (*done)?;
        (left >= 0).then(|| (left * below - above) as f64 / below as f64)
    });
    (late.fold(f64::MIN, f64::max), disorder)
}

fn arrivals(
    size: impl Strategy<Value = u64> + Clone,
) -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    let burst = (0..40_u64, 0..4_usize, prop::collection::vec(size, 1..5));
    prop::collection::vec(burst, 1..12).prop_map(|bursts| {
        let each =
            |(at, n, sizes): (u64, usize, Vec<u64>)| sizes.into_iter().map(move |s| (at, n, s));
        let mut all: Vec<_> = bursts.into_iter().flat_map(each).collect();
        all.sort_by_key(|arrival| arrival.0);
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Parekh and Gallager's theorem, and their tags although the scheduler saw heads only.
    #[test]
    fn frames_of_one_size_leave_a_frame_after_gps_at_most(
        weights in prop::collection::vec(1..5_u64, 4),
        arrivals in arrivals(Just(1000)),
    ) {
        let (late, disorder) = latest(&weights, &arrivals);
        prop_assert!(late <= 1000.001, "{late}");
        prop_assert_eq!(disorder, None);
    }

    #[test]
    fn frames_of_any_size_leave_one_largest_frame_after_gps_at_most(
        weights in prop::collection::vec(1..5_u64, 4),
        arrivals in arrivals(prop::sample::select(&[40_u64, 100, 500, 1000, 1500][..])),
    ) {
        let (late, _) = latest(&weights, &arrivals);
        prop_assert!(late <= 1500.001, "{late}");
    }
}

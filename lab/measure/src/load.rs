//! The streams that decisions are measured with, and the samples that are taken of them: shared by
//! [`decide`](crate::decide) and [`dataplane`](crate::dataplane).

use std::time::{Duration as StdDuration, Instant as StdInstant};

use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex};
use selvedge_data_stream::{Contract, Window};
use selvedge_units::{Bytes, Duration, Instant};

/// A sample lasts about this long: long against the clock's resolution, short against the time that
/// a program has the processor for where others want it too.
const SAMPLE: StdDuration = StdDuration::from_micros(300);

/// A discipline, and the streams that it is measured with: work-conserving ones that drop what is
/// late and always have another frame.
///
/// The same in each call: periods of half to one and a half times as many microseconds as there
/// are streams, spread evenly, to the nanosecond or (`ties`) in whole microseconds; windows of up
/// to 8 frames, priorities from 0 to 7, weights from 1 to 8. So together they want 1.1 frames in a
/// microsecond, whatever their number. With `ties` about as many heads share each deadline, and
/// the window decides.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How they are served.
    pub discipline: Discipline,
    /// How many there are, at least 1.
    pub streams: u32,
    /// Whether periods are whole microseconds.
    pub ties: bool,
}

impl Load {
    pub(crate) fn contracts(self) -> impl Iterator<Item = Contract> {
        let streams = u64::from(self.streams.max(1));
        let mut seed = 1;
        (0..streams).map(move |_| {
            let mut period = 1000 * (streams / 2).max(1) + random(&mut seed) % (1000 * streams);
            if self.ties {
                period -= period % 1000;
            }
            let of = 1 + small(&mut seed, 8);
            let window = Window { lose: small(&mut seed, of + 1), of };
            let priority = i32::from(small(&mut seed, 8));
            let weight = u32::from(1 + small(&mut seed, 8));
            Contract { priority, weight, ..Contract::new(Duration(period), window) }
        })
    }

    /// A scheduler with these streams, without heads.
    pub(crate) fn scheduler(self) -> Scheduler {
        let mut sched = Scheduler::new(self.discipline);
        self.contracts().for_each(|contract| {
            sched.add(&contract);
        });
        sched
    }

    /// All the streams.
    pub(crate) fn indexes(self) -> impl Iterator<Item = StreamIndex> {
        (0..self.streams.max(1)).map(StreamIndex)
    }

    /// How long a frame may take if the streams are to want `times` what they get, in ns.
    pub(crate) fn slot(self, times: f64) -> f64 {
        times / self.contracts().map(|contract| 1.0 / contract.period.0 as f64).sum::<f64>()
    }
}

/// A frame of 1200 bytes.
pub(crate) fn frame(arrival: Instant) -> Head {
    Head { size: Bytes(1200), ..Head::arrived(arrival) }
}

/// A batch that lasts a sample, found by doubling; that warms the caches up, too.
pub(crate) fn batch(mut work: impl FnMut(u64)) -> u64 {
    let mut batch = 16;
    // Who loses the processor meanwhile seems slow; hardly three times running.
    let mut shortest = |batch| (0..3).map(|_| timed(|| work(batch))).min();
    while shortest(batch) < Some(SAMPLE) {
        batch *= 2;
    }
    batch
}

pub(crate) fn timed(work: impl FnOnce()) -> StdDuration {
    let start = StdInstant::now();
    work();
    start.elapsed()
}

/// The middle figure, the higher of two; zero of none.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Marsaglia's xorshift (64 bits; 13, 7, 17).
const fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// A random number below `end`.
const fn small(seed: &mut u64, end: u16) -> u16 {
    (random(seed) % end as u64) as u16
}

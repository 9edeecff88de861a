//! The offline bound: no scheduler, even with all arrivals known in advance, can make more frames
//! decodable on time over a link of this rate.
//!
//! Choosing frames so that all make their deadlines and all have their references is NP-hard (it
//! contains the knapsack problem), so this is an upper bound, not a schedule: the Lagrangian dual.
//! Put a price on a byte in each interval of time. A buyer that pays for capacity at these prices,
//! and is paid 1 for each decodable frame, would take in each group of pictures the best set closed
//! under references, each frame at the cheapest price between its arrival and its deadline. Its
//! profit, plus the worth of the whole link, bounds the profit of any schedule, at *every* vector
//! of prices (weak duality). So any method of finding the prices is sound. Relaxations that make
//! the problem easy only add schedules, so the bound stays valid: of a frame's references only the
//! one that itself needs most is required, so that they make a tree, and a frame's time is widened
//! to whole slots. Slots begin and end with frames' times, so that nothing is widened where frames
//! are periodic.
//!
//! The prices are found by descent. A frame's bytes go to the cheapest slot, which jumps from step
//! to step; spread over the slots that cost nearly as little they give a steadier direction (that
//! of the dual with a soft minimum), while the bound itself is always taken at the true minimum.
//! Each price moves by its slope relative to the slope's recent size (Adam), by less from step to
//! step. Offline and for printing, hence floating point.

use std::ops::Range;

use selvedge_data_stream::References;
use selvedge_units::{Bitrate, Bytes, Instant};

/// A frame as the bound sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfflineFrame {
    /// When it arrives.
    pub arrival: Instant,
    /// When it must have been sent.
    pub deadline: Instant,
    /// Bytes on the wire.
    pub size: Bytes,
    /// The frames before it in the same stream that it needs, all of which are present.
    pub refs: References,
}

/// A bound on the best possible schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// No schedule makes more frames decodable than this.
    pub decodable: f64,
    /// Frames in all.
    pub frames: usize,
}

impl Bound {
    /// The bound as a share of all frames; 1 if there are none.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.frames == 0 { 1.0 } else { self.decodable / self.frames as f64 }
    }
}

const STEPS: u32 = 300;
const SLOTS_MAX: u64 = 4096;
/// Slots are no finer than this part of the shortest time from arrival to deadline.
const FINEST: u64 = 50;
/// The size of the price steps, relative to the price at which all frames together are worth their
/// bytes: first and last.
const MOVES: [f64; 2] = [0.1, 0.002];
/// How much dearer than the cheapest a slot may be to be bought as well, relative to the highest
/// price: first and last. At half of that the exponential function is still far from the limits of
/// its type.
const SOFT: [f64; 2] = [0.05, 1.0 / 1200.0];

struct Priced {
    slots: Range<usize>,
    size: f64,
    needs: Option<usize>,
}

/// Bounds the number of frames that can be decodable on time over a link of `rate` whose pacer
/// grants `burst`. `O(steps * (frames + slots) * log(slots per frame))`.
#[must_use]
pub fn decodable_bound(streams: &[Vec<OfflineFrame>], rate: Bitrate, burst: Bytes) -> Bound {
    decodable_bound_over(streams, |from, to| rate * to.since(from), burst)
}

/// The same over a link that `carries` so many bytes from one instant to another.
#[must_use]
pub fn decodable_bound_over(
    streams: &[Vec<OfflineFrame>],
    carries: impl Fn(Instant, Instant) -> Bytes,
    burst: Bytes,
) -> Bound {
    let frames: usize = streams.iter().map(Vec::len).sum();
    let bytes: f64 = streams.iter().flatten().map(|f| f.size.0 as f64).sum();
    let unlimited = Bound { decodable: frames as f64, frames };
    let borders = borders(streams);
    if borders.len() < 2 || bytes == 0.0 {
        return unlimited;
    }
    let priced: Vec<Vec<Priced>> = streams.iter().map(|stream| priced(stream, &borders)).collect();
    let longest = priced.iter().flatten().map(|f| f.slots.len()).max().unwrap_or(1);
    // A byte more than is carried whole: what is rounded off must not make the bound too low.
    let carried = |slot: &[u64]| (carries(Instant(slot[0]), Instant(slot[1])).0 + 1) as f64;
    let capacity = borders.windows(2).map(carried);
    let mut dual = Dual::new(capacity.collect(), burst.0 as f64, longest);
    let unit = frames as f64 / bytes;
    let mut price = vec![unit; dual.capacity.len()];
    let mut best = unlimited.decodable;
    let (mut slope, mut mean, mut square) =
        (vec![0.0; price.len()], vec![0.0; price.len()], vec![1.0; price.len()]);
    for step in 0..STEPS {
        let part = f64::from(step) / f64::from(STEPS);
        let now = |[first, last]: [f64; 2]| first * f64::powf(last / first, part);
        best = best.min(dual.at(&price, &priced, now(SOFT), &mut slope));
        for (at, p) in price.iter_mut().enumerate() {
            mean[at] += 0.1 * (slope[at] - mean[at]);
            square[at] += 0.01 * (slope[at].powi(2) - square[at]);
            *p = (*p - unit * now(MOVES) * mean[at] / (square[at].sqrt() + 1e-3)).max(0.0);
        }
    }
    // Frames are whole; the addend is far above the error of the sums.
    Bound { decodable: (best + 1e-6).floor(), frames }
}

/// Where slots begin and end: at arrivals and deadlines of frames, except those too near to the one
/// before.
fn borders(streams: &[Vec<OfflineFrame>]) -> Vec<u64> {
    let all = || streams.iter().flatten();
    let mut times: Vec<u64> = all().flat_map(|f| [f.arrival.0, f.deadline.0]).collect();
    times.sort_unstable();
    let (Some(&begin), Some(&end)) = (times.first(), times.last()) else { return Vec::new() };
    let patience = all().map(|f| f.deadline.since(f.arrival).0).min().unwrap_or(0);
    let finest = (patience / FINEST).max((end - begin) / SLOTS_MAX + 1);
    let mut borders = vec![begin];
    for time in times {
        if time >= borders[borders.len() - 1] + finest {
            borders.push(time);
        }
    }
    if borders[borders.len() - 1] < end {
        borders.push(end);
    }
    borders
}

/// A figure for each run of slots whose length is a power of two: by that power, and by its first
/// slot.
type Runs = Vec<Vec<f64>>;

/// The runs that make up a range of slots.
fn runs_of(slots: &Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let Range { mut start, end } = *slots;
    std::iter::from_fn(move || {
        let power = (end - start).checked_ilog2()? as usize;
        start += 1 << power;
        Some((power, start - (1 << power)))
    })
}

/// Computes the figures of all runs from those of single slots.
fn join(runs: &mut Runs, both: impl Fn(f64, f64) -> f64) {
    for power in 1..runs.len() {
        let (shorter, longer) = runs.split_at_mut(power);
        let (shorter, half) = (&shorter[power - 1], 1 << (power - 1));
        for (run, halves) in longer[0].iter_mut().zip(0..shorter.len().saturating_sub(half)) {
            *run = both(shorter[halves], shorter[halves + half]);
        }
    }
}

/// The worth of all that can be bought, and how that depends on the prices.
struct Dual {
    /// Of each slot, in bytes.
    capacity: Vec<f64>,
    burst: f64,
    cheapest: Runs,
    /// How strongly each slot attracts the frames that may buy in it.
    pull: Runs,
    /// The bytes bought in each run, for a pull of one.
    bought: Runs,
}

impl Dual {
    fn new(capacity: Vec<f64>, burst: f64, longest: usize) -> Self {
        let runs = vec![vec![0.0; capacity.len()]; longest.ilog2() as usize + 1];
        Self { capacity, burst, cheapest: runs.clone(), pull: runs.clone(), bought: runs }
    }

    /// The dual at these prices, and its slope in each, as a share of the slot.
    fn at(&mut self, price: &[f64], streams: &[Vec<Priced>], soft: f64, slope: &mut [f64]) -> f64 {
        let highest = price.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        self.cheapest[0].copy_from_slice(price);
        for (pull, p) in self.pull[0].iter_mut().zip(price) {
            *pull = ((0.5 - p / highest) / soft).exp();
        }
        join(&mut self.cheapest, f64::min);
        join(&mut self.pull, |a, b| a + b);
        self.bought.iter_mut().for_each(|runs| runs.fill(0.0));
        let mut dual: f64 = streams.iter().map(|stream| self.earn(stream)).sum();
        for power in (1..self.bought.len()).rev() {
            let (shorter, longer) = self.bought.split_at_mut(power);
            let (shorter, half) = (&mut shorter[power - 1], 1 << (power - 1));
            for (halves, run) in (0..shorter.len().saturating_sub(half)).zip(&longer[0]) {
                shorter[halves] += run;
                shorter[halves + half] += run;
            }
        }
        let mut before = 0.0;
        for (at, &p) in price.iter().enumerate() {
            // A bucket of `burst` adds at most one burst to each run of slots above a price level.
            dual += p * self.capacity[at] + (p - before).max(0.0) * self.burst;
            let rise = ((p - before) / (soft * highest)).clamp(0.0, 1.0) * self.burst;
            slope[at] = self.capacity[at] - self.bought[0][at] * self.pull[0][at] + rise;
            if at > 0 {
                slope[at - 1] -= rise;
            }
            before = p;
        }
        slope.iter_mut().zip(&self.capacity).for_each(|(slope, capacity)| *slope /= capacity);
        dual
    }

    /// The profit of the best closed set of a stream's frames; adds the bytes that it would buy.
    fn earn(&mut self, stream: &[Priced]) -> f64 {
        let alone = |f: &Priced| {
            let prices = runs_of(&f.slots).map(|(power, at)| self.cheapest[power][at]);
            1.0 - f.size * prices.fold(f64::MAX, f64::min)
        };
        let own: Vec<f64> = stream.iter().map(alone).collect();
        let mut gain = own.clone();
        // Frames that need a frame come after it: one backward pass sums what it carries.
        for (i, f) in stream.iter().enumerate().rev() {
            if let Some(parent) = f.needs {
                gain[parent] += gain[i].max(0.0);
            }
        }
        let mut earned = 0.0;
        for (i, f) in stream.iter().enumerate() {
            if gain[i] <= 0.0 || f.needs.is_some_and(|parent| gain[parent] <= 0.0) {
                gain[i] = 0.0;
                continue;
            }
            earned += own[i];
            let pull: f64 = runs_of(&f.slots).map(|(power, at)| self.pull[power][at]).sum();
            for (power, at) in runs_of(&f.slots) {
                self.bought[power][at] += f.size / pull;
            }
        }
        earned
    }
}

/// For each frame the one of its references below which most others lie: as a rule that one needs
/// all the others.
fn tree(stream: &[OfflineFrame]) -> Vec<Option<usize>> {
    let mut depths = vec![0_u32; stream.len()];
    let mut needs = Vec::with_capacity(stream.len());
    for (at, frame) in stream.iter().enumerate() {
        let before = frame.refs.distances().filter_map(|back| at.checked_sub(back.into()));
        let deepest = before.max_by_key(|&to| (depths[to], to));
        depths[at] = deepest.map_or(0, |to| depths[to] + 1);
        needs.push(deepest);
    }
    needs
}

/// A stream's frames, their times widened to whole slots.
fn priced(stream: &[OfflineFrame], borders: &[u64]) -> Vec<Priced> {
    let priced = |(f, needs): (&OfflineFrame, Option<usize>)| {
        let from = borders.partition_point(|&border| border <= f.arrival.0) - 1;
        let from = from.min(borders.len() - 2);
        let to = borders.partition_point(|&border| border < f.deadline.0).max(from + 1);
        Priced { slots: from..to, size: f.size.0 as f64, needs }
    };
    stream.iter().zip(tree(stream)).map(priced).collect()
}

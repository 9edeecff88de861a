//! The offline bound: no scheduler, knowing everything in advance, can make more frames
//! decodable on time over a link of this rate.
//!
//! Choosing frames so that all make their deadlines and all have their references is NP-hard
//! (it holds the knapsack problem), so this is an upper bound, not a schedule: the Lagrangian
//! dual. Put a price on a byte in each interval of time. Whoever pays for capacity at these
//! prices, and is paid 1 for each decodable frame, would take in each group of pictures the best
//! set closed under references, each frame at the cheapest price between its arrival and its
//! deadline (of a frame's references the one that itself needs most is held against it, so that
//! they make a tree; to ask for fewer keeps the bound one); what that earns, plus what the whole link is worth, bounds what any schedule can
//! earn, at *every* vector of prices (weak duality). Subgradient steps look for the prices that
//! make it least. Offline and for printing, hence floating point.

use selvedge_data_stream::References;
use selvedge_units::{Bitrate, Bytes, Instant};

/// A frame as the bound sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfflineFrame {
    /// When it comes.
    pub arrival: Instant,
    /// When it must have been sent.
    pub deadline: Instant,
    /// Bytes on the wire.
    pub size: Bytes,
    /// What it needs of the frames before it in the same stream, which are all there.
    pub refs: References,
}

/// What is known of the best that can be done.
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

const STEPS: usize = 400;
const SLOTS_MAX: usize = 4096;

struct Priced {
    slots: core::ops::Range<usize>,
    size: f64,
    needs: Option<usize>,
}

/// Bounds the number of frames that can be decodable on time over a link of `rate` whose pacer
/// grants `burst`. `O(steps * frames * slots per frame)`.
#[must_use]
pub fn decodable_bound(streams: &[Vec<OfflineFrame>], rate: Bitrate, burst: Bytes) -> Bound {
    let frames: usize = streams.iter().map(Vec::len).sum();
    let all = || streams.iter().flatten();
    let begin = all().map(|f| f.arrival.0).min().unwrap_or(0);
    let end = all().map(|f| f.deadline.0).max().unwrap_or(0);
    let unlimited = Bound { decodable: frames as f64, frames };
    if frames == 0 || end <= begin || rate.0 == 0 {
        return unlimited;
    }
    // Ten slots to the shortest patience: coarser slots let a frame use capacity from just
    // outside its time (still a bound), finer ones slow the search down.
    let patience = all().map(|f| f.deadline.since(f.arrival).0).min().unwrap_or(0);
    let slot_ns = (patience / 10).max((end - begin) / SLOTS_MAX as u64 + 1);
    let slots = ((end - begin) / slot_ns + 1) as usize;
    let slot_of = |at: Instant| ((at.0.saturating_sub(begin)) / slot_ns) as usize;
    let priced: Vec<Vec<Priced>> = streams
        .iter()
        .map(|stream| {
            let needs = tree(stream);
            stream.iter().zip(needs).map(|(f, needs)| priced(f, needs, slot_of, slots)).collect()
        })
        .collect();

    let capacity = rate.0 as f64 / 8.0 * slot_ns as f64 / 1e9;
    let bytes: f64 = all().map(|f| f.size.0 as f64).sum();
    let start = frames as f64 / bytes;
    let mut price = vec![start; slots];
    let mut used = vec![0.0; slots];
    let mut best = unlimited.decodable;
    // How far below the best known the optimum is hoped to lie: halved when hope fails.
    let mut hoped = best * 0.2;
    let mut failed = 0;
    for _ in 0..STEPS {
        used.fill(0.0);
        let earned: f64 = priced.iter().map(|stream| earn(stream, &price, &mut used)).sum();
        let worth: f64 = price.iter().map(|p| p * capacity).sum();
        // A bucket of `burst` adds at most one burst to each run of slots above a price level.
        let rises: f64 =
            (0..slots).map(|i| (price[i] - if i == 0 { 0.0 } else { price[i - 1] }).max(0.0)).sum();
        let dual = earned + worth + rises * burst.0 as f64;
        let target = best - hoped;
        if dual < best - hoped * 0.1 {
            failed = 0;
        } else {
            failed += 1;
        }
        best = best.min(dual);
        if failed >= 12 {
            hoped = (hoped * 0.5).max(frames as f64 * 1e-5);
            failed = 0;
        }
        let norm: f64 = used.iter().map(|u| (capacity - u).powi(2)).sum();
        if norm == 0.0 {
            break;
        }
        let step = (dual - target) / norm;
        for (p, u) in price.iter_mut().zip(&used) {
            *p = (*p - step * (capacity - u)).max(0.0);
        }
    }
    Bound { decodable: best.min(frames as f64), frames }
}

/// For each frame the one of its references below which most others lie: as a rule that needs all the
/// others.
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

fn priced(
    f: &OfflineFrame,
    needs: Option<usize>,
    slot_of: impl Fn(Instant) -> usize,
    slots: usize,
) -> Priced {
    let from = slot_of(f.arrival).min(slots - 1);
    let to = slot_of(f.deadline).min(slots - 1);
    Priced { slots: from..to.max(from) + 1, size: f.size.0 as f64, needs }
}

/// What the best closed set of a stream's frames earns at these prices; adds to `used` the bytes
/// that it would buy, in the slots where it would buy them.
fn earn(stream: &[Priced], price: &[f64], used: &mut [f64]) -> f64 {
    let mut gain = vec![0.0; stream.len()];
    let mut cheapest = vec![0; stream.len()];
    for (i, f) in stream.iter().enumerate() {
        let slot = f.slots.clone().min_by(|&a, &b| price[a].total_cmp(&price[b]));
        cheapest[i] = slot.unwrap_or(f.slots.start);
        gain[i] = 1.0 - f.size * price[cheapest[i]];
    }
    let own = gain.clone();
    // Those that need a frame come after it: one backward pass gathers what it carries.
    for i in (0..stream.len()).rev() {
        if let Some(parent) = stream[i].needs.filter(|&p| p < i) {
            gain[parent] += gain[i].max(0.0);
        }
    }
    let mut taken = vec![false; stream.len()];
    let mut earned = 0.0;
    for (i, f) in stream.iter().enumerate() {
        taken[i] = gain[i] > 0.0 && f.needs.filter(|&p| p < i).is_none_or(|p| taken[p]);
        if taken[i] {
            earned += own[i];
            used[cheapest[i]] += f.size;
        }
    }
    earned
}

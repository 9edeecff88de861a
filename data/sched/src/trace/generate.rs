//! Traces from seeds: for tests, among them the committed vectors, and for `selvedge trace gen`.
//!
//! The same seed and options give the same trace, on every machine. The result is a [`Trace`], to be replayed
//! as it is or printed by [`Trace::json`].

mod kind;
mod random;
mod share;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use selvedge_data_stream::{Class, Contract, Late, Window};
use selvedge_units::{Bytes, Duration, Instant};

pub use kind::Kind;
use kind::{Theme, WindowKind};
pub use random::Random;
pub use share::SHARING;

use crate::replay::{Arrival, Arrivals, Trace, TraceStream};
use crate::{Discipline, StreamIndex, Tree};

/// The requested properties; `None`: the seed decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenerateOptions {
    /// The source of all random choices.
    pub seed: u64,
    /// The order in which streams are served.
    pub discipline: Option<Discipline>,
    /// The feature that the trace is to show.
    pub kind: Option<Kind>,
    /// The number of streams; at least 1.
    pub streams: Option<u32>,
    /// The number of slots.
    pub ticks: Option<u64>,
    /// The requested weights, of streams and of nodes, are from 1 to this.
    pub weight_max: Option<u32>,
    /// Each stream is of one of these classes; a class that is listed twice gets twice as many. None listed:
    /// the seed decides.
    pub classes: Vec<Class>,
    /// The number of inner nodes in the tree, at most [`Tree::NODES_MAX`].
    pub nodes: Option<u32>,
    /// The number of slots between two mappings of the flat approximation; 0: exact sharing.
    pub remap: Option<u64>,
}

impl GenerateOptions {
    /// The options of this seed, without requests.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }
}

/// The trace with these options. The same seed and options give the same trace. O(streams x ticks), or
/// O(streams) for those without a list of arrivals.
#[must_use]
pub fn trace(wanted: &GenerateOptions) -> Trace {
    // Choices left to the seed are drawn from numbers of their own: a request does not change the rest.
    let mut choice = Random::new(!wanted.seed);
    let (discipline, kind) = (choice.pick(&Discipline::ALL), choice.pick(&Kind::ALL));
    let discipline = wanted.discipline.unwrap_or(discipline);
    let theme = wanted.kind.unwrap_or(kind).theme();
    let mut random = Random::new(wanted.seed);
    let count = match wanted.streams {
        Some(streams) => u64::from(streams.max(1)),
        None if theme.streams > 0 => theme.streams,
        None if theme.adversarial => random.within(4, 12),
        None => random.within(2, 7),
    };
    let streams: Vec<TraceStream> = if theme.adversarial {
        adversarial(&mut random, discipline, count)
    } else {
        (0..count).map(|n| stream(&mut random, &theme, n, count)).collect()
    };
    let ticks = match &theme {
        Theme { extreme: true, .. } => 24,
        Theme { adversarial: true, .. } => 40 * count,
        _ => random.within(30, 60),
    };
    let ticks = wanted.ticks.unwrap_or(ticks);
    let arrivals = if theme.backlogged {
        Arrivals::Backlogged
    } else {
        Arrivals::Listed(arrivals(&mut random, &theme, &streams, ticks))
    };
    let mut trace = Trace { discipline, ticks, streams, tree: Tree::default(), arrivals };
    if SHARING.contains(&discipline) {
        share::share(&mut random, &theme, &mut trace);
    }
    share::wishes(wanted, &mut trace);
    trace
}

fn id(n: u64) -> String {
    match u32::try_from(n + 10).ok().and_then(|digit| char::from_digit(digit, 36)) {
        Some(letter) => letter.to_string(),
        None => format!("s{n}"),
    }
}

fn stream(random: &mut Random, theme: &Theme, n: u64, count: u64) -> TraceStream {
    let period = match theme {
        Theme { ties: true, .. } => 4,
        Theme { extreme: true, .. } => {
            random.pick(&[1, 2, 3, u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 53])
        }
        _ => random.within(1, 2 * count),
    };
    let window = match theme {
        Theme { window: Some(WindowKind::None), backlogged: true, .. } => (0, 0),
        Theme { window: Some(WindowKind::None), .. } if !random.one_in(3) => (0, 0),
        Theme { window: Some(WindowKind::Half), .. } => random.pick(&[(1, 2), (2, 4), (3, 6)]),
        Theme { window: Some(WindowKind::Lossless), .. } => (0, random.within(1, 4) as u16),
        Theme { ties: true, .. } => random.pick(&[(1, 2), (2, 4), (0, 2), (0, 3)]),
        Theme { extreme: true, .. } => random.pick(&[
            (0, 65535),
            (0, 65534),
            (65535, 65535),
            (65534, 65535),
            (65533, 65534),
            (1, 65535),
            (1, 65534),
            (1, 1),
        ]),
        _ => {
            let y = random.within(1, 6);
            (random.within(0, y) as u16, y as u16)
        }
    };
    let first_deadline = match theme {
        Theme { ties: true, .. } => None,
        Theme { extreme: true, .. } => {
            Some(random.pick(&[0, 1, 5, u64::MAX - 2, u64::MAX - 1, u64::MAX]))
                .filter(|_| random.one_in(2))
        }
        _ => Some(random.within(1, 2 * count)).filter(|_| random.one_in(3)),
    };
    let priority = if random.one_in(2) { 0 } else { random.within(0, 4) as i32 - 2 };
    let late = theme.late.unwrap_or_else(|| random.one_in(2));
    let work_conserving = !theme.paced || random.one_in(3);
    let lowest = theme.extreme && random.one_in(4);
    let weight = if theme.weighted { random.pick(&[1, 1, 2, 3, 7, 100, u32::MAX]) } else { 1 };
    let (lose, of) = window;
    let contract = Contract {
        late: if late { Late::Send } else { Late::Drop },
        work_conserving,
        priority: if lowest { i32::MIN } else { priority },
        weight,
        ..Contract::new(Duration(period), Window { lose, of })
    };
    TraceStream { id: id(n), contract, first_deadline: first_deadline.map(Instant) }
}

/// Streams that need less than a quarter of the link together, one of which takes the whole link. Under the
/// disciplines by deadline first, that stream is due in every slot though it may lose nearly all frames.
/// Under the one by window first, it may lose nothing though it is hardly ever due. The others then miss
/// their promised service.
fn adversarial(random: &mut Random, discipline: Discipline, count: u64) -> Vec<TraceStream> {
    let others = count.saturating_sub(1).max(1);
    let greedy_place = random.within(0, count - 1);
    let stretch = random.within(8, 16);
    let most = random.within(50, 200) as u16;
    let other = (stretch * others, Window { lose: 0, of: 1 });
    let greedy = if discipline == Discipline::Dwcs98 {
        // Of windows without a loss the longest goes first.
        (64 * stretch, Window { lose: 0, of: u16::MAX - most })
    } else {
        (1, Window { lose: most - 1, of: most })
    };
    let streams = (0..count).map(|n| {
        let (period, window) = if n == greedy_place { greedy } else { other };
        let contract = Contract::new(Duration(period), window);
        TraceStream { id: id(n), contract, first_deadline: None }
    });
    streams.collect()
}

/// Bursts and gaps: enough frames that queues build up, and sometimes run dry.
fn arrivals(
    random: &mut Random,
    theme: &Theme,
    streams: &[TraceStream],
    ticks: u64,
) -> Vec<Arrival> {
    let mut listed = Vec::new();
    for at in (0..ticks).map(Instant) {
        for (stream, index) in streams.iter().zip(0..) {
            let every = stream.contract.period.0.min(8);
            if random.next().is_multiple_of(every + 1) {
                let burst = if random.one_in(6) { random.within(2, 4) } else { 1 };
                for _ in 0..burst {
                    let size = if theme.weighted { random.within(40, 1500) } else { 1000 };
                    listed.push(Arrival { at, stream: StreamIndex(index), size: Bytes(size) });
                }
            }
        }
    }
    listed
}

//! Random traces for the hardware, from a seed.

use selvedge_data_sched::replay::{Arrival, Arrivals, Trace, TraceStream};
use selvedge_data_sched::{Discipline, StreamIndex, Tree};
use selvedge_data_stream::{Contract, Late, Window, Windows};
use selvedge_units::{Bytes, Duration, Instant};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A trace for at most so many slots: backlogged or with arrivals, ties or none, paced or not,
/// windows small and at the ends of their range, first deadlines long past or far ahead.
pub(crate) fn trace(seed: u64, slots: usize) -> Trace {
    let mut random = Random(seed);
    let count = match random.below(3) {
        0 => slots,
        _ => 1 + random.below(slots as u64) as usize,
    };
    let ties = random.one_in(3);
    let extreme = random.one_in(5);
    let windowless = random.one_in(8);
    let late = if random.one_in(3) { Some(random.one_in(2)) } else { None };
    let ticks = if random.one_in(8) { 400 + random.below(1200) } else { random.below(120) };
    let streams: Vec<TraceStream> = (0..count)
        .map(|n| {
            let mut stream = stream(&mut random, count as u64, ties, extreme);
            if windowless {
                stream.contract.windows = Windows::Whole(Window::NONE);
            }
            if let Some(send) = late {
                stream.contract.late = if send { Late::Send } else { Late::Drop };
            }
            stream.id = format!("s{n}");
            stream
        })
        .collect();
    let arrivals = if random.one_in(3) {
        Arrivals::Backlogged
    } else {
        Arrivals::Listed(arrivals(&mut random, &streams, ticks))
    };
    let edf = windowless && random.one_in(2);
    let discipline = if edf { Discipline::Edf } else { Discipline::Dwcs };
    Trace { discipline, ticks, streams, tree: Tree::default(), arrivals }
}

fn stream(random: &mut Random, count: u64, ties: bool, extreme: bool) -> TraceStream {
    let period = match random.below(6) {
        _ if ties => count.max(2),
        0 if extreme => random.pick(&[1, 200, 5000, 32767]),
        0 => 1,
        _ => 1 + random.below(2 * count),
    };
    let y = 1 + random.below(6);
    let small = (random.below(y + 1), y);
    let (x, y) = match random.below(6) {
        0 => (0, 0),
        1 => random.pick(&[(1, 2), (2, 4), (3, 6), (0, 2), (0, 3)]),
        2 if extreme => random.pick(&[(0, 255), (254, 255), (255, 255), (1, 255), (127, 254)]),
        _ => small,
    };
    let window = Window::new(x as u16, y as u16).expect("x <= y");
    let mut contract = Contract::new(Duration(period), window);
    contract.late = if random.one_in(2) { Late::Send } else { Late::Drop };
    contract.work_conserving = !random.one_in(3);
    let first_deadline = match random.below(8) {
        0 | 1 => Some(Instant(random.below(2 * count))),
        2 if extreme => Some(Instant(random.pick(&[0, 1, 32767, 32766, 1000]))),
        _ => None,
    };
    TraceStream { id: String::new(), contract, first_deadline }
}

/// Bursts and gaps.
fn arrivals(random: &mut Random, streams: &[TraceStream], ticks: u64) -> Vec<Arrival> {
    let mut listed = Vec::new();
    let sparse = random.one_in(3);
    for at in 0..ticks {
        for (index, stream) in (0..).zip(streams) {
            let every = stream.contract.period.0.min(8) * if sparse { 4 } else { 1 };
            if random.below(every + 1) == 0 {
                let burst = if random.one_in(6) { 2 + random.below(3) } else { 1 };
                let (at, stream, size) = (Instant(at), StreamIndex(index), Bytes(1000));
                listed.extend((0..burst).map(|_| Arrival { at, stream, size }));
            }
        }
    }
    listed
}

//! How well blocks are ordered, and what a wrong order costs: the partial block beside the sort.
//!
//! The paper's block comes from log2 N passes of N/2 compares. That is too few to sort: only the
//! first and the last place are sure. Here random sets of heads go through the simulated hardware,
//! and each block is sent out frame by frame, one slot of time each, as the paper proposes.

use core::fmt;

use serde::Serialize;

use crate::design::{Design, Routing, Slots};
use crate::protocol::order_request;
use crate::simulator::{Simulator, SimulatorError};

/// What blocks of one kind were like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlockQuality {
    /// Which hardware.
    pub slots: Slots,
    /// Which order.
    pub routing: Routing,
    /// How many blocks there were.
    pub blocks: usize,
    /// In how many the first place was right.
    pub first_right: usize,
    /// In how many the last place was right.
    pub last_right: usize,
    /// How many were in order from end to end.
    pub sorted: usize,
    /// Pairs in the wrong order, in all blocks together.
    pub inversions: u64,
    /// Frames sent, in all blocks together; every block could have made all its deadlines.
    pub frames: u64,
    /// How many of them missed their deadlines in the order of the block.
    pub missed: u64,
}

/// The design that makes blocks of one kind.
#[must_use]
pub const fn design(slots: Slots, routing: Routing) -> Design {
    Design::plain(slots, routing)
}

/// Orders `blocks` random sets of heads and sends each block from slot 0 on. The deadlines of a
/// block are a random permutation of 1, 2, ... N, each `slack` slots later with even odds: so a
/// sorted block makes every deadline, with no slot to spare if `slack` is 0. Windows are random.
///
/// # Errors
/// [`SimulatorError`]; also if the hardware returns what is no permutation of its slots.
pub fn measure(
    simulator: &Simulator,
    blocks: usize,
    slack: u16,
    seed: u64,
) -> Result<BlockQuality, SimulatorError> {
    let Design { slots, routing, .. } = simulator.design();
    let n = slots.count();
    let mut random = Random(seed);
    let sets: Vec<Vec<(u16, u8, u8)>> =
        (0..blocks).map(|_| random_heads(&mut random, n, slack)).collect();
    let answer = simulator.ask(&order_request(false, &sets))?;
    let mut quality = BlockQuality {
        slots,
        routing,
        blocks,
        first_right: 0,
        last_right: 0,
        sorted: 0,
        inversions: 0,
        frames: (blocks * n) as u64,
        missed: 0,
    };
    let ordered = answer.chunks_exact(n);
    if ordered.len() != blocks || !ordered.remainder().is_empty() {
        return Err(simulator.garbled("its answer has another length than was asked for"));
    }
    for (heads, block) in sets.iter().zip(ordered) {
        let mut seen = block.to_vec();
        seen.sort_unstable();
        if !seen.iter().enumerate().all(|(index, &id)| usize::from(id) == index) {
            return Err(simulator.garbled("a block is no permutation of the slots"));
        }
        quality.add(heads, block);
    }
    Ok(quality)
}

impl BlockQuality {
    fn add(&mut self, heads: &[(u16, u8, u8)], block: &[u8]) {
        let mut right: Vec<u8> = block.to_vec();
        right.sort_by(|&a, &b| table_2(heads, a, b));
        self.first_right += usize::from(block.first() == right.first());
        self.last_right += usize::from(block.last() == right.last());
        self.sorted += usize::from(block == right);
        for (place, &a) in block.iter().enumerate() {
            let later = &block[place + 1..];
            let wrong = later.iter().filter(|&&b| table_2(heads, a, b).is_gt()).count();
            self.inversions += wrong as u64;
            let finished = place as u64 + 1;
            self.missed += u64::from(finished > u64::from(heads[usize::from(a)].0));
        }
    }
}

/// Table 2 for frames that all arrived together.
fn table_2(heads: &[(u16, u8, u8)], a: u8, b: u8) -> core::cmp::Ordering {
    let (ad, ax, ay) = heads[usize::from(a)];
    let (bd, bx, by) = heads[usize::from(b)];
    let fraction = (u32::from(ax) * u32::from(by)).cmp(&(u32::from(bx) * u32::from(ay)));
    let window = match (ax, bx) {
        (0, 0) => by.cmp(&ay),
        (0, _) | (_, 0) => ax.cmp(&bx),
        _ => fraction.then(ax.cmp(&bx)),
    };
    ad.cmp(&bd).then(window).then(a.cmp(&b))
}

fn random_heads(random: &mut Random, n: usize, slack: u16) -> Vec<(u16, u8, u8)> {
    let mut deadlines: Vec<u16> = (1..=n as u16).collect();
    for last in (1..n).rev() {
        deadlines.swap(last, random.below(last as u64 + 1) as usize);
    }
    deadlines
        .into_iter()
        .map(|deadline| {
            let y = random.below(9) as u8;
            let x = random.below(u64::from(y) + 1) as u8;
            (deadline + slack * random.below(2) as u16, x, y)
        })
        .collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The heading over [`BlockQuality`] lines.
pub const HEADING: &str =
    "slots  block          first right  last right   sorted  inversions a block  deadlines missed";

impl fmt::Display for BlockQuality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.blocks.max(1) as f64;
        let share = |count: usize| 100.0 * count as f64 / blocks;
        write!(
            f,
            "{:>5}  {:<13} {:>9.1} %  {:>8.1} % {:>6.1} % {:>19.2} {:>15.1} %",
            self.slots.count(),
            self.routing.name(),
            share(self.first_right),
            share(self.last_right),
            share(self.sorted),
            self.inversions as f64 / blocks,
            100.0 * self.missed as f64 / self.frames.max(1) as f64,
        )
    }
}

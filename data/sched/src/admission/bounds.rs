//! Delay bounds in closed form: `fifo`, and the fair disciplines by the rate that their weights reserve.
//!
//! `g = w / W` is a stream's reserved share of the link, `W` the sum of all weights; in a tree it is the
//! product of these fractions over the levels. The fair bounds hold for streams that need no more than `g`;
//! they are sufficient, not necessary.

use alloc::vec::Vec;

use super::found::Deadlines;
use super::set::{BYTE, Job, Set};
use super::share::gcd;
use super::{Load, Policy, Service, Unproved};
use crate::Tree;

/// `fifo`: one frame of every stream at once, the stream's own last (Cruz, IEEE Transactions on Information
/// Theory 37, 1991). A stream with a higher index must have its frame arrive one unit of time earlier to go
/// first, and one unit of it is served by then. Exact for sporadic arrivals. `mild`: all arrive at the same
/// instant, so only lower indexes go first. O(N).
pub(super) fn fifo(set: &Set<'_>, mild: bool) -> Deadlines {
    let together = mild && set.pattern.together();
    let Some(all) = set.jobs().try_fold(0_u128, |sum, job| sum.checked_add(job.cost)) else {
        return Deadlines::Unknown;
    };
    let mut ahead = 0_u128;
    for (index, job) in set.jobs().enumerate() {
        ahead += job.cost;
        let last = index + 1 == set.len();
        let bound = if together || last { ahead } else { all - 1 };
        if bound > job.deadline {
            let by = bound - job.deadline;
            return Deadlines::Late { stream: index, by, deadline: job.deadline };
        }
    }
    Deadlines::Kept
}

/// The first stream whose deadline is earlier than its bound, or whose weight is too small. O(N).
pub(super) fn fair(set: &Set<'_>) -> Option<Unproved> {
    let reserve = Reserve::new(set);
    let Some(all) = set.jobs().try_fold(0_u128, |sum, job| sum.checked_add(job.cost)) else {
        return Some(Unproved::Effort);
    };
    let longest = set.jobs().map(|job| job.cost).max()?;
    let earn = |job: &Job| job.weight * u128::from(set.quantum.0) * BYTE;
    let round: Option<u128> = set.jobs().try_fold(0_u128, |sum, job| {
        job.weight.checked_mul(u128::from(set.quantum.0))?.checked_mul(BYTE)?.checked_add(sum)
    });
    let mut levels = None;
    for (stream, load) in set.loads().enumerate() {
        let job = set.job(load);
        // The reserved rate suffices if a period is at least this long.
        let Some(alone) = reserve.alone(load, &job) else { return Some(Unproved::Effort) };
        if alone > job.period {
            return Some(Unproved::Weight(stream));
        }
        let bound = match set.policy {
            // Parekh and Gallager, IEEE/ACM Transactions on Networking 1, 1993: a packet ends at
            // most one longest packet after its end in the fluid model.
            Policy::Wfq | Policy::Hwfq => alone.checked_add(longest),
            // Goyal, Vin and Cheng, SIGCOMM 1996: expected arrival, one packet of every other
            // stream, its own.
            Policy::Sfq => Some(all),
            // Stiliadis and Varma, IEEE/ACM Transactions on Networking 6, 1998: latency
            // 3F - 2Q, F the quanta of a round, Q its own, no smaller than its largest frame.
            _ => {
                let Some(round) = round else { return Some(Unproved::Effort) };
                let own = earn(&job);
                if matches!(load.service, Service::Time(_)) || own < job.cost {
                    return Some(Unproved::Quantum(stream));
                }
                round.checked_mul(3).and_then(|three| alone.checked_add(three - 2 * own))
            }
        };
        match bound {
            None => return Some(Unproved::Effort),
            Some(_) if reserve.parent(load) > 0 => {
                // Reported only after every stream's rate was checked.
                levels = levels.or(Some(Unproved::Levels(stream)));
            }
            Some(bound) if bound > job.deadline => {
                return Some(Unproved::Bound { stream, bound: set.span(bound) });
            }
            Some(_) => {}
        }
    }
    let mapped = reserve.tree.is_some_and(|tree| tree.update().is_some());
    levels.or_else(|| mapped.then_some(Unproved::Mapped))
}

/// The rates that weights reserve on a link or in a tree: for each node, the sum of the weights that share
/// it, without nodes that have no stream. Node 0 is the link.
struct Reserve<'a> {
    tree: Option<&'a Tree>,
    sums: Vec<u128>,
}

impl<'a> Reserve<'a> {
    /// O(nodes + N).
    fn new(set: &Set<'a>) -> Self {
        let tree = set.tree.filter(|_| set.policy == Policy::Hwfq);
        let nodes = tree.map_or(&[][..], Tree::nodes);
        let mut reserve = Self { tree, sums: alloc::vec![0; nodes.len() + 1] };
        for load in set.loads() {
            let parent = reserve.parent(load);
            reserve.sums[parent] += u128::from(load.contract.weight);
        }
        for (n, node) in nodes.iter().enumerate().rev() {
            if reserve.sums[n + 1] > 0 {
                reserve.sums[node.parent as usize] += u128::from(node.weight);
            }
        }
        reserve
    }

    /// The node that a stream hangs below.
    fn parent(&self, load: &Load) -> usize {
        self.tree.map_or(0, |tree| tree.place(load.contract.parent) as usize)
    }

    /// `C / g`: the time that a frame takes at the reserved rate, rounded up once. Where 128 bits do not hold
    /// the fraction, it is rounded at that level too. `None` if they do not hold the time. O(depth).
    fn alone(&self, load: &Load, job: &Job) -> Option<u128> {
        let (mut weight, mut node) = (job.weight, self.parent(load));
        let (mut top, mut bottom) = (job.cost, 1_u128);
        loop {
            let common = gcd(self.sums[node], weight);
            let (sum, part) = (self.sums[node] / common, weight / common);
            (top, bottom) = match (top.checked_mul(sum), bottom.checked_mul(part)) {
                (Some(top), Some(bottom)) => (top, bottom),
                _ => (top.div_ceil(bottom).checked_mul(sum)?, part),
            };
            let Some(above) = node.checked_sub(1) else { return Some(top.div_ceil(bottom)) };
            let inner = self.tree?.nodes()[above];
            (weight, node) = (u128::from(inner.weight), inner.parent as usize);
        }
    }
}

//! Delay bounds in closed form: `fifo`, and the fair disciplines by what their weights reserve.
//!
//! `g = w / W` is a stream's reserved share of the link, `W` the sum of all weights. The fair
//! bounds hold for streams that need no more than `g`; they are sufficient, not necessary.

use super::judge::Deadlines;
use super::set::{BYTE, Job, Set};
use super::{Policy, Service, Unproved};

/// `fifo`: one frame of every stream at once, the stream's own last (Cruz, IEEE Transactions on
/// Information Theory 37, 1991). Where a stream has a higher index than this one, its frame must
/// come a moment earlier to go first, and a moment of it is done by then. Exact for sporadic
/// arrivals. `mild`: all come at the same moment, so only lower indexes go first. O(N).
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

/// The first stream whose deadline is below its bound, or whose weight is too small. O(N).
pub(super) fn fair(set: &Set<'_>) -> Option<Unproved> {
    let weights: u128 = set.jobs().map(|job| job.weight).sum();
    let Some(all) = set.jobs().try_fold(0_u128, |sum, job| sum.checked_add(job.cost)) else {
        return Some(Unproved::Effort);
    };
    let longest = set.jobs().map(|job| job.cost).max()?;
    let earn = |job: &Job| job.weight * u128::from(set.quantum.0) * BYTE;
    let round: Option<u128> = set.jobs().try_fold(0_u128, |sum, job| {
        job.weight.checked_mul(u128::from(set.quantum.0))?.checked_mul(BYTE)?.checked_add(sum)
    });
    for (stream, load) in set.loads().enumerate() {
        let job = set.job(load);
        // C / g, rounded up; the reserved rate suffices if a period is as long.
        let Some(work) = job.cost.checked_mul(weights) else { return Some(Unproved::Effort) };
        let alone = work.div_ceil(job.weight);
        if alone > job.period {
            return Some(Unproved::Weight(stream));
        }
        let bound = match set.policy {
            // Parekh and Gallager, IEEE/ACM Transactions on Networking 1, 1993: a packet ends at
            // most one longest packet after its end in the fluid model.
            Policy::Wfq => alone.checked_add(longest),
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
            Some(bound) if bound > job.deadline => {
                return Some(Unproved::Bound { stream, bound: set.span(bound) });
            }
            Some(_) => {}
        }
    }
    None
}

//! `edf`, and the class of that name under `mixed`: the processor demand of every interval, frames
//! not being preempted.
//!
//! For every `t`: the frames that arrive and are due within `t`, and one frame with a later deadline that has
//! just begun, must take at most `t`. Jeffay, Stanat and Martel (RTSS 1991) for deadlines equal to periods,
//! George, Rivierre and Spuri (INRIA RR-2966, 1996) for others. The test is necessary and sufficient for
//! sporadic arrivals. For periodic arrivals from a common start the blocking frame may never meet the worst
//! instant, so the test without it still finds the certain misses. Streams of later classes demand nothing,
//! but one of their frames may have begun before any deadline.

use super::found::{Deadlines, StepBudget};
use super::set::{Job, Set};
use super::share::{Ratio, Share};
use core::cmp::Ordering;
use selvedge_data_stream::Class;

/// The load must be at most 1. `mild`: only certain misses.
pub(super) fn test(set: &Set<'_>, mild: bool, effort: &mut StepBudget) -> Deadlines {
    let blocks = !(mild && set.pattern.together());
    examine(set, blocks, effort).unwrap_or(Deadlines::Unknown)
}

fn examine(set: &Set<'_>, blocks: bool, effort: &mut StepBudget) -> Option<Deadlines> {
    effort.spend(set.len())?;
    let longest = set.jobs().map(|job| job.cost - 1).max().unwrap_or(0);
    let longest = if blocks { longest } else { 0 };
    if dense_enough(set, longest) {
        return Some(Deadlines::Kept);
    }
    let horizon = horizon(set, longest, blocks, effort)?;
    // The earliest failure, so that the answer does not depend on the order of the streams.
    let mut found: Option<(u128, u128, usize)> = None;
    for (index, job) in set.jobs().enumerate().filter(|(_, job)| by_deadline(job)) {
        let mut t = job.deadline;
        while t <= horizon && found.is_none_or(|(at, ..)| t < at) {
            effort.spend(set.len())?;
            let demand = demand_until(set, t, blocks)?;
            if demand > t {
                found = Some((t, demand - t, index));
                break;
            }
            t = t.checked_add(job.period)?;
        }
    }
    Some(match found {
        None => Deadlines::Kept,
        Some((_, by, stream)) => {
            Deadlines::Late { stream, by, deadline: set.job(set.load(stream)).deadline }
        }
    })
}

const fn by_deadline(job: &Job) -> bool {
    matches!(job.class, Class::Edf)
}

/// The last instant at which the demand may exceed the time.
fn horizon(set: &Set<'_>, longest: u128, blocks: bool, effort: &mut StepBudget) -> Option<u128> {
    // Each stream whose deadline is shorter than its period has at most one frame that is due early. So the
    // demand is at most `load * t`, those frames, and the one that blocks.
    let early = |job: Job| if job.deadline < job.period { job.cost } else { 0 };
    let extra =
        set.jobs().filter(by_deadline).try_fold(longest, |sum, job| sum.checked_add(early(job)))?;
    let by_load = set
        .share_of(|class| class == Class::Edf)
        .exact()
        .and_then(|Ratio { num, den }| extra.checked_mul(den)?.checked_div(den - num));
    // Past the latest deadline nothing blocks, if there are no later classes.
    let sure = extra == longest && (!blocks || set.jobs().all(|job| by_deadline(&job)));
    let latest = set.jobs().filter(by_deadline).map(|job| job.deadline).max();
    let by_blocking = if sure { latest } else { None };
    match by_load.into_iter().chain(by_blocking).min() {
        Some(horizon) => Some(horizon),
        None => busy_period(set, longest, effort),
    }
}

/// The service that is due by `t`, the blocking frame included.
fn demand_until(set: &Set<'_>, t: u128, blocks: bool) -> Option<u128> {
    let mut demand = 0_u128;
    let mut blocking = 0;
    for job in set.jobs() {
        if job.deadline > t || !by_deadline(&job) {
            blocking = blocking.max(job.cost - 1);
        } else {
            let frames = (t - job.deadline) / job.period + 1;
            demand = demand.checked_add(frames.checked_mul(job.cost)?)?;
        }
    }
    if blocks { demand.checked_add(blocking) } else { Some(demand) }
}

/// A sufficient test in one pass: the shares over the shorter of period and deadline, and the longest
/// blocking over the earliest deadline, are at most 1 together.
fn dense_enough(set: &Set<'_>, longest: u128) -> bool {
    let density = |job: Job| Share::new(job.cost, job.period.min(job.deadline));
    let jobs = || set.jobs().filter(by_deadline);
    let dense = jobs().fold(Share::ZERO, |sum, job| sum.plus(density(job)));
    let Some(earliest) = jobs().map(|job| job.deadline).min() else { return true };
    let all = dense.plus(Share::new(longest, earliest));
    matches!(all.compare_to_one(), Some(Ordering::Less | Ordering::Equal))
}

/// The longest time that the link is busy if all frames arrive at once, after a blocking frame.
fn busy_period(set: &Set<'_>, longest: u128, effort: &mut StepBudget) -> Option<u128> {
    let mut length = 1_u128;
    loop {
        effort.spend(set.len())?;
        let mut next = longest;
        for job in set.jobs().filter(by_deadline) {
            next = next.checked_add(length.div_ceil(job.period).checked_mul(job.cost)?)?;
        }
        if next <= length {
            return Some(length);
        }
        length = next;
    }
}

//! `priority`, and the class of that name under `mixed`: response times of static priorities, frames
//! not being preempted.
//!
//! For each stream the busy period of its level: a frame of lower priority has just begun, all others arrive
//! at once. The response of every frame in it is the least fixed point of `w = B + q C + sum (floor(w / T_k)
//! + 1) C_k` (Davis, Burns, Bril and Lukkien, Real-Time Systems 35, 2007, which corrects the analysis of one
//! frame only). Equal priorities go by arrival; they count as higher, which is safe and not exact. All
//! streams of class `edf` are higher, all of class `fair` lower.

use selvedge_data_stream::Class;

use super::found::{Deadlines, StepBudget};
use super::set::{Job, Set};

/// The load must be at most 1. `mild`: only certain misses: no frame has just begun where all start together,
/// and frames of the same priority do not interfere.
pub(super) fn test(set: &Set<'_>, mild: bool, effort: &mut StepBudget) -> Deadlines {
    for index in 0..set.len() {
        if set.job(set.load(index)).class != Class::Priority {
            continue;
        }
        match level(set, index, mild, effort) {
            Some(None) => {}
            Some(Some(by)) => {
                let deadline = set.job(set.load(index)).deadline;
                return Deadlines::Late { stream: index, by, deadline };
            }
            None => return Deadlines::Unknown,
        }
    }
    Deadlines::Kept
}

/// By how much the stream's frames may be late, if they may. `None`: the test takes too long.
fn level(set: &Set<'_>, index: usize, mild: bool, effort: &mut StepBudget) -> Option<Option<u128>> {
    let own = set.job(set.load(index));
    let above = |other: usize, job: &Job| {
        other != index
            && match job.class {
                Class::Edf => true,
                Class::Priority if mild => job.priority > own.priority,
                Class::Priority => job.priority >= own.priority,
                Class::Fair => false,
            }
    };
    let started = !(mild && set.pattern.together());
    effort.spend(set.len())?;
    let is_below = |job: &Job| match job.class {
        Class::Edf => false,
        Class::Priority => job.priority < own.priority,
        Class::Fair => true,
    };
    let below = set.jobs().filter(|job| started && is_below(job));
    let blocking = below.map(|job| job.cost - 1).max().unwrap_or(0);
    let interference = |until: u128| -> Option<u128> {
        let mut sum = 0_u128;
        for (other, job) in set.jobs().enumerate() {
            if above(other, &job) {
                sum = sum.checked_add((until / job.period + 1).checked_mul(job.cost)?)?;
            }
        }
        Some(sum)
    };
    let mut start = blocking;
    let mut frame = 0_u128;
    loop {
        // Frame `frame` of the busy period arrives at `frame * T`, and starts at the fixed point.
        let ahead = blocking.checked_add(frame.checked_mul(own.cost)?)?;
        start = start.max(ahead);
        loop {
            effort.spend(set.len())?;
            let next = ahead.checked_add(interference(start)?)?;
            if next <= start {
                break;
            }
            start = next;
        }
        let end = start.checked_add(own.cost)?;
        let due = frame.checked_mul(own.period)?.checked_add(own.deadline)?;
        if end > due {
            return Some(Some(end - due));
        }
        frame += 1;
        // The busy period of the level has ended if all frames that arrived before `end` are served by then.
        if end <= frame.checked_mul(own.period)? {
            let mut pending = false;
            effort.spend(set.len())?;
            let mut came = blocking.checked_add(frame.checked_mul(own.cost)?)?;
            for (other, job) in set.jobs().enumerate() {
                if above(other, &job) {
                    let frames = end.div_ceil(job.period);
                    came = came.checked_add(frames.checked_mul(job.cost)?)?;
                }
            }
            pending |= came > end;
            if !pending {
                return Some(None);
            }
        }
    }
}

//! `mixed`: three classes on one link, each by its own test, including the interference of the others.
//!
//! `edf` streams: the demand of every interval; any frame of the later classes may have just begun.
//! `priority` streams: response times, with all `edf` streams above and the fair ones below. `fair` streams:
//! the first two classes leave a server of rate `C = 1 - r` that may fall behind it by `s + L`. Here `r` is
//! the load of the first two classes, `s` one frame of each of their streams, and `L` the longest fair frame.
//! The reason: since their queue was last empty they have been served with no pause except for one fair
//! frame, and in no interval do frames for more than `s + r t` arrive. On such a server a frame under `sfq`
//! ends within (all fair frames + `s` + `L`) / `C` of its arrival, if its stream needs no more than its
//! weight's part of `C`. This is theorem 4 of Goyal, Vin and Cheng (SIGCOMM 1996). It is sufficient, not
//! necessary; the tests of the first two classes refuse the same sets as they do alone.

use selvedge_data_stream::Class;

use super::found::{Deadlines, StepBudget, TestResult, is_ready_after_arrival, twice};
use super::set::Set;
use super::share::{Ratio, Share, gcd};
use super::{Cause, Pattern, Unproved, demand, response};

/// The load must be at most 1, and the arrivals known.
pub(super) fn assess(set: &Set<'_>, effort: &mut StepBudget) -> TestResult {
    if set.pattern == Pattern::Backlogged {
        if let Some(by) = starvation(set) {
            return TestResult::Broken(Cause::Starved(by), Share::ZERO);
        }
        // A backlog of class `priority` that does not wait for its periods competes ahead of time.
        let pushes =
            |(class, greedy): (Class, bool)| class == Class::Priority && greedy && set.len() > 1;
        if set.loads().map(|load| (load.contract.class, load.contract.work_conserving)).any(pushes)
        {
            return TestResult::Unproved(Unproved::Arrivals);
        }
    }
    let found = twice(set, |mild| match demand::test(set, mild, effort) {
        Deadlines::Kept => response::test(set, mild, effort),
        other => other,
    });
    match found {
        TestResult::Kept => fair(set).map_or(TestResult::Kept, TestResult::Unproved),
        other => other,
    }
}

/// A stream that always has a frame and never waits takes everything that earlier streams leave. By deadline
/// it takes from the later classes, by priority also from lower-ranked streams. All frames arrived at 0, so
/// the lower index goes first among equals. O(N).
fn starvation(set: &Set<'_>) -> Option<usize> {
    let rank = |index: usize| {
        let contract = &set.load(index).contract;
        match contract.class {
            Class::Edf => (0, core::cmp::Reverse(0), 0),
            Class::Priority => (1, core::cmp::Reverse(contract.priority), index),
            Class::Fair => (2, core::cmp::Reverse(0), 0),
        }
    };
    let greedy = |&index: &usize| set.load(index).contract.work_conserving;
    let by = (0..set.len()).filter(greedy).min_by_key(|&index| rank(index))?;
    (0..set.len()).any(|index| rank(index) > rank(by)).then_some(by)
}

/// The first fair stream whose bound is later than its deadline, or whose weight is too small. O(N).
fn fair(set: &Set<'_>) -> Option<Unproved> {
    let is_fair = |class: Class| class == Class::Fair;
    let jobs = || set.jobs().enumerate().filter(|(_, job)| is_fair(job.class));
    let longest = jobs().map(|(_, job)| job.cost).max()?;
    let weights: u128 = jobs().map(|(_, job)| job.weight).sum();
    let Some(Ratio { num, den }) = set.share_of(|class| !is_fair(class)).exact() else {
        return Some(Unproved::Effort);
    };
    // Something is left, since the fair streams need part of a load of at most 1.
    let left = den - num;
    // One frame of each stream; the longest fair one may go before the other classes' as well.
    let others = if num > 0 { longest } else { 0 };
    let frames = set.jobs().try_fold(others, |sum, job| sum.checked_add(job.cost));
    let bound = frames.and_then(|frames| over(frames, den, left));
    for (stream, job) in jobs() {
        if is_ready_after_arrival(set.load(stream)) {
            return Some(Unproved::OwnDelay(stream));
        }
        let part = job.weight.checked_mul(left);
        let sum = weights.checked_mul(den);
        let Some(alone) = part.zip(sum).and_then(|(part, sum)| over(job.cost, sum, part)) else {
            return Some(Unproved::Effort);
        };
        if alone > job.period {
            return Some(Unproved::Weight(stream));
        }
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

/// `time * top / bottom`, rounded up; `None` beyond 128 bits.
fn over(time: u128, top: u128, bottom: u128) -> Option<u128> {
    let common = gcd(top, bottom);
    let (top, bottom) = (top / common, bottom / common);
    let common = gcd(time, bottom);
    Some((time / common).checked_mul(top)?.div_ceil(bottom / common))
}

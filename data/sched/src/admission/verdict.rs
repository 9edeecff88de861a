//! The verdict on a whole set: first the load, which every discipline needs, then the discipline's own test.

use core::cmp::Ordering;

use selvedge_data_stream::{Window, Windows};

use super::found::{StepBudget, TestResult, is_ready_after_arrival, twice};
use super::set::Set;
use super::share::Share;
use super::{Cause, Pattern, Policy, Unproved, bounds, demand, mixed, response};

pub(super) fn assess(set: &Set<'_>, effort: &mut StepBudget) -> TestResult {
    let load = set.share_of_all();
    match load.compare_to_one() {
        Some(Ordering::Greater) => return TestResult::Broken(Cause::Overload, load.beyond_one()),
        None => return TestResult::Broken(Cause::Undecided, Share::ZERO),
        Some(_) => {}
    }
    if set.pattern == Pattern::Any {
        return TestResult::Unproved(Unproved::Arrivals);
    }
    if let Some(stream) = set.loads().position(is_ready_after_arrival)
        && matches!(
            set.policy,
            Policy::Fifo | Policy::Wfq | Policy::Sfq | Policy::Drr | Policy::Hwfq
        )
    {
        return TestResult::Unproved(Unproved::OwnDelay(stream));
    }
    match set.policy {
        Policy::Dwcs | Policy::Dwcs98 | Policy::Vds => {
            unmet(set).map_or(TestResult::Kept, TestResult::Unproved)
        }
        Policy::Edf => twice(set, |mild| demand::test(set, mild, effort)),
        Policy::Priority | Policy::Fifo => {
            if let Some(cause) = starvation(set) {
                return TestResult::Broken(cause, Share::ZERO);
            }
            if pushes(set) {
                return TestResult::Unproved(Unproved::Arrivals);
            }
            if set.policy == Policy::Fifo {
                twice(set, |mild| bounds::fifo(set, mild))
            } else {
                twice(set, |mild| response::test(set, mild, effort))
            }
        }
        Policy::Mixed => mixed::assess(set, effort),
        Policy::Wfq | Policy::Sfq | Policy::Drr | Policy::Hwfq => {
            bounds::fair(set).map_or(TestResult::Kept, TestResult::Unproved)
        }
    }
}

/// The first condition in the proofs of the window-constrained disciplines that the set does not meet. In the
/// order of the theorem: unit service, equal periods, of one slot, deadlines in phase.
fn unmet(set: &Set<'_>) -> Option<Unproved> {
    let first = set.job(set.loads().next()?);
    for (index, load) in set.loads().enumerate() {
        let job = set.job(load);
        if job.cost != first.cost {
            return Some(Unproved::UnequalService(index));
        }
        if !job.period.is_multiple_of(job.cost) {
            return Some(Unproved::SlotsDoNotDivide(index));
        }
        if set.policy != Policy::Vds && job.period != first.period {
            return Some(Unproved::UnequalPeriods(index));
        }
        if load.contract.delay.is_some() {
            return Some(Unproved::OwnDelay(index));
        }
        if matches!(load.contract.windows, Windows::PerKind(_)) {
            return Some(Unproved::WindowPerKind(index));
        }
        if set.policy == Policy::Vds && load.contract.windows == Windows::Whole(Window::NONE) {
            return Some(Unproved::NoWindow(index));
        }
        if set.policy == Policy::Dwcs98 && load.contract.work_conserving {
            return Some(Unproved::EarlyService(index));
        }
    }
    let several = |load| set.job(load).period != set.job(load).cost;
    if let Some(index) = set.loads().position(several) {
        return Some(Unproved::SeveralSlots(index));
    }
    (!set.pattern.together()).then_some(Unproved::Arrivals)
}

/// Whether frames may be ready before their period begins, and compete. These are the frames of a backlog
/// that does not wait; under `fifo` all frames of a backlog, because they have the same arrival.
fn pushes(set: &Set<'_>) -> bool {
    set.len() > 1
        && set.pattern == Pattern::Backlogged
        && (set.policy == Policy::Fifo || set.loads().any(|load| load.contract.work_conserving))
}

/// Under `priority` and `fifo`, a stream that always has a frame and never waits for its period takes
/// everything that the streams before it leave. O(N).
fn starvation(set: &Set<'_>) -> Option<Cause> {
    if !pushes(set) {
        return None;
    }
    // All arrived at 0: the lower index goes first among equals.
    let rank = |index: usize| {
        let priority =
            if set.policy == Policy::Fifo { 0 } else { set.load(index).contract.priority };
        (core::cmp::Reverse(priority), index)
    };
    let greedy = |&index: &usize| set.load(index).contract.work_conserving;
    let by = (0..set.len()).filter(greedy).min_by_key(|&index| rank(index))?;
    (0..set.len()).any(|index| rank(index) > rank(by)).then_some(Cause::Starved(by))
}

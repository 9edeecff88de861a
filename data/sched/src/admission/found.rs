//! The result of a test, and the number of steps that it may take. Each test returns it to the verdict on the
//! set.

use selvedge_data_stream::Contract;

use super::set::Set;
use super::share::Share;
use super::{Cause, Load, Unproved};

/// The result of a test.
#[derive(Clone, Copy, Debug)]
pub(super) enum TestResult {
    /// The promise is kept.
    Kept,
    /// Nothing contradicts it, but nothing proves it.
    Unproved(Unproved),
    /// The promise breaks: why, and by how much.
    Broken(Cause, Share),
}

impl TestResult {
    pub(super) const fn is_broken(&self) -> bool {
        matches!(self, Self::Broken(..))
    }
}

/// The result of a test of deadlines; a test that is not exact runs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadlines {
    Kept,
    /// The frame of this stream may end this much too late, in scaled time.
    Late {
        stream: usize,
        by: u128,
        deadline: u128,
    },
    /// The test would take too long, or numbers are too large.
    Unknown,
}

/// Elementary steps that are left. A test that runs out of them gives no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepBudget {
    pub(super) left: u64,
}

impl StepBudget {
    /// For one test of the whole set.
    pub(super) const TEST: u64 = 1 << 22;

    /// Takes `n` steps; `None` if fewer are left.
    pub(super) fn spend(&mut self, n: usize) -> Option<()> {
        self.left = self.left.checked_sub(n as u64)?;
        Some(())
    }
}

/// Runs the test for the worst arrivals first and, where it fails, the same test for certain misses. A set
/// between the two is neither proved nor refused.
pub(super) fn twice(set: &Set<'_>, mut test: impl FnMut(bool) -> Deadlines) -> TestResult {
    let worst = match test(false) {
        Deadlines::Kept => return TestResult::Kept,
        Deadlines::Unknown => return TestResult::Unproved(Unproved::Effort),
        Deadlines::Late { stream, .. } => stream,
    };
    match test(true) {
        // Only arrivals are together; a stream that waits past its arrival competes at other instants.
        Deadlines::Late { .. }
            if set.pattern.together()
                && let Some(shifted) = set.loads().position(is_ready_after_arrival) =>
        {
            TestResult::Unproved(Unproved::OwnDelay(shifted))
        }
        Deadlines::Late { stream, by, deadline } => {
            let cause = Cause::Late { stream, by: set.span(by) };
            TestResult::Broken(cause, Share::new(by, deadline))
        }
        Deadlines::Kept => TestResult::Unproved(Unproved::WorstCase(worst)),
        Deadlines::Unknown => TestResult::Unproved(Unproved::Effort),
    }
}

/// Whether the stream's frames are not ready on arrival: it waits for its period, and its delay exceeds one
/// period.
pub(super) fn is_ready_after_arrival(load: &Load) -> bool {
    let Contract { work_conserving, delay, period, .. } = load.contract;
    !work_conserving && delay.is_some_and(|delay| delay > period)
}

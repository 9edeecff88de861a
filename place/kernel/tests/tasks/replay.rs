//! Decisions about tasks replayed in unit slots, without threads: they are compared with `selvedge_data_cpu` bit
//! for bit. Also how often each rule decided, in a replay or among threads.

use selvedge_data_cpu::{Config, TaskId};
use selvedge_units::Instant;

use super::{TaskScheduler, TasksError};

/// A step of a replay in unit slots, on the first processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A task wakes.
    Wake(TaskId),
    /// A task sleeps.
    Sleep(TaskId),
    /// An event for a task.
    Raise(TaskId),
    /// A decision, and a slot of the chosen task.
    Slot,
}

/// A decision of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelDecision {
    /// The task that runs; `u32::MAX` for none, one below that for best-effort tasks.
    pub runs: u32,
    /// The order of `selvedge_data_cpu::Selected`.
    pub selected: u32,
    /// The rule's number, or 0.
    pub rule: u32,
    /// When the next decision is due.
    pub until: Option<Instant>,
}

impl TaskScheduler {
    /// Loads the scheduler for replays only, on one processor.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn replaying(config: Config) -> Result<Self, TasksError> {
        Self::load(1, config, false)
    }

    /// Makes a step of a replay; returns the decision, if it was a slot. Also returns `None` if an event
    /// found the queue full.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn step(&self, now: Instant, step: Step) -> Result<Option<KernelDecision>, TasksError> {
        let (what, task) = match step {
            Step::Wake(id) => (0_u32, id.0),
            Step::Sleep(id) => (1, id.0),
            Step::Raise(id) => (2, id.0),
            Step::Slot => (3, 0),
        };
        let mut context = [0; 40];
        context[..8].copy_from_slice(&now.0.to_ne_bytes());
        context[8..12].copy_from_slice(&what.to_ne_bytes());
        context[12..16].copy_from_slice(&task.to_ne_bytes());
        let returned = self.call("replay_step", &mut context)?;
        let word = |at: usize| {
            u32::from_ne_bytes([context[at], context[at + 1], context[at + 2], context[at + 3]])
        };
        let until = u64::from(word(32)) | u64::from(word(36)) << 32;
        let until = (until != u64::MAX).then_some(Instant(until));
        let answer = KernelDecision { runs: word(16), selected: word(20), rule: word(24), until };
        Ok((what == 3 && returned == 0).then_some(answer))
    }

    /// Sets whether best-effort tasks want to run, in a replay.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_best_effort(&self, waits: bool) -> Result<(), TasksError> {
        let mut context = [0; 40];
        context[8..12].copy_from_slice(&4_u32.to_ne_bytes());
        context[12..16].copy_from_slice(&u32::from(waits).to_ne_bytes());
        self.call("replay_step", &mut context).map(|_| ())
    }

    /// How often each of the rules 1 to 5 decided so far, in their order.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn rules(&self) -> Result<[u64; 5], TasksError> {
        let rules = crate::object::data(&self.map(".data.told")?);
        let rules = rules.map_err(|why| TasksError::Call("the rules", why))?;
        let at = |n: usize| crate::replay::number(&rules, 24 + 8 * n).map_or(0, u64::from_ne_bytes);
        Ok(std::array::from_fn(at))
    }
}

//! Tasks that the kernel's `sched_ext` schedules, as the daemon sees them. Who loads the scheduler is
//! not this crate's business: the daemon is handed a way to do so.

use selvedge_data_cpu::{Counts, Promise, Task, TaskId};

/// The scheduler in the kernel; it lives as long as this value.
pub trait InKernel: Send {
    /// Admits a task to a processor, with its process and what that will start.
    ///
    /// # Errors
    /// A sentence for people.
    fn admit(
        &mut self,
        cpu: usize,
        task: &Task,
        process: i32,
        by_events: bool,
    ) -> Result<(TaskId, Promise), String>;

    /// What of a processor is promised, in hundredths of a per cent.
    fn load(&self, cpu: usize) -> u64;

    /// Moves a task, with its processes, to another processor: its number there, and what became of
    /// it so far, which is not counted there.
    ///
    /// # Errors
    /// A sentence for people; the task stays where it was.
    fn relocate(
        &mut self,
        from: (usize, TaskId),
        to: usize,
        by_events: bool,
    ) -> Result<(TaskId, Counts), String>;

    /// Lets a task go: what became of it.
    fn remove(&mut self, cpu: usize, task: TaskId) -> Counts;
}

/// Loads the scheduler.
pub type Loads = fn() -> Result<Box<dyn InKernel>, String>;

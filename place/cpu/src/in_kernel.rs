//! Tasks that the kernel's `sched_ext` schedules, as the daemon sees them. Who loads the scheduler is
//! not this crate's business: the daemon is handed a way to do so.

use std::error::Error;

use selvedge_data_cpu::{Counts, Promise, Task, TaskId};

/// What the kernel's scheduler says that it can't do.
pub type KernelError = Box<dyn Error + Send + Sync>;

/// The scheduler in the kernel; it lives as long as this value.
pub trait InKernel: Send {
    /// Admits a task to a processor, with its process and what that will start.
    fn admit(
        &mut self,
        cpu: usize,
        task: &Task,
        process: i32,
        by_events: bool,
    ) -> Result<(TaskId, Promise), KernelError>;

    /// What of a processor is promised, in hundredths of a per cent.
    fn load(&self, cpu: usize) -> u64;

    /// Moves a task, with its processes, to another processor: its number there, and what became of
    /// it so far, which is not counted there.
    ///
    /// # Errors
    /// [`KernelError`]; the task stays where it was.
    fn relocate(
        &mut self,
        from: (usize, TaskId),
        to: usize,
        by_events: bool,
    ) -> Result<(TaskId, Counts), KernelError>;

    /// Lets a task go: what became of it.
    fn remove(&mut self, cpu: usize, task: TaskId) -> Counts;
}

/// Loads the scheduler.
pub type Loads = fn() -> Result<Box<dyn InKernel>, KernelError>;

//! Tasks that the kernel's `sched_ext` schedules, as the daemon sees them. This crate does not load the
//! scheduler: the daemon gets a function that does.

use std::error::Error;

use selvedge_data_cpu::{Counts, Promise, Task, TaskId};

/// An error of the kernel's scheduler.
pub type KernelError = Box<dyn Error + Send + Sync>;

/// The scheduler in the kernel; it lives as long as this value.
pub trait InKernel: Send {
    /// Admits a task to a processor, with its process and all that it will start.
    fn admit(
        &mut self,
        cpu: usize,
        task: &Task,
        process: i32,
        by_events: bool,
    ) -> Result<(TaskId, Promise), KernelError>;

    /// The promised part of a processor, in hundredths of a per cent.
    fn load(&self, cpu: usize) -> u64;

    /// Moves a task, with its processes, to another processor. Returns its number there, and its counts so
    /// far, which are not counted there.
    ///
    /// # Errors
    /// [`KernelError`]; the task stays where it was.
    fn relocate(
        &mut self,
        from: (usize, TaskId),
        to: usize,
        by_events: bool,
    ) -> Result<(TaskId, Counts), KernelError>;

    /// Removes a task; returns its counts.
    fn remove(&mut self, cpu: usize, task: TaskId) -> Counts;
}

/// Loads the scheduler.
pub type Loads = fn() -> Result<Box<dyn InKernel>, KernelError>;

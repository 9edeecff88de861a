//! The scheduler of `selvedge-place-kernel`, in the form that the daemon of `selvedge-place-cpu` needs.

use selvedge_data_cpu::{Config, Counts, Promise, Task, TaskId};
use selvedge_place_cpu::class;
use selvedge_place_cpu::in_kernel::{InKernel, KernelError};
use selvedge_place_kernel::TaskScheduler;

/// Loads it for all processors of this machine.
pub(super) fn load() -> Result<Box<dyn InKernel>, KernelError> {
    let most = class::processors().pop().unwrap_or(0);
    let config = Config { task_server: true, ..Config::default() };
    Ok(Box::new(Loaded(TaskScheduler::attach(most + 1, config)?)))
}

struct Loaded(TaskScheduler);

impl InKernel for Loaded {
    fn admit(
        &mut self,
        cpu: usize,
        task: &Task,
        process: i32,
        by_events: bool,
    ) -> Result<(TaskId, Promise), KernelError> {
        let unit = Config::default().unit;
        let (id, promise) = self.0.admit(cpu, task, unit, by_events)?;
        if let Err(error) = self.0.assign_process(cpu, id, process) {
            self.remove(cpu, id);
            return Err(error.into());
        }
        Ok((id, promise))
    }

    fn load(&self, cpu: usize) -> u64 {
        self.0.promised(cpu)
    }

    fn relocate(
        &mut self,
        from: (usize, TaskId),
        to: usize,
        by_events: bool,
    ) -> Result<(TaskId, Counts), KernelError> {
        let how = (Config::default().unit, by_events);
        Ok(self.0.relocate(from, to, how, class::confine_process)?)
    }

    fn remove(&mut self, cpu: usize, task: TaskId) -> Counts {
        let counts = self.0.counts(cpu, task).unwrap_or_default();
        if let Err(error) = self.0.remove(cpu, task, Config::default().unit) {
            tracing::warn!("a task stays in the kernel's table: {error}");
        }
        counts
    }
}

//! Which processor serves each task of the kernel's scheduler, and which tasks may move: when a processor's
//! tasks have gone, tasks of the fuller ones move there.

use selvedge_data_cpu::{Counts, TaskId};

use crate::in_kernel::InKernel;

/// A task in the kernel.
#[derive(Clone, Debug)]
pub(crate) struct KernelTask {
    /// The number of its client.
    pub(crate) client: u64,
    pub(crate) cpu: usize,
    pub(crate) id: TaskId,
    pub(crate) by_events: bool,
    /// The part of a processor that it takes, in hundredths of a per cent.
    pub(crate) needs: u64,
    /// Its program requested this processor.
    pub(crate) fixed: bool,
    /// Its counts on processors that it has left.
    pub(crate) before: Counts,
}

/// Moves tasks until no move makes the fullest processor less full: each to the emptiest one, the
/// largest that fits first. At most as many moves as there are tasks.
pub(crate) fn balance(
    kernel_tasks: &mut [KernelTask],
    kernel: &mut dyn InKernel,
    processors: &[usize],
) {
    for _ in 0..kernel_tasks.len() {
        let Some((from, to)) = fullest_and_emptiest(processors, kernel) else { return };
        let spare = kernel.load(from).saturating_sub(kernel.load(to));
        let movable = |kernel_task: &&mut KernelTask| {
            kernel_task.cpu == from && !kernel_task.fixed && kernel_task.needs < spare
        };
        let Some(kernel_task) =
            kernel_tasks.iter_mut().filter(movable).max_by_key(|kernel_task| kernel_task.needs)
        else {
            return;
        };
        match kernel.relocate((from, kernel_task.id), to, kernel_task.by_events) {
            Ok((id, counts)) => {
                kernel_task.before = sum(&kernel_task.before, &counts);
                (kernel_task.cpu, kernel_task.id) = (to, id);
            }
            Err(why) => {
                tracing::debug!(%why, "a task can't move");
                return;
            }
        }
    }
}

/// The processor with the most promises and the one with the fewest, unless they are the same.
fn fullest_and_emptiest(processors: &[usize], kernel: &dyn InKernel) -> Option<(usize, usize)> {
    let load = |&&cpu: &&usize| kernel.load(cpu);
    let (from, to) = (*processors.iter().max_by_key(load)?, *processors.iter().min_by_key(load)?);
    (from != to).then_some((from, to))
}

/// The sum of both.
pub(crate) fn sum(a: &Counts, b: &Counts) -> Counts {
    Counts {
        on_time: a.on_time.saturating_add(b.on_time),
        missed: a.missed.saturating_add(b.missed),
        violations: a.violations.saturating_add(b.violations),
        events: a.events.saturating_add(b.events),
        ran: a.ran + b.ran,
        extra: a.extra + b.extra,
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_cpu::{Promise, Task};
    use selvedge_units::Duration;

    use super::*;
    use crate::in_kernel::KernelError;

    /// Loads by processor, and the needs of each task.
    struct Fake {
        loads: Vec<u64>,
        needs: Vec<u64>,
        moves: Vec<(usize, usize)>,
    }

    impl InKernel for Fake {
        fn admit(
            &mut self,
            _cpu: usize,
            _task: &Task,
            _process: i32,
            _by_events: bool,
        ) -> Result<(TaskId, Promise), KernelError> {
            Err("not here".into())
        }

        fn load(&self, cpu: usize) -> u64 {
            self.loads[cpu]
        }

        fn relocate(
            &mut self,
            (from, id): (usize, TaskId),
            to: usize,
            _by_events: bool,
        ) -> Result<(TaskId, Counts), KernelError> {
            let needs = self.needs[id.0 as usize];
            self.loads[from] -= needs;
            self.loads[to] += needs;
            self.moves.push((from, to));
            Ok((id, Counts { on_time: 3, ran: Duration(5), ..Counts::default() }))
        }

        fn remove(&mut self, _cpu: usize, _task: TaskId) -> Counts {
            Counts::default()
        }
    }

    fn kernel_tasks(needs: &[u64], fixed: bool) -> Vec<KernelTask> {
        let kernel_task = |(n, &needs): (usize, &u64)| KernelTask {
            client: n as u64,
            cpu: 0,
            id: TaskId(n as u32),
            by_events: false,
            needs,
            fixed,
            before: Counts::default(),
        };
        needs.iter().enumerate().map(kernel_task).collect()
    }

    #[test]
    fn tasks_move_to_idle_processors_and_then_stay() {
        let needs = vec![4000, 3000, 2000];
        let mut kernel = Fake { loads: vec![9500, 500], needs: needs.clone(), moves: Vec::new() };
        let mut all = kernel_tasks(&needs, false);
        balance(&mut all, &mut kernel, &[0, 1]);
        assert_eq!(kernel.moves, [(0, 1)]);
        assert_eq!(kernel.loads, [5500, 4500]);
        assert_eq!((all[0].cpu, all[0].before.on_time), (1, 3));
        balance(&mut all, &mut kernel, &[0, 1]);
        assert_eq!(kernel.moves.len(), 1, "nothing to gain, nothing moves");
    }

    #[test]
    fn who_asked_for_a_processor_stays_there() {
        let needs = vec![4000, 3000];
        let mut kernel = Fake { loads: vec![7500, 500], needs: needs.clone(), moves: Vec::new() };
        balance(&mut kernel_tasks(&needs, true), &mut kernel, &[0, 1]);
        balance(&mut kernel_tasks(&needs, false), &mut kernel, &[0]);
        assert!(kernel.moves.is_empty());
    }
}

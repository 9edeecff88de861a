//! A processor's configuration, and its decisions: the task that DWCS chose, the task that runs, and until
//! when.

use selvedge_data_stream::Window;
use selvedge_units::{Duration, Instant};

use crate::event::Rule;
use crate::task::{Task, TaskId};

/// The configuration of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The thesis's time unit: the task server's service time while no event waits, and the unit to which its
    /// period is rounded up.
    pub unit: Duration,
    /// The least time for best-effort tasks, which counts as a task. `None`: only the rest.
    pub best_effort: Option<Task>,
    /// Whether the task server of Rule 5 reserves the rest for tasks with events.
    pub task_server: bool,
    /// How many events may wait.
    pub events_max: usize,
}

impl Default for Config {
    /// A unit of 1 ms, 5 of 100 ms for best-effort tasks, no task server, 64 events.
    fn default() -> Self {
        let reserve = Task::new(Duration::from_millis(100), Duration::from_millis(5), Window::NONE);
        Self {
            unit: Duration::from_millis(1),
            best_effort: Some(reserve.expect("5 ms of 100 ms is a task")),
            task_server: false,
            events_max: 64,
        }
    }
}

/// The choice of DWCS, before the event rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// A task with service time left in its period.
    Task(TaskId),
    /// A work-conserving task that had its service time.
    Served(TaskId),
    /// The task server.
    TaskServer,
    /// Best-effort tasks, by their reserve.
    Reserve,
    /// Best-effort tasks, since no other task wants to run.
    BestEffort,
    /// No task wants to run.
    Idle,
}

/// The user of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// This task.
    Task(TaskId),
    /// Any best-effort task.
    BestEffort,
    /// No task.
    Idle,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The task that runs.
    pub runs: Runs,
    /// The choice of DWCS.
    pub selected: Selected,
    /// Which event-aware rule applied, if there was an event.
    pub rule: Option<Rule>,
    /// When the next decision is due, unless a task wakes, sleeps or gets an event before; `None`: only then.
    /// A later decision delays tasks and counts misses late; an earlier one does no harm.
    pub until: Option<Instant>,
}

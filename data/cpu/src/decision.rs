//! How a processor is run, and what it decides: whom DWCS chose, who runs, and until when.

use selvedge_data_stream::Window;
use selvedge_units::{Duration, Instant};

use crate::event::Rule;
use crate::task::{Task, TaskId};

/// How a processor is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The thesis's time unit: the task server's service time while no event waits, and what its
    /// period is rounded up to.
    pub unit: Duration,
    /// What best-effort tasks get at least; it counts as a task. `None`: only what is left.
    pub best_effort: Option<Task>,
    /// Whether the task server of Rule 5 reserves what is left for tasks with events.
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

/// Who DWCS chose, before events had a say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// A task that is owed service time in its period.
    Task(TaskId),
    /// A work-conserving task that had its service time.
    Served(TaskId),
    /// The task server.
    TaskServer,
    /// Best-effort tasks, by their reserve.
    Reserve,
    /// Best-effort tasks, since nobody else wants to run.
    BestEffort,
    /// Nobody wants to run.
    Idle,
}

/// Who is to have the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// This task.
    Task(TaskId),
    /// Any best-effort task.
    BestEffort,
    /// Nobody.
    Idle,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who is to run.
    pub runs: Runs,
    /// Whom DWCS had chosen.
    pub selected: Selected,
    /// Which event-aware rule applied, if there was an event.
    pub rule: Option<Rule>,
    /// When the next decision is due, unless a task wakes, sleeps or gets an event before; `None`:
    /// not before that. Later delays tasks and counts misses late; earlier does no harm.
    pub until: Option<Instant>,
}

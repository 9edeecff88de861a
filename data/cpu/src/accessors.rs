//! The readable state of a processor's tasks.

use selvedge_data_sched::admission::Share;
use selvedge_data_stream::Window;
use selvedge_units::{Duration, Instant};

use crate::admission::{self, Promise};
use crate::processor::Processor;
use crate::task::{Counts, Task, TaskId};

impl Processor {
    /// The counts of a task's periods.
    #[must_use]
    pub fn counts(&self, id: TaskId) -> Counts {
        self.task(id).counts
    }

    /// A task's current window `x'/y'`.
    #[must_use]
    pub fn window(&self, id: TaskId) -> Window {
        self.task(id).window()
    }

    /// The end of the period in which a task is to be served next.
    #[must_use]
    pub fn deadline(&self, id: TaskId) -> Instant {
        self.task(id).deadline
    }

    /// Whether a task wants to run.
    #[must_use]
    pub fn is_awake(&self, id: TaskId) -> bool {
        self.task(id).awake
    }

    /// The least that all tasks need, `sum (1 - x/y) C/T`, the best-effort reserve included.
    #[must_use]
    pub const fn load(&self) -> Share {
        self.needs.least
    }

    /// The promise to the set. With the task server, every period is promised only to tasks that may lose
    /// none: it takes the time that windows give up.
    #[must_use]
    pub fn promise(&self) -> Promise {
        if self.server.is_some() && self.set().any(|task| task.window.lose > 0) {
            return Promise::WindowsFit;
        }
        self.needs.promise
    }

    /// Whether a task has this id.
    #[must_use]
    pub fn contains(&self, id: TaskId) -> bool {
        self.tasks.get(id.0 as usize).is_some_and(Option::is_some)
    }

    /// A task in its present form; the task server's attributes change with the other tasks.
    #[must_use]
    pub fn definition(&self, id: TaskId) -> Task {
        self.task(id).task
    }

    /// The task server's period for a service time: from the time that the tasks leave, rounded up to units.
    /// `None` if they leave nothing.
    #[must_use]
    pub fn server_period(&self, service: Duration) -> Option<Duration> {
        admission::rest_period(service, &self.needs.least, self.config.unit)
    }

    /// The task server's id, if there is one, for its [`Counts`].
    #[must_use]
    pub const fn task_server(&self) -> Option<TaskId> {
        self.server
    }

    /// The best-effort reserve's id, if there is one.
    #[must_use]
    pub const fn reserve(&self) -> Option<TaskId> {
        self.reserve
    }
}

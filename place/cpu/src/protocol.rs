//! The requests of clients and the responses of the daemon, as messages of [`selvedge_os::control`].

use selvedge_data_cpu::Counts;
use selvedge_data_stream::Window;
use selvedge_units::Duration;
use serde::{Deserialize, Serialize};

selvedge_units::named! {
    /// The mechanism that keeps a task's time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Placement {
        /// The kernel's sched_ext.
        Scx = "scx",
        /// A dispatcher over SCHED_FIFO.
        Fifo = "fifo",
        /// SCHED_DEADLINE, the kernel's own reservations.
        Deadline = "deadline",
        /// Nothing: only counted.
        None = "none",
    }
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Request {
    /// Admit the processes that this process has started, until it ends or the connection does.
    Admit(TaskRequest),
    /// Its program has ended.
    End {},
}

/// A client's request for its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRequest {
    /// In nanoseconds.
    pub period: u64,
    /// In nanoseconds.
    pub service: u64,
    /// `x`, `y`.
    pub window: (u16, u16),
    /// Whether it shares the rest like an ordinary program.
    pub work_conserving: bool,
    /// Whether each of its wake-ups counts as an event for it.
    pub events: bool,
    /// Whether the kernel's `sched_ext` must schedule it, in place of a dispatcher.
    pub in_kernel: bool,
    /// The processor; `None`: the one with the most left.
    pub cpu: Option<usize>,
}

impl TaskRequest {
    /// The task.
    ///
    /// # Errors
    /// [`TaskError`](selvedge_data_cpu::TaskError) for the invalid number.
    pub fn task(&self) -> Result<selvedge_data_cpu::Task, selvedge_data_cpu::TaskError> {
        let window = Window { lose: self.window.0, of: self.window.1 };
        let task =
            selvedge_data_cpu::Task::new(Duration(self.period), Duration(self.service), window)?;
        Ok(if self.work_conserving { task.work_conserving() } else { task })
    }
}

/// The daemon's response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Response {
    /// The task is dispatched: on which processor, and whether every period is promised.
    Admitted {
        /// The processor.
        cpu: usize,
        /// Whether every period is promised, or only that windows hold.
        every_period: bool,
    },
    /// The kernel's scheduler can't be loaded here.
    Lacking {
        /// Why.
        why: String,
    },
    /// The counts of the task, at the end.
    Ended(Outcome),
}

/// The counts of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Periods in which it got its service time or all that it needed.
    pub on_time: u64,
    /// Periods that ended while it needed more.
    pub missed: u64,
    /// Misses that its window did not allow.
    pub violations: u64,
    /// Processor time in all, in nanoseconds.
    pub ran_ns: u64,
    /// The part of that beyond its service times, in nanoseconds.
    pub extra_ns: u64,
    /// The kernel's first refusal to move one of its threads.
    pub refused: Option<String>,
}

impl Outcome {
    /// The outcome of a task's counts.
    #[must_use]
    pub fn new(counts: &Counts, refused: Option<String>) -> Self {
        Self {
            on_time: counts.on_time,
            missed: counts.missed,
            violations: counts.violations,
            ran_ns: counts.ran.0,
            extra_ns: counts.extra.0,
            refused,
        }
    }

    /// The sum of both: for a task that was dispatched by one daemon after another.
    #[must_use]
    pub fn plus(self, later: Self) -> Self {
        Self {
            on_time: self.on_time + later.on_time,
            missed: self.missed + later.missed,
            violations: self.violations + later.violations,
            ran_ns: self.ran_ns + later.ran_ns,
            extra_ns: self.extra_ns + later.extra_ns,
            refused: self.refused.or(later.refused),
        }
    }
}

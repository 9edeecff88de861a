//! The parameters and the counts of a task.

use selvedge_data_stream::{Contract, Window};
use selvedge_units::Duration;

/// A task's id on its processor: the lowest that was free when it was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// The parameters of a task (Q-Fabric thesis, 2.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub(crate) period: Duration,
    pub(crate) service: Duration,
    pub(crate) window: Window,
    pub(crate) work_conserving: bool,
}

/// Why numbers do not form a valid task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// A period of 0 or above 2^62 ns.
    #[error("a period of {0} is out of range; state 1 ns to 146 years")]
    Period(Duration),
    /// A service time of 0, or longer than its period.
    #[error(
        "a service time of {service} in a period of {period}: state more than 0, and no more than \
        the period"
    )]
    Service {
        /// The service time.
        service: Duration,
        /// The period.
        period: Duration,
    },
    /// A window that allows more losses than it has periods.
    #[error("window {0} would lose more periods than it holds; x must be at most y")]
    Window(Window),
}

impl Task {
    /// The longest period.
    pub const PERIOD_MAX: Duration = Duration(1 << 62);

    /// A task that is served once in its period. `0/0` is no window: every miss is a violation.
    ///
    /// # Errors
    /// [`TaskError`]: each number is checked.
    pub const fn new(
        period: Duration,
        service: Duration,
        window: Window,
    ) -> Result<Self, TaskError> {
        if period.0 == 0 || period.0 > Self::PERIOD_MAX.0 {
            return Err(TaskError::Period(period));
        }
        if service.0 == 0 || service.0 > period.0 {
            return Err(TaskError::Service { service, period });
        }
        if window.lose > window.of {
            return Err(TaskError::Window(window));
        }
        Ok(Self { period, service, window, work_conserving: false })
    }

    /// The same task, served again within its period while no other task has service time left.
    #[must_use]
    pub const fn work_conserving(self) -> Self {
        Self { work_conserving: true, ..self }
    }

    /// `T`.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// `C`.
    #[must_use]
    pub const fn service(&self) -> Duration {
        self.service
    }

    /// `x/y`.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Whether it is served again within its period.
    #[must_use]
    pub const fn is_work_conserving(&self) -> bool {
        self.work_conserving
    }

    /// The task as a stream whose frames are its periods. `ahead`: they may be served before they begin.
    pub(crate) const fn contract(&self, ahead: bool) -> Contract {
        Contract { work_conserving: ahead, ..Contract::new(self.period, self.window) }
    }
}

/// The counts of a task's periods. Each counter saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Periods in which it got its service time, or all that it needed of it.
    pub on_time: u64,
    /// Periods that ended while it needed more of its service time.
    pub missed: u64,
    /// Misses that the window did not allow; every miss, if there is no window.
    pub violations: u64,
    /// Events delivered to it.
    pub events: u64,
    /// Processor time that it used in all.
    pub ran: Duration,
    /// The part of that beyond its service times: idle time and event time.
    pub extra: Duration,
}

//! On-line auto-configuration (sections 2 and 4.3): adapting connections while they live.
//!
//! [`Monitor`]s count the traffic of streams. Once in each sampling period [`Manager`] compares it with what
//! was granted. A violation that lasts for the activation delay leads to a new decision by the heuristic of
//! [`assign`](crate::assign), with the traffic as it is. If nothing fits, the [`Policer`] holds the stream
//! to its contract, and the application is notified. The share of a closed connection goes to those that got
//! less than they requested. [`ManagerSettings`] controls all this, and may change at any time.

mod event;
mod manager;
mod monitor;
mod policer;
#[cfg(test)]
mod tests;

pub use event::{Event, Granted, RenegotiateError, Violation};
pub use manager::Manager;
pub use monitor::{Detail, MeasuredDelay, Monitor, TrafficSample};
pub use policer::{Policer, PolicingError};

use selvedge_units::Duration;

use crate::assign::Goal;

/// Meta-level control: how promptly and by which goal the manager decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagerSettings {
    /// The sampling period.
    pub sampling: Duration,
    /// The activation delay: how long a violation must last before the manager acts on it. The
    /// manager reacts within this time and one sampling period of the onset.
    pub activation: Duration,
    /// The goal of decisions.
    pub goal: Goal,
    /// The amount of monitoring.
    pub detail: Detail,
}

impl Default for ManagerSettings {
    /// A sample every 100 ms, an activation delay of 500 ms, short delays, everything monitored.
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(100),
            activation: Duration::from_millis(500),
            goal: Goal::Delay,
            detail: Detail::Full,
        }
    }
}

//! On-line auto-configuration (sections 2 and 4.3): what happens to connections while they live.
//!
//! [`Monitor`]s collect what streams do, [`Manager`] compares it with what was granted once in
//! each sampling period. What stays wrong for the activation delay is decided anew by the
//! heuristic of [`assign`](crate::assign), with the traffic as it is; if nothing fits, the
//! [`Policer`] holds the stream to its contract, and the application is told. What a closed
//! connection leaves goes to those that got less than they asked for. [`ManagerSettings`] is the control of
//! all this, and may change at any time.

mod event;
mod manager;
mod monitor;
mod policer;
#[cfg(test)]
mod tests;

pub use event::{Event, Granted, RenegotiateError, Violation};
pub use manager::Manager;
pub use monitor::{Detail, Monitor, TrafficSample};
pub use policer::{Policer, PolicingError};

use selvedge_units::Duration;

use crate::assign::Goal;

/// Meta-level control: how promptly and by what the manager decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagerSettings {
    /// How often streams are looked at.
    pub sampling: Duration,
    /// How long something must be wrong before it is acted upon. The manager reacts within this
    /// and one sampling period of the onset.
    pub activation: Duration,
    /// What decisions look for.
    pub goal: Goal,
    /// How much is monitored.
    pub detail: Detail,
}

impl Default for ManagerSettings {
    /// A look every 100 ms, an activation delay of 500 ms, short delays, everything monitored.
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(100),
            activation: Duration::from_millis(500),
            goal: Goal::Delay,
            detail: Detail::Full,
        }
    }
}

//! A registered service, and its counts. The host creates it; connections deliver calls to it.

use crate::service::Service;

/// The fates of a service's calls and events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Delivered calls: fast, deferred, direct, generic.
    pub calls: [u64; 4],
    /// Calls among them that the service refused.
    pub refused: u64,
    /// Events that the service raised.
    pub raised: u64,
    /// Events delivered to subscribers: one for each.
    pub delivered: u64,
    /// Events whose deadline had passed.
    pub expired: u64,
    /// Events that were dropped: a subscriber had no room, or too many waited.
    pub dropped: u64,
    /// Events for which the scheduler was requested to prefer a subscriber.
    pub preferred: u64,
    /// Subscribers now.
    pub subscribers: u64,
    /// Connections that were ended since their memory was invalid.
    pub broken: u64,
}

/// A service under its name.
pub(crate) struct Registered {
    pub(crate) name: String,
    pub(crate) service: Box<dyn Service>,
    pub(crate) counts: ServiceCounts,
}

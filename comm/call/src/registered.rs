//! A service that its host has registered, and what is counted of it. The host makes it; connections hand
//! calls to it.

use crate::service::Service;

/// What became of a service's calls and events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Calls handed in: fast, deferred, direct, generic.
    pub calls: [u64; 4],
    /// Of them, those that the service refused.
    pub refused: u64,
    /// Events that it raised.
    pub raised: u64,
    /// Handed to subscribers: one for each.
    pub delivered: u64,
    /// Their deadline had passed.
    pub expired: u64,
    /// Dropped: a subscriber had no room, or too many waited.
    pub dropped: u64,
    /// Events for which the scheduler was asked to prefer a subscriber.
    pub preferred: u64,
    /// Subscribers now.
    pub subscribers: u64,
    /// Connections that were ended since their memory made no sense.
    pub broken: u64,
}

/// A service under its name.
pub(crate) struct Registered {
    pub(crate) name: String,
    pub(crate) service: Box<dyn Service>,
    pub(crate) counts: ServiceCounts,
}

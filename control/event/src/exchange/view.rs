//! A view of a channel, for lists, pages and tests.

use crate::channel::SinkCounts;
use crate::event::SinkId;
use crate::format::Format;
use crate::transmit::HostId;

/// A member on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The host.
    pub host: HostId,
    /// Whether it has sinks.
    pub wants: bool,
    /// The number of events sent to it.
    pub sent: u64,
    /// The number of these (without reliable ones) that found no room on their way and were lost.
    pub lost: u64,
    /// The number of events received from it.
    pub received: u64,
    /// The number of its events that found a blocking sink here full; reliable ones are retransmitted.
    pub refused: u64,
    /// The number of reliable events that it has not taken yet.
    pub owed: u64,
    /// The number of reliable events that were dropped for it.
    pub dropped: u64,
}

/// A channel as this host sees it.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its format here.
    pub format: &'a Format,
    /// The sinks here with the fates of their events.
    pub sinks: Vec<(SinkId, SinkCounts)>,
    /// The members on other hosts.
    pub members: Vec<MemberView>,
    /// The number of events that were published here.
    pub published: u64,
    /// The number of events that came to the sinks here, from here and elsewhere.
    pub events: u64,
    /// The number of these that the IN filter kept from all sinks.
    pub rejected: u64,
    /// The number of answers that were held back until another host's answer made them needless.
    pub suppressed: u64,
    /// The number of reliable events that are kept for members that have not taken them.
    pub held: usize,
    /// How often a fault ended the IN and the OUT filter; `None` without a filter.
    pub faults: [Option<u64>; 2],
}

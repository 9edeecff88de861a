//! What can be seen of a channel: for lists, pages and tests.

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
    /// How many events it was sent.
    pub sent: u64,
    /// How many of them, not the reliable ones, found no room on their way and are lost.
    pub lost: u64,
    /// How many came from it.
    pub received: u64,
    /// How many of its events found a sink here full that blocks; reliable ones come again.
    pub refused: u64,
    /// How many reliable events it has not taken yet.
    pub owed: u64,
    /// How many reliable events were dropped for it.
    pub dropped: u64,
}

/// A channel as this host sees it.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its format here.
    pub format: &'a Format,
    /// The sinks here with what became of their events.
    pub sinks: Vec<(SinkId, SinkCounts)>,
    /// The members on other hosts.
    pub members: Vec<MemberView>,
    /// How many events were published here.
    pub published: u64,
    /// How many events came to the sinks here, from here and elsewhere.
    pub events: u64,
    /// How many of them the IN filter let nobody have.
    pub rejected: u64,
    /// How many answers were held back until another host's made them needless.
    pub suppressed: u64,
    /// How many reliable events are kept for members that have not taken them.
    pub held: usize,
    /// How often the IN and the OUT filter were ended by a fault; `None` without one.
    pub faults: [Option<u64>; 2],
}

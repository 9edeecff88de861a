//! What came of it: each flow and each hop; and what became of one packet at one place.

use selvedge_data_net_line::{Drop, LineCounts, Packet};
use selvedge_data_stream::Histogram;
use selvedge_units::{Bitrate, Bytes, Instant};

use crate::media::FrameCounts;
use crate::packet::{Datagram, HostId};

/// A flow, and what became of its packets. Sizes count all headers from the IP header on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Its name; a flow of answers has that of the flow that it answers.
    pub name: String,
    /// Where its packets are sent.
    pub from: HostId,
    /// Where they arrive.
    pub to: HostId,
    /// At both ends; a flow and its answers have the same.
    pub port: u16,
    /// Packets that were sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: Bytes,
    /// Packets that arrived, second copies too.
    pub arrived: u64,
    /// Their bytes.
    pub arrived_bytes: Bytes,
    /// Packets that a link dropped, lost or damaged.
    pub lost: u64,
    /// From being sent to arrival, of each packet.
    pub delays: Histogram,
    /// When the first packet was sent.
    pub first: Option<Instant>,
    /// When the last packet arrived.
    pub last: Instant,
    /// Bytes of use to the receiver, without headers and repetitions, where it counts them.
    pub useful: Option<Bytes>,
    /// Segments that its sender sent again.
    pub retransmissions: u64,
    /// How often its sender waited in vain for an acknowledgement.
    pub timeouts: u64,
    /// From each request that it answers to the last byte of the answer.
    pub answers: Histogram,
    /// Its frames, where it carries some.
    pub frames: Option<FrameCounts>,
}

impl Flow {
    /// What was of use, or else what arrived, from the first packet's sending to the last one's arrival.
    #[must_use]
    pub fn goodput(&self) -> Bitrate {
        self.useful.unwrap_or(self.arrived_bytes) / self.last.since(self.first.unwrap_or_default())
    }
}

/// A direction of a link, and what became of the packets in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopResult {
    /// The link.
    pub link: String,
    /// The host at its beginning.
    pub from: HostId,
    /// The host at its end.
    pub to: HostId,
    /// Packets, bytes, and drops by reason.
    pub counts: LineCounts,
    /// How long packets that arrived had waited in its queue.
    pub queueing: Histogram,
}

/// What came of a run until now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// The time until which it ran.
    pub until: Instant,
    /// How many events there were.
    pub events: u64,
    /// The hosts' names, by their numbers.
    pub hosts: Vec<String>,
    /// By their numbers.
    pub flows: Vec<Flow>,
    /// Two a link, there and back, by the order in which links were added.
    pub hops: Vec<HopResult>,
}

/// A step of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An endpoint sent it.
    Sent,
    /// It came out of a link.
    Arrived,
    /// It came out of a link with a wrong bit, so its checksum is wrong, and it is gone.
    Damaged,
    /// The link that leads away from here dropped it.
    Dropped(Drop),
}

/// A packet at a place.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// When.
    pub at: Instant,
    /// Where.
    pub host: HostId,
    /// What became of it there.
    pub step: Step,
    /// Its flow.
    pub flow: &'a Flow,
    /// The packet.
    pub packet: &'a Packet<Datagram>,
}

/// Sees each packet's way; any function of an [`Event`] does.
pub trait Observer: FnMut(&Event<'_>) {}

impl<F: FnMut(&Event<'_>)> Observer for F {}

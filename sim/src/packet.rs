//! What travels: packets of `data/net/line`, each a [`Datagram`] of a flow.

use std::sync::Arc;

use selvedge_data_net_line::{Ecn, Packet};
use selvedge_units::{Bytes, Instant};

/// A host, by its number in the order of [`Network::host`](crate::Network::host).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A flow, all packets from a host to another that belong together, by its number in the order of
/// [`Network::flow`](crate::Network::flow). It is the flow that queues keep apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// An endpoint, by its number in the order of [`Network::attach`](crate::Network::attach).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// What a packet is in this network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// When its endpoint sent it; set by the network.
    pub sent: Instant,
    /// When it came to the hop that it is in.
    pub(crate) entered: Instant,
    /// What it carries.
    pub payload: Payload,
}

impl Datagram {
    /// A packet of this flow, to be sent. Its size counts all headers from the IP header on.
    #[must_use]
    pub const fn packet(flow: FlowId, size: Bytes, payload: Payload) -> Packet<Self> {
        let datagram = Self { sent: Instant::ZERO, entered: Instant::ZERO, payload };
        Packet { size, flow: flow.0, ecn: Ecn::NotCapable, payload: datagram }
    }
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing that anyone reads.
    Filler,
    /// A datagram as it stands behind a UDP header. Copies of the packet share it.
    Bytes(Arc<[u8]>),
}

//! What travels: packets of `data/net/line`, each a [`Datagram`] of a flow.

use std::sync::Arc;

use selvedge_data_net_line::{Ecn, Packet};
use selvedge_data_stream::rtp;
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
        Packet { size, flow: flow.0, port: 0, ecn: Ecn::NotCapable, payload: datagram }
    }

    /// A packet of this flow with these bytes behind its UDP header.
    #[must_use]
    pub fn udp(flow: FlowId, bytes: Arc<[u8]>) -> Packet<Self> {
        Self::packet(flow, Bytes(bytes.len() as u64) + OVERHEAD, Payload::Bytes(bytes))
    }

    /// The bytes behind the UDP header with one bit changed; `None` if there are none.
    pub(crate) fn with_wrong_bit(&self, bit: u64) -> Option<Vec<u8>> {
        let Payload::Bytes(bytes) = &self.payload else { return None };
        let bit = bit.checked_rem(bytes.len() as u64 * 8)?;
        let mut bytes = bytes.to_vec();
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
        Some(bytes)
    }
}

/// The headers below.
pub(crate) const OVERHEAD: Bytes = rtp::IPV4_UDP;

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing that anyone reads.
    Filler,
    /// Bytes of a transfer; which they are does not matter.
    Segment(Segment),
    /// An acknowledgement of a transfer's bytes. It is large and rare, and each hop moves the packet several times.
    Ack(Box<Ack>),
    /// A datagram as it stands behind a UDP header. Copies of the packet share it.
    Bytes(Arc<[u8]>),
}

/// Bytes of a transfer. Sequence numbers count them from 0, and never wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Of the first byte.
    pub sequence: u64,
    /// How many there are.
    pub length: u32,
}

/// An acknowledgement of a transfer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The first byte that is missing.
    pub next: u64,
    /// When the segment that is acknowledged was sent (RFC 7323).
    pub echo: Instant,
    /// What arrived beyond (RFC 2018), the latest first: from `next` to a block's beginning, and its length;
    /// a length of 0 is no block.
    pub blocks: [(u32, u32); 3],
}

impl Ack {
    /// What its blocks take in a header, padded to whole words.
    pub(crate) fn options(&self) -> u64 {
        match self.blocks.iter().filter(|(_, length)| *length > 0).count() as u64 {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }
}

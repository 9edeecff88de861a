//! Streams whose packets something else than the engine's own sockets carries, such as a protocol
//! stack. The engine decides when a packet goes, as for any; the carrier takes it from there.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use selvedge_units::Bytes;

use crate::frame_producer::{IPV4_UDP, IPV6_UDP};

/// Takes packets in the order in which they leave, on the engine's thread: it must not wait.
pub trait Carrier: Send + Sync + fmt::Debug {
    /// Takes one over; false if it can't. A packet that is not the first of its frame to go is
    /// tried once more; then its frame is dropped, as one that the socket refused.
    fn carry(&self, packet: &[u8]) -> bool;

    /// What it put on the wire since it was asked last beyond the packets and their `overhead`, such as
    /// what it sent again. The link pays for it with the stream's next packet.
    fn take_extra(&self) -> Bytes {
        Bytes(0)
    }
}

/// A stream's carrier, and what it makes of packets.
#[derive(Clone, Debug)]
pub struct StreamCarrier {
    /// Who takes them.
    pub by: Arc<dyn Carrier>,
    /// What each takes on the wire beside its own bytes, headers of IP and UDP included.
    pub overhead: Bytes,
    /// The largest packet that it takes.
    pub packet_max: Bytes,
}

/// Bytes of headers below RTP that a packet to this address takes on the wire.
pub(super) fn overhead(to: SocketAddr, carried: Option<&StreamCarrier>) -> u64 {
    let plain = if to.is_ipv6() { IPV6_UDP } else { IPV4_UDP };
    carried.map_or(plain, |carried| carried.overhead.0)
}

//! Streams whose packets a carrier transports in place of the engine's own sockets, such as a protocol stack.
//! The engine decides when a packet goes, as for any stream, and hands it to the carrier.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use selvedge_data_stream::rtp;
use selvedge_units::Bytes;

/// Takes packets in the order in which they leave, on the engine's thread: it must not block.
pub trait Carrier: Send + Sync + fmt::Debug {
    /// Takes a packet; false if it can't. A packet that is not the first of its frame in the run is tried
    /// once more. Then its frame is dropped, as one that the socket refused.
    fn carry(&self, packet: &[u8]) -> bool;

    /// The bytes that it put on the wire since the last call beyond the packets and their `overhead`, such as
    /// retransmissions. The link pays for them with the stream's next packet.
    fn take_extra(&self) -> Bytes {
        Bytes(0)
    }
}

/// A stream's carrier, and its costs and limits.
#[derive(Clone, Debug)]
pub struct StreamCarrier {
    /// The carrier itself.
    pub by: Arc<dyn Carrier>,
    /// The bytes that each packet takes on the wire beside its own, headers of IP and UDP included.
    pub overhead: Bytes,
    /// The largest packet that it takes.
    pub packet_max: Bytes,
}

/// Bytes of headers below RTP that a packet to this address takes on the wire.
pub(super) fn overhead(to: SocketAddr, carried: Option<&StreamCarrier>) -> Bytes {
    carried.map_or_else(|| rtp::ip_udp(to), |carried| carried.overhead)
}

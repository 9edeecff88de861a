//! What sends and receives at a host.

use std::any::Any;

use selvedge_data_net_line::Packet;
use selvedge_units::Instant;

use crate::packet::Datagram;
use crate::results::Flow;

/// A program at a host: a core without I/O to which time is an argument. After each `handle_*` it is polled
/// until `poll_transmit` gives nothing, then asked when it wants to be called next.
pub trait Endpoint: Any {
    /// Takes a packet of a flow that it receives.
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>);

    /// Takes a packet of such a flow that came out of the last link with a wrong bit; a socket with checksums
    /// drops it.
    fn handle_damaged(&mut self, _now: Instant, _packet: Packet<Datagram>, _bit: u64) {}

    /// Does what is due by `now`, the time of [`Self::poll_timeout`].
    fn handle_timeout(&mut self, _now: Instant) {}

    /// The next packet that it sends now; see [`Datagram::packet`].
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>>;

    /// When it wants to be called next if no packet comes before; a time that has passed is at once.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Adds to the results of its flows what only it knows; [`FlowId`](crate::FlowId)s are their indices.
    fn report(&self, _flows: &mut [Flow]) {}
}

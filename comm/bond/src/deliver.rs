//! What takes the packets of a bond: those that come to its far end, or back to its near end.

use selvedge_data_net_bond::StreamId;
use selvedge_units::Instant;

/// Takes what the bond brings, on its thread: it must not wait.
pub trait Deliver: Send {
    /// The near end began anew: what was known of its streams no longer holds.
    fn handle_start(&mut self);
    /// A stream's description is new.
    fn handle_description(&mut self, stream: StreamId, text: &str);
    /// A stream's next packet.
    fn handle_packet(&mut self, now: Instant, stream: StreamId, packet: &[u8]);
}

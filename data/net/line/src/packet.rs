//! A packet as a link sees it: its size, its flow, its mark of congestion; what it carries is the caller's.

use selvedge_units::{Bytes, Instant};

/// The field of congestion notification of an IP header (RFC 3168, RFC 9331).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The ends do not look at it: congestion is signalled by loss.
    #[default]
    NotCapable,
    /// Capable, ECT(0).
    Capable,
    /// Capable, and its sender backs off little at each mark: ECT(1).
    LowLatency,
    /// A queue has marked it: CE.
    Marked,
}

/// A packet in a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<P> {
    /// On the wire.
    pub size: Bytes,
    /// Which flow it belongs to, for queues that keep flows apart.
    pub flow: u64,
    /// The port that it goes to, by which a recording knows its stream again; 0: none.
    pub port: u16,
    /// Its mark of congestion.
    pub ecn: Ecn,
    /// What it carries.
    pub payload: P,
}

/// A packet that waits, since when.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<P> {
    pub(crate) since: Instant,
    pub(crate) packet: Packet<P>,
}

selvedge_units::named! {
    /// Why a packet does not arrive.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Drop {
        /// It is larger than the link's MTU.
        TooLarge = "too-large",
        /// The queue was full.
        Full = "full",
        /// The queue's management dropped it to signal congestion.
        Congestion = "congestion",
        /// Its deadline passed while it waited, and its flow's contract gives up late packets.
        Late = "late",
        /// The link lost it.
        Lost = "lost",
        /// The link was down.
        Outage = "outage",
    }
}

//! The frame: the unit of scheduling. Only the descriptor moves; the payload stays in the pool.

use selvedge_data_memory::PayloadSpan;
use selvedge_units::{Bytes, Instant};

use crate::References;

selvedge_units::named! {
    /// How a frame relates to those that come after it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Kind {
        /// A picture that refers to no other (I), and begins a group of pictures.
        Intra = "I",
        /// A picture predicted from earlier ones (P).
        Predicted = "P",
        /// A picture predicted from both sides (B).
        Bidirectional = "B",
        /// A picture that stands alone and that no other refers to (JPEG).
        Still = "still",
        /// A block of sound; stands alone.
        Audio = "audio",
        /// Anything else; stands alone.
        Data = "data",
    }
}

impl Kind {
    /// The kind with this number, if there is one.
    #[must_use]
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.get(usize::from(n)).copied()
    }
}

/// A frame's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number within its stream, in decoding order; wraps.
    pub seq: u32,
    /// Its relation to other frames.
    pub kind: Kind,
    /// Whether later frames may refer to it.
    pub referenced: bool,
    /// The frames that it refers to.
    pub refs: References,
    /// Number of packets it travels in, at least 1.
    pub packets: u16,
    /// Bytes that it takes on the wire, headers of all its packets included.
    pub size: Bytes,
    /// When it arrived.
    pub arrival: Instant,
    /// Its own deadline; `None`: by the contract, `max(previous deadline, arrival) + period`.
    pub deadline: Option<Instant>,
    /// Where its packets lie.
    pub payload: PayloadSpan,
}

selvedge_units::named! {
    /// Why a frame was not delivered. Every drop has a reason; each is counted apart.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum DropReason {
        /// Its deadline passed while it waited.
        Expired = "expired",
        /// It could not have been sent whole by its deadline.
        TooLate = "too-late",
        /// A frame that it refers to was lost, or will be.
        ReferenceLost = "reference-lost",
        /// Its group was given up as a whole, so that others could be kept.
        GroupSkipped = "group-skipped",
        /// Its loss cost least among frames that could not all make their deadlines.
        Sacrificed = "sacrificed",
        /// Its stream's ring or pool, or the link's queue, was full.
        Full = "full",
        /// It does not fit the pool at all, or its packets are malformed.
        Unusable = "unusable",
        /// Its stream was removed, or its numbers began afresh, while it waited.
        Removed = "removed",
        /// The socket refused it.
        SendFailed = "send-failed",
    }
}

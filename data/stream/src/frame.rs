//! The frame: the unit of everything. A descriptor travels; its payload stays in the pool.

use selvedge_data_memory::PayloadSpan;
use selvedge_units::{Bytes, Instant};

use crate::References;

/// What a frame is to those that come after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A picture that refers to no other (I), and begins a group of pictures.
    Intra = 0,
    /// A picture predicted from earlier ones (P).
    Predicted = 1,
    /// A picture predicted from both sides (B).
    Bidirectional = 2,
    /// A picture that stands alone and that no other refers to (JPEG).
    Still = 3,
    /// A block of sound; stands alone.
    Audio = 4,
    /// Anything else; stands alone.
    Data = 5,
}

impl Kind {
    /// How many kinds there are.
    pub const COUNT: usize = 6;
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Intra, Self::Predicted, Self::Bidirectional, Self::Still, Self::Audio, Self::Data];

    /// The kind with this number, if there is one.
    #[must_use]
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.get(usize::from(n)).copied()
    }

    /// The name used in node files, tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Intra => "I",
            Self::Predicted => "P",
            Self::Bidirectional => "B",
            Self::Still => "still",
            Self::Audio => "audio",
            Self::Data => "data",
        }
    }
}

/// A frame's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number within its stream, in decoding order; wraps.
    pub seq: u32,
    /// What it is to others.
    pub kind: Kind,
    /// Whether later frames may refer to it.
    pub referenced: bool,
    /// What it refers to.
    pub refs: References,
    /// Number of packets it travels in, at least 1.
    pub packets: u16,
    /// Bytes that it takes on the wire, headers of all its packets included.
    pub size: Bytes,
    /// When it came.
    pub arrival: Instant,
    /// Its own deadline; `None`: by the contract, `max(previous deadline, arrival) + period`.
    pub deadline: Option<Instant>,
    /// Where its packets lie.
    pub payload: PayloadSpan,
}

/// Why a frame was not delivered. Every drop has one; each is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// Its deadline passed while it waited.
    Expired = 0,
    /// It could not have been sent whole by its deadline.
    TooLate = 1,
    /// A frame that it refers to was lost, or will be.
    ReferenceLost = 2,
    /// Its group was given up as a whole, so that others could be kept.
    GroupSkipped = 3,
    /// It was the least loss among frames that could not all make their deadlines.
    Sacrificed = 4,
    /// Its stream's ring or pool, or the link's queue, was full.
    Full = 5,
    /// It does not fit the pool at all, or its packets are malformed.
    Unusable = 6,
    /// Its stream was removed, or its numbers began afresh, while it waited.
    Removed = 7,
    /// The socket refused it.
    SendFailed = 8,
}

impl DropReason {
    /// How many reasons there are.
    pub const COUNT: usize = 9;
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Expired,
        Self::TooLate,
        Self::ReferenceLost,
        Self::GroupSkipped,
        Self::Sacrificed,
        Self::Full,
        Self::Unusable,
        Self::Removed,
        Self::SendFailed,
    ];

    /// The name used in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TooLate => "too-late",
            Self::ReferenceLost => "reference-lost",
            Self::GroupSkipped => "group-skipped",
            Self::Sacrificed => "sacrificed",
            Self::Full => "full",
            Self::Unusable => "unusable",
            Self::Removed => "removed",
            Self::SendFailed => "send-failed",
        }
    }
}

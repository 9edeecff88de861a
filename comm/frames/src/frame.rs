//! What a program and a node state of a frame beside its bytes, and the descriptor in which it lies in a ring.

use selvedge_data_memory::{PayloadSpan, Plain};
use selvedge_units::Instant;

selvedge_units::named! {
    /// The kind of a frame, by its number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FrameKind {
        /// The program does not say: the node reads the kind from the frame.
        Unknown = "unknown",
        /// A picture that refers to no other.
        Key = "key",
        /// A picture that refers to earlier ones.
        Predicted = "predicted",
        /// A picture that refers to earlier and later ones.
        Bidirectional = "bidirectional",
        /// An image that stands alone.
        Still = "still",
        /// Sound.
        Audio = "audio",
        /// Anything else.
        Data = "data",
    }
}

/// What is stated of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInfo {
    /// Its number: counted by the writer, with a gap where frames were lost.
    pub number: u64,
    /// When it was captured or arrived, by `CLOCK_MONOTONIC`; 0: not stated.
    pub at: Instant,
    /// When it is due; [`Instant::MAX`]: never.
    pub deadline: Instant,
    /// Its kind.
    pub kind: FrameKind,
    /// Whether all that it refers to was there.
    pub is_decodable: bool,
}

impl Default for FrameInfo {
    fn default() -> Self {
        Self {
            number: 0,
            at: Instant::ZERO,
            deadline: Instant::MAX,
            kind: FrameKind::Unknown,
            is_decodable: true,
        }
    }
}

/// A slot of the ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descriptor {
    start: u64,
    number: u64,
    at: u64,
    deadline: u64,
    len: u32,
    /// The kind's number in the low byte, and a bit for a decodable frame.
    kind: u32,
}

// SAFETY: integers without padding: four of 8 bytes and two of 4.
unsafe impl Plain for Descriptor {}
const _: () = assert!(size_of::<Descriptor>() == 40);

const DECODABLE: u32 = 0x100;

impl Descriptor {
    pub(crate) fn new(info: &FrameInfo, span: PayloadSpan) -> Self {
        let decodable = if info.is_decodable { DECODABLE } else { 0 };
        Self {
            start: span.start,
            number: info.number,
            at: info.at.0,
            deadline: info.deadline.0,
            len: span.len,
            kind: info.kind as u32 | decodable,
        }
    }

    pub(crate) const fn span(&self) -> PayloadSpan {
        PayloadSpan { start: self.start, len: self.len }
    }

    /// `None` for a kind that does not exist.
    pub(crate) fn info(&self) -> Option<FrameInfo> {
        let place = (self.kind & !DECODABLE) as usize;
        Some(FrameInfo {
            number: self.number,
            at: Instant(self.at),
            deadline: Instant(self.deadline),
            kind: *FrameKind::ALL.get(place)?,
            is_decodable: self.kind & DECODABLE != 0,
        })
    }
}

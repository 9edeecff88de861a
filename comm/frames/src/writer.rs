//! The end of a segment that writes frames.

use selvedge_data_memory::{PoolError, PoolWriter, Producer};

use crate::frame::{Descriptor, FrameInfo};
use crate::segment::{Segment, SegmentError};

/// Why a frame was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The reader is behind: the ring or the pool is full.
    #[error("the memory is full, as its reader is behind; go on with the next frame")]
    Full,
    /// A frame without bytes, which says nothing.
    #[error("the frame is empty; write its bytes")]
    Empty,
    /// It never fits.
    #[error("the frame has {0} bytes, and the memory takes {1} at most; write smaller frames")]
    TooLarge(usize, u64),
}

/// Writes frames into a segment.
pub struct FrameWriter {
    segment: Segment,
    ring: Producer<Descriptor>,
    pool: PoolWriter,
}

impl std::fmt::Debug for FrameWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameWriter").field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl FrameWriter {
    /// For a segment that a reader has laid out.
    ///
    /// # Errors
    /// [`SegmentError::Layout`] if it has not.
    pub fn new(segment: Segment) -> Result<Self, SegmentError> {
        let (region, at, slots) = segment.ring();
        let ring = Producer::within(region, at, slots)?;
        let (region, at, bytes) = segment.pool();
        let pool = PoolWriter::within(region, at, bytes)?;
        Ok(Self { segment, ring, pool })
    }

    /// Writes a frame; true: the reader sleeps, and the caller must wake it.
    ///
    /// # Errors
    /// [`Refused`]; nothing is written then.
    pub fn write(&mut self, info: &FrameInfo, bytes: &[u8]) -> Result<bool, Refused> {
        if bytes.is_empty() {
            return Err(Refused::Empty);
        }
        if !self.ring.has_room() {
            return Err(Refused::Full);
        }
        let mut room = self.pool.reserve(bytes.len()).map_err(|error| match error {
            PoolError::Full { .. } => Refused::Full,
            PoolError::TooLarge { largest, .. } => Refused::TooLarge(bytes.len(), largest.0),
        })?;
        room.bytes_mut().copy_from_slice(bytes);
        let span = room.commit();
        self.ring.push(Descriptor::new(info, span)).map_err(|_| Refused::Full)?;
        Ok(self.segment.bell().notify_sleeper())
    }
}

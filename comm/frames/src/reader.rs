//! The end of a segment that reads frames, and trusts nothing that its writer wrote.

use selvedge_data_memory::{RegionError, UntrustedConsumer, UntrustedPoolReader};

use crate::frame::{Descriptor, FrameInfo};
use crate::segment::{Segment, SegmentError};

/// What the other end wrote is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The ring's counters are impossible.
    #[error("the ring's counters are corrupt; write through one library of this release only")]
    Ring,
    /// A descriptor does not name bytes of the pool that follow the last frame's.
    #[error("{len} bytes at {start} are no frame of the pool; write through one library only")]
    Span {
        /// The position.
        start: u64,
        /// The length.
        len: u32,
    },
    /// A kind that does not exist.
    #[error("a frame of an unknown kind; use the library of this node's release")]
    Kind,
}

/// Reads frames out of a segment.
#[derive(Debug)]
pub struct FrameReader {
    segment: Segment,
    ring: UntrustedConsumer<Descriptor>,
    pool: UntrustedPoolReader,
}

impl FrameReader {
    /// Lays out a new segment, empty.
    ///
    /// # Errors
    /// [`SegmentError::Layout`] if it does not fit.
    pub fn create(segment: Segment) -> Result<Self, SegmentError> {
        let made = |segment: &Segment| -> Result<_, RegionError> {
            let ((region, at, slots), pool) = (segment.ring(), segment.pool());
            let ring = UntrustedConsumer::create(region, at, slots)?;
            Ok((ring, UntrustedPoolReader::create(pool.0, pool.1, pool.2)?))
        };
        let (ring, pool) = made(&segment)?;
        Ok(Self { segment, ring, pool })
    }

    /// For a segment that is laid out.
    ///
    /// # Errors
    /// [`SegmentError::Layout`] if it is not.
    pub fn resume(segment: Segment) -> Result<Self, SegmentError> {
        let ((region, at, slots), pool) = (segment.ring(), segment.pool());
        let ring = UntrustedConsumer::resume(region, at, slots)?;
        let pool = UntrustedPoolReader::resume(pool.0, pool.1, pool.2)?;
        Ok(Self { segment, ring, pool })
    }

    /// Takes the next frame out, its bytes into `to`; `None` if there is none now.
    ///
    /// # Errors
    /// [`Corrupt`]: the writer is not to be trusted any more.
    pub fn read(&mut self, to: &mut Vec<u8>) -> Result<Option<FrameInfo>, Corrupt> {
        let Some(descriptor) = self.ring.pop_copy().map_err(|_| Corrupt::Ring)? else {
            return Ok(None);
        };
        let span = descriptor.span();
        let wrong = Corrupt::Span { start: span.start, len: span.len };
        if !self.pool.claim(span) {
            return Err(wrong);
        }
        to.resize(span.len as usize, 0);
        if !self.pool.read(span, 0, to) {
            return Err(wrong);
        }
        self.pool.free(span);
        self.ring.free(1);
        descriptor.info().ok_or(Corrupt::Kind).map(Some)
    }

    /// The reader is about to wait for its socket; false if a frame is there already.
    pub fn prepare_sleep(&self) -> bool {
        self.segment.bell().prepare_sleep_unless(|| !self.ring.is_empty())
    }

    /// The reader has stopped waiting.
    pub fn wake(&self) {
        self.segment.bell().wake();
    }

    /// Its memory.
    #[must_use]
    pub const fn segment(&self) -> &Segment {
        &self.segment
    }
}

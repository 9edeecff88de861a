//! The memory of one connection: a header, the bell of the reader, the node's counts, a ring of descriptors, a pool.
//!
//! | offset | what |
//! |---|---|
//! | 0 | the header: magic `SLVGFRMS`, version 1 |
//! | 24 | u64: slots of the ring; 32: bytes of the pool |
//! | 128 | u32: the reader's bell |
//! | 256 | u64s: the counts that the node writes, see [`Board`](crate::Board) |
//! | 512 | the ring, then the pool |

use std::os::fd::OwnedFd;
use std::sync::Arc;

use selvedge_data_memory::{Bell, HeaderError, Region, RegionError, pool_region, ring_region};
use selvedge_os::memory::{Memfd, MemoryError};
use selvedge_units::Bytes;

use crate::frame::Descriptor;

const MAGIC: [u8; 8] = *b"SLVGFRMS";
const VERSION: u32 = 1;
const RING_WORD: usize = 24;
const POOL_WORD: usize = 32;
const BELL_AT: usize = 128;
pub(crate) const COUNTS_AT: usize = 256;
const RING_AT: usize = 512;
const RING_MAX: u64 = 4096;
const POOL_MAX: u64 = 1 << 28;

/// Why memory can't be shared for frames.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// It can't be made or mapped, or is not of the expected form.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Ring or pool do not lie in it as they should.
    #[error(transparent)]
    Layout(#[from] RegionError),
}

/// How many frames a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Slots of the ring: a power of two.
    ring: u32,
    /// Bytes of the pool: a multiple of 128.
    pool: u64,
}

impl Layout {
    /// For this many frames, 2 to 4096, and this many bytes, up to 256 MiB. One frame takes at most half of them.
    #[must_use]
    pub fn new(frames: u32, pool: Bytes) -> Self {
        let ring = frames.clamp(2, RING_MAX as u32).next_power_of_two();
        Self { ring, pool: pool.0.clamp(4096, POOL_MAX).next_multiple_of(128) }
    }

    /// The number of frames that it holds at most.
    pub(crate) const fn frames(self) -> usize {
        self.ring as usize
    }

    const fn pool_at(self) -> usize {
        (RING_AT + ring_region::<Descriptor>(self.ring)).next_multiple_of(128)
    }

    const fn len(self) -> usize {
        self.pool_at() + pool_region(self.pool)
    }
}

impl Default for Layout {
    /// 64 frames in 8 MiB.
    fn default() -> Self {
        Self::new(64, Bytes(8 << 20))
    }
}

/// The memory of one connection.
#[derive(Clone)]
pub struct Segment {
    memory: Arc<Memfd>,
    region: Arc<dyn Region>,
    layout: Layout,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl Segment {
    /// New memory; its ring and pool are laid out by [`FrameReader::create`](crate::FrameReader::create).
    ///
    /// # Errors
    /// [`SegmentError::Memory`] if there is none.
    pub fn create(layout: Layout) -> Result<Self, SegmentError> {
        let memory = Memfd::create("selvedge-frames", layout.len())?;
        memory.put(RING_WORD, layout.ring.into());
        memory.put(POOL_WORD, layout.pool);
        memory.put_header(MAGIC, VERSION, 0);
        Ok(Self::of(memory, layout))
    }

    /// The memory that the other end made.
    ///
    /// # Errors
    /// [`SegmentError::Memory`] if it is not such memory.
    pub fn open(file: OwnedFd) -> Result<Self, SegmentError> {
        let most = Layout { ring: RING_MAX as u32, pool: POOL_MAX }.len();
        let memory = Memfd::open(file, RING_AT..=most)?;
        memory.header(MAGIC, VERSION, 1).map_err(MemoryError::from)?;
        let (ring, pool) = (memory.word(RING_WORD), memory.word(POOL_WORD));
        let wrong = |what, value| MemoryError::from(HeaderError::Number { what, value });
        if !ring.is_power_of_two() || !(2..=RING_MAX).contains(&ring) {
            return Err(wrong("the ring's capacity", ring).into());
        }
        if !pool.is_multiple_of(128) || !(128..=POOL_MAX).contains(&pool) {
            return Err(wrong("the pool's capacity", pool).into());
        }
        let layout = Layout { ring: ring as u32, pool };
        if layout.len() != memory.size() {
            return Err(wrong("the pool's capacity", pool).into());
        }
        Ok(Self::of(memory, layout))
    }

    fn of(memory: Memfd, layout: Layout) -> Self {
        let memory = Arc::new(memory);
        let region = Arc::clone(&memory) as Arc<dyn Region>;
        Self { memory, region, layout }
    }

    pub(crate) fn memory(&self) -> &Arc<Memfd> {
        &self.memory
    }

    pub(crate) fn bell(&self) -> &Bell {
        self.memory.bell(BELL_AT)
    }

    /// The ring's place: its region, offset and capacity.
    pub(crate) fn ring(&self) -> (&Arc<dyn Region>, usize, u32) {
        (&self.region, RING_AT, self.layout.ring)
    }

    /// The pool's place.
    pub(crate) fn pool(&self) -> (&Arc<dyn Region>, usize, u64) {
        (&self.region, self.layout.pool_at(), self.layout.pool)
    }
}

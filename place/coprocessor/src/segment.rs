//! The memory that a producer and the coprocessor share: one segment for each stream, and one doorbell for
//! each producer. `docs/coprocessor.md` states the layout for authors of other producers.
//!
//! Segments are sealed memfds, see `selvedge_os::memory`.

mod counts;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use selvedge_data_memory::{Bell, HeaderError, Region, RegionError, pool_region, ring_region};
use selvedge_data_stream::Descriptor;
use selvedge_os::eventfd::EventFd;
use selvedge_os::memory::{Memfd, MemoryError};
use selvedge_units::Bytes;

use counts::COUNTS_LEN;
pub use counts::CountsBoard;

/// The layouts' version: a producer with another version is refused.
pub const VERSION: u32 = 3;
/// The first eight bytes of a stream's segment.
pub const STREAM_MAGIC: [u8; 8] = *b"SLVGSTRM";
/// The first eight bytes of a doorbell.
pub const BELL_MAGIC: [u8; 8] = *b"SLVGBELL";
/// Streams that one producer may have: bits of its doorbell.
pub const BELL_STREAMS: usize = 4096;

/// Where a stream's ring begins.
const RING_AT: usize = 128;
/// The offsets in a doorbell of the number of its bits, the state of the sleeper, and the bits.
const BELL_WORD: usize = 24;
const STATE_AT: usize = 128;
const BITS_AT: usize = 256;
const BELL_LEN: usize = 4096;

/// Why a segment can't be created or used.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The memory can't be mapped, or is not of the expected form.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The kernel would not make its event.
    #[error("can't make an event for shared memory: {0}")]
    Event(#[source] io::Error),
    /// The header's numbers do not fit together.
    #[error("the segment's header is corrupt: {0}")]
    Corrupt(#[from] RegionError),
}

/// A stream's segment: the number of slots of its ring, and the size of its pool.
#[derive(Clone)]
pub struct StreamSegment {
    /// The memory, for rings and pools.
    pub region: Arc<dyn Region>,
    mapping: Arc<Memfd>,
    ring: u32,
    pool: u64,
}

/// The offset of its two capacities, behind the header.
const RING_WORD: usize = 24;
const POOL_WORD: usize = 32;

impl StreamSegment {
    /// The most slots of a ring, and the most bytes of a pool.
    pub const RING_MAX: u32 = 65_536;
    const POOL_MAX: u64 = 1 << 30;

    /// A new segment, its header written; ring and pool are not laid out yet. The ring has a power
    /// of two of slots, the pool a multiple of 128 bytes.
    ///
    /// # Errors
    /// [`SegmentError::Memory`].
    pub fn create(name: &str, ring: u32, pool: Bytes) -> Result<Self, SegmentError> {
        let ring = ring.clamp(2, Self::RING_MAX).next_power_of_two();
        let pool = pool.0.clamp(128, Self::POOL_MAX).next_multiple_of(128);
        let mapping = Memfd::create(name, Self::len(ring, pool))?;
        mapping.put(RING_WORD, ring.into());
        mapping.put(POOL_WORD, pool);
        for (word, _, at) in Self::places(ring, pool) {
            mapping.put(word, at);
        }
        mapping.put_header(STREAM_MAGIC, VERSION, 0);
        Ok(Self::of(mapping, ring, pool))
    }

    /// A segment that another process has, or had.
    pub fn open(file: OwnedFd) -> Result<Self, SegmentError> {
        let most = Self::len(Self::RING_MAX, Self::POOL_MAX);
        let mapping = Memfd::open(file, Self::len(2, 128)..=most)?;
        mapping.header(STREAM_MAGIC, VERSION, 1).map_err(MemoryError::from)?;
        let ring = mapping.word(RING_WORD);
        let pool = mapping.word(POOL_WORD);
        let header = |what, value| MemoryError::from(HeaderError::Number { what, value }).into();
        if !ring.is_power_of_two() || !(2..=u64::from(Self::RING_MAX)).contains(&ring) {
            return Err(header("the ring's capacity", ring));
        }
        if !pool.is_multiple_of(128) || !(128..=Self::POOL_MAX).contains(&pool) {
            return Err(header("the pool's capacity", pool));
        }
        if Self::len(ring as u32, pool) != mapping.len() {
            return Err(header("its length", mapping.len() as u64));
        }
        // They follow from the capacities, so this code does not use them; a program that does would be
        // misled.
        for (word, what, at) in Self::places(ring as u32, pool) {
            let found = mapping.word(word);
            if found != at {
                return Err(header(what, found));
            }
        }
        Ok(Self::of(mapping, ring as u32, pool))
    }

    /// Where the header states the offset of each part, and the offset itself.
    const fn places(ring: u32, pool: u64) -> [(usize, &'static str, u64); 3] {
        [
            (40, "the ring's place", RING_AT as u64),
            (48, "the pool's place", Self::pool_at_of(ring) as u64),
            (56, "the counts' place", Self::counts_at_of(ring, pool) as u64),
        ]
    }

    fn of(mapping: Memfd, ring: u32, pool: u64) -> Self {
        let mapping = Arc::new(mapping);
        Self { region: Arc::clone(&mapping) as Arc<dyn Region>, mapping, ring, pool }
    }

    const fn pool_at_of(ring: u32) -> usize {
        (RING_AT + ring_region::<Descriptor>(ring)).next_multiple_of(128)
    }

    const fn counts_at_of(ring: u32, pool: u64) -> usize {
        (Self::pool_at_of(ring) + pool_region(pool)).next_multiple_of(128)
    }

    const fn len(ring: u32, pool: u64) -> usize {
        Self::counts_at_of(ring, pool) + COUNTS_LEN
    }

    /// Where the coprocessor keeps the stream's counts, so that they outlive it.
    #[must_use]
    pub fn counts(&self) -> CountsBoard {
        let at = Self::counts_at_of(self.ring, self.pool);
        CountsBoard { mapping: Arc::clone(&self.mapping), at }
    }

    /// Where the ring lies.
    #[must_use]
    pub const fn ring_at(&self) -> usize {
        RING_AT
    }

    /// Where the pool lies.
    #[must_use]
    pub const fn pool_at(&self) -> usize {
        Self::pool_at_of(self.ring)
    }

    /// Slots of the ring.
    #[must_use]
    pub const fn ring(&self) -> u32 {
        self.ring
    }

    /// Bytes of the pool.
    #[must_use]
    pub const fn pool(&self) -> u64 {
        self.pool
    }

    /// The file by which another process maps it.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        self.mapping.file()
    }
}

impl std::fmt::Debug for StreamSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ring, pool, .. } = self;
        f.debug_struct("StreamSegment").field("ring", ring).field("pool", pool).finish()
    }
}

/// A producer's doorbell: whether the coprocessor sleeps, a bit for each stream with a new frame, and the
/// event that wakes the coprocessor.
#[derive(Debug)]
pub struct Doorbell {
    mapping: Memfd,
    event: EventFd,
}

impl Doorbell {
    /// A new one.
    ///
    /// # Errors
    /// [`SegmentError::Memory`].
    pub fn create() -> Result<Self, SegmentError> {
        let mapping = Memfd::create("selvedge doorbell", BELL_LEN)?;
        mapping.put(BELL_WORD, BELL_STREAMS as u64);
        mapping.put_header(BELL_MAGIC, VERSION, 0);
        Ok(Self { mapping, event: EventFd::new().map_err(SegmentError::Event)? })
    }

    /// One that another process has.
    pub fn open(file: OwnedFd, event: OwnedFd) -> Result<Self, SegmentError> {
        let mapping = Memfd::open(file, BELL_LEN..=BELL_LEN)?;
        mapping.header(BELL_MAGIC, VERSION, 1).map_err(MemoryError::from)?;
        let value = mapping.word(BELL_WORD);
        if value != BELL_STREAMS as u64 {
            let error = HeaderError::Number { what: "the number of bits", value };
            return Err(MemoryError::from(error).into());
        }
        let event = EventFd::of(event).map_err(SegmentError::Event)?;
        Ok(Self { mapping, event })
    }

    /// Whether the coprocessor sleeps, and whether a producer has rung.
    #[must_use]
    pub fn state(&self) -> &Bell {
        self.mapping.bell(STATE_AT)
    }

    /// The bits of 64 streams.
    #[must_use]
    pub fn bits(&self, word: usize) -> &AtomicU64 {
        assert!(word < BELL_STREAMS / 64, "inside");
        self.mapping.atomic(BITS_AT + word * 8)
    }

    /// Sets the bit of a stream with a new frame, and wakes the coprocessor if it sleeps.
    pub fn ring(&self, stream: usize) {
        let bit = 1 << (stream % 64);
        // Release: the thread that takes the bit sees the frames that were enqueued before.
        self.bits(stream / 64).fetch_or(bit, std::sync::atomic::Ordering::Release);
        if self.state().notify() {
            self.event.ring();
        }
    }

    /// The file by which another process maps it.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        self.mapping.file()
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> std::os::fd::BorrowedFd<'_> {
        self.event.as_fd()
    }
}

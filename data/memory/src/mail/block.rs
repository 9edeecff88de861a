//! The memory of a mailbox: counters and data in one block.
//!
//! # Layout
//! All numbers are native-endian. Positions count bytes since the beginning and never wrap; the byte
//! at position `p` lies at `512 + p mod capacity`.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | a [`Layout`]: `SLVGMAIL`, version 2, kind 1 if messages that were not read are overwritten, else 0 | its maker, once |
//! | 24 | u64: capacity in bytes, a power of two from 256 to 2^30 | its maker, once |
//! | 32 | u64: bound, the most messages that wait, 1 to 65536 | its maker, once |
//! | 128 | u64 `tail`: where the next message will begin | writer |
//! | 136 | u64 `low`: before it all is, or is being, overwritten | writer |
//! | 144 | u64: 1 once the writer is gone | writer |
//! | 256 | u64 `head`: where the next message to be read begins | reader |
//! | 264 | u64: messages that the reader missed | reader |
//! | 272 | u64: 1 once the reader is gone | reader |
//! | 384 | u32: the reader's [`Bell`]: 0 awake, 1 sleeping, 2 notified | both |
//! | 512 | the data | writer |
//!
//! A message takes, from a multiple of 8 on: u32 its length; u32 its number, modulo 2^32; u64 a tag (a
//! channel's deadline); its bytes, up to the next multiple of 8; u64 the total number of these bytes.

use core::ptr::NonNull;

use crate::Bell;
use crate::header::Header as Layout;
#[cfg(not(loom))]
use crate::region::{RegionError, RegionSlice};
#[cfg(not(loom))]
use crate::sync::Ordering;
use crate::sync::{Arc, AtomicU64, CacheLine};

const MAGIC: [u8; 8] = *b"SLVGMAIL";
const VERSION: u32 = 2;
/// Bytes of a message beside its own.
pub(super) const RECORD_OVERHEAD: u64 = 24;
/// The least bytes for messages; fewer where loom tries every interleaving of every word.
const CAPACITY_MIN: u64 = if cfg!(loom) { 64 } else { 256 };
const CAPACITY_MAX: u64 = 1 << 30;
const BOUND_MAX: u64 = 65_536;

#[repr(C)]
pub(super) struct Header {
    fixed: CacheLine<Fixed>,
    pub(super) writer: CacheLine<Writer>,
    pub(super) reader: CacheLine<Reader>,
    pub(super) bell: CacheLine<Bell>,
}

#[repr(C)]
struct Fixed {
    layout: [AtomicU64; 3],
    capacity: AtomicU64,
    bound: AtomicU64,
}

#[repr(C)]
pub(super) struct Writer {
    pub(super) tail: AtomicU64,
    pub(super) low: AtomicU64,
    pub(super) gone: AtomicU64,
}

#[repr(C)]
pub(super) struct Reader {
    pub(super) head: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) gone: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Header, writer) == 128 && offset_of!(Writer, gone) == 16);
    assert!(offset_of!(Header, reader) == 256 && offset_of!(Reader, missed) == 8);
    assert!(offset_of!(Header, bell) == 384 && size_of::<Header>() == HEADER);
};

const HEADER: usize = 512;

/// The size of a mailbox, and its behaviour when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxSpec {
    /// Bytes for messages, each with 24 beside its own; a power of two from 256 to 2^30.
    pub capacity: u64,
    /// The most waiting messages, 1 to 65536.
    pub bound: u64,
    /// Whether the oldest messages make room when it is full. Otherwise the writer gets an error.
    pub overwrites: bool,
}

impl MailboxSpec {
    /// The nearest valid values.
    #[must_use]
    pub fn clamped(self) -> Self {
        let capacity = self.capacity.clamp(CAPACITY_MIN, CAPACITY_MAX).next_power_of_two();
        Self { capacity, bound: self.bound.clamp(1, BOUND_MAX), ..self }
    }

    /// The longest message that fits.
    #[must_use]
    pub const fn longest(self) -> usize {
        (self.capacity - RECORD_OVERHEAD) as usize
    }

    #[cfg(not(loom))]
    fn is_sound(self) -> bool {
        self == self.clamped()
    }

    fn layout(self) -> Layout {
        let length = (HEADER as u64).wrapping_add(self.capacity);
        Layout { magic: MAGIC, version: VERSION, kind: self.overwrites.into(), length }
    }
}

/// Bytes that a mailbox takes in a region.
#[cfg(not(loom))]
#[must_use]
pub const fn mailbox_region(capacity: u64) -> usize {
    HEADER + capacity as usize
}

/// Bytes that a message of this length takes.
pub(super) const fn stride(len: u64) -> u64 {
    len.next_multiple_of(8) + RECORD_OVERHEAD
}

/// A block of this process.
struct Block {
    header: Header,
    words: alloc::vec::Vec<AtomicU64>,
}

/// The owner that keeps the memory in place.
enum Backing {
    Owned(#[expect(dead_code, reason = "keeps it")] Arc<Block>),
    #[cfg(not(loom))]
    Region(#[expect(dead_code, reason = "keeps it")] RegionSlice),
}

/// The part that both sides see.
pub(super) struct Shared {
    header: NonNull<Header>,
    words: NonNull<AtomicU64>,
    /// The number of words less one.
    mask: usize,
    pub(super) spec: MailboxSpec,
    _keep: Backing,
}

// SAFETY: everything in the block is atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Memory of this process, for both sides.
    pub(super) fn pair(spec: MailboxSpec) -> (Self, Self) {
        let word = |value| AtomicU64::new(value);
        let header = Header {
            fixed: CacheLine(Fixed {
                layout: spec.layout().words().map(AtomicU64::new),
                capacity: word(spec.capacity),
                bound: word(spec.bound),
            }),
            writer: CacheLine(Writer { tail: word(0), low: word(0), gone: word(0) }),
            reader: CacheLine(Reader { head: word(0), missed: word(0), gone: word(0) }),
            bell: CacheLine(Bell::default()),
        };
        let words = (0..spec.capacity / 8).map(|_| AtomicU64::new(0)).collect();
        let block = Arc::new(Block { header, words });
        let side = |block: Arc<Block>| Self {
            header: NonNull::from(&block.header),
            words: NonNull::from(block.words.as_slice()).cast(),
            mask: block.words.len() - 1,
            spec,
            _keep: Backing::Owned(block),
        };
        (side(Arc::clone(&block)), side(block))
    }

    #[cfg(not(loom))]
    fn of(part: RegionSlice, spec: MailboxSpec) -> Self {
        // SAFETY: the part has room for header and data.
        let words = unsafe { part.base().add(HEADER) };
        Self {
            header: part.base().cast(),
            words: words.cast(),
            mask: (spec.capacity / 8) as usize - 1,
            spec,
            _keep: Backing::Region(part),
        }
    }

    /// Lays an empty mailbox out in a region.
    #[cfg(not(loom))]
    pub(super) fn create(
        region: &Arc<dyn crate::Region>,
        at: usize,
        spec: MailboxSpec,
    ) -> Result<Self, RegionError> {
        let spec = spec.clamped();
        let part = RegionSlice::new(region, at, mailbox_region(spec.capacity))?;
        let shared = Self::of(part, spec);
        let header = shared.header();
        for counter in [&header.writer.0.tail, &header.writer.0.low, &header.writer.0.gone]
            .into_iter()
            .chain([&header.reader.0.head, &header.reader.0.missed, &header.reader.0.gone])
        {
            counter.store(0, Ordering::Relaxed);
        }
        header.bell.0.wake();
        header.fixed.0.capacity.store(spec.capacity, Ordering::Relaxed);
        header.fixed.0.bound.store(spec.bound, Ordering::Relaxed);
        spec.layout().write(&header.fixed.0.layout);
        Ok(shared)
    }

    /// A mailbox that another process has laid out; its header is read once.
    #[cfg(not(loom))]
    pub(super) fn open(region: &Arc<dyn crate::Region>, at: usize) -> Result<Self, RegionError> {
        let header = RegionSlice::new(region, at, HEADER)?;
        // SAFETY: inside, aligned, and of atomics only.
        let fixed = unsafe { &header.base().cast::<Header>().as_ref().fixed.0 };
        let layout = Layout::read(&fixed.layout).check(MAGIC, VERSION, 2)?;
        let [capacity, bound] =
            [&fixed.capacity, &fixed.bound].map(|word| word.load(Ordering::Acquire));
        let spec = MailboxSpec { capacity, bound, overwrites: layout.kind == 1 };
        if !spec.is_sound() {
            return Err(RegionError::Header);
        }
        layout.check_length(mailbox_region(capacity))?;
        Ok(Self::of(RegionSlice::new(region, at, mailbox_region(capacity))?, spec))
    }

    #[inline]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: kept in place by `_keep`, and of atomics only.
        unsafe { self.header.as_ref() }
    }

    /// The word at a position.
    #[inline]
    pub(super) fn word(&self, position: u64) -> &AtomicU64 {
        let at = (position / 8) as usize & self.mask;
        // SAFETY: masked to lie inside.
        unsafe { self.words.add(at).as_ref() }
    }

    /// The words from a position on, in one or two pieces; at most as many as there are.
    #[inline]
    pub(super) fn words(&self, position: u64, count: usize) -> (&[AtomicU64], &[AtomicU64]) {
        let at = (position / 8) as usize & self.mask;
        let all = self.mask + 1;
        let count = count.min(all);
        let first = count.min(all - at);
        // SAFETY: both lie inside: `at + first <= all` and `count - first <= at`.
        unsafe {
            (
                core::slice::from_raw_parts(self.words.add(at).as_ptr(), first),
                core::slice::from_raw_parts(self.words.as_ptr(), count - first),
            )
        }
    }
}

//! The memory of a pool: two counters, and bytes in which records lie.
//!
//! # Layout
//! One block of memory: allocated, or a part of a [`Region`](crate::Region) that is shared between
//! processes. Counters are native-endian `u64`.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | `tail`: position behind the last committed record | writer |
//! | 128 | `head`: position of the oldest record that is not freed | reader |
//! | 256 | the bytes; the byte at position `p` is byte `p mod capacity` | as the counters state |

use core::alloc::Layout;
use core::ptr::NonNull;

use selvedge_units::Bytes;

#[cfg(not(loom))]
use crate::region::RegionSlice;
#[cfg(loom)]
use crate::sync::UnsafeCell;
use crate::sync::{AtomicU64, CacheLine};

/// Bytes of a record's header, and what all positions of records are multiples of.
pub(super) const HEADER: u64 = 16;

const CAPACITY_MIN: u64 = 4 * HEADER;
const CAPACITY_MAX: u64 = 1 << 30;

/// Bytes that a payload of this length takes with its header and padding.
pub(super) const fn stride(len: u64) -> u64 {
    HEADER + len.next_multiple_of(HEADER)
}

/// The state of the bytes behind a header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Committed = 1,
    Released = 2,
    Skipped = 3,
}

/// A record's header.
#[derive(Clone, Copy)]
pub(super) struct Record {
    /// Position of the payload's first byte.
    pub(super) start: u64,
    /// Bytes of payload.
    pub(super) len: u32,
    pub(super) state: State,
}

#[repr(C)]
struct Header {
    /// Position behind the last committed record; the writer's counter.
    tail: CacheLine<AtomicU64>,
    /// Position of the oldest record that is not freed; the reader's counter.
    head: CacheLine<AtomicU64>,
}

#[cfg(not(loom))]
const _: () = {
    assert!(core::mem::offset_of!(Header, head) == 128);
    assert!(size_of::<Header>() == 256);
};

/// The owner that keeps the block in place.
enum Backing {
    Owned(Layout),
    #[cfg(not(loom))]
    Region {
        part: RegionSlice,
    },
}

pub(super) struct Arena {
    header: NonNull<Header>,
    base: NonNull<u8>,
    capacity: u64,
    keep: Backing,
    /// Stand for the bytes, 16 by 16, so that loom sees every access.
    #[cfg(loom)]
    cells: alloc::vec::Vec<UnsafeCell<()>>,
}

// SAFETY: the bytes are accessed through `put`, `get` and `bytes` only, whose callers make sure that they own
// those bytes by the counters.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(capacity: Bytes) -> Self {
        let capacity = capacity.0.clamp(CAPACITY_MIN, CAPACITY_MAX).next_multiple_of(HEADER);
        let bytes = Layout::from_size_align(capacity as usize, HEADER as usize)
            .expect("1 GiB fits the address space");
        let (layout, at) =
            Layout::new::<Header>().extend(bytes).expect("1 GiB fits the address space");
        // SAFETY: the layout is not empty. Zeroed, since a reservation shows its bytes as they are.
        let block = unsafe { alloc::alloc::alloc_zeroed(layout) };
        let Some(block) = NonNull::new(block) else { alloc::alloc::handle_alloc_error(layout) };
        let header = block.cast::<Header>();
        let counter = || CacheLine(AtomicU64::new(0));
        // SAFETY: both lie in the block just allocated, aligned as its layout says.
        let base = unsafe {
            header.write(Header { tail: counter(), head: counter() });
            block.add(at)
        };
        Self {
            header,
            base,
            capacity,
            keep: Backing::Owned(layout),
            #[cfg(loom)]
            cells: (0..capacity / HEADER).map(|_| UnsafeCell::new(())).collect(),
        }
    }

    /// A pool in a region, of a capacity that the caller knows.
    #[cfg(not(loom))]
    pub(super) fn within(part: RegionSlice, capacity: u64) -> Self {
        let header = part.base().cast::<Header>();
        // SAFETY: the part holds a header and the bytes behind it; the caller made it long enough.
        let base = unsafe { part.base().add(size_of::<Header>()) };
        Self { header, base, capacity, keep: Backing::Region { part } }
    }

    fn counters(&self) -> &Header {
        // SAFETY: written by `new` or in a region, where every word is a value; never borrowed
        // mutably, and alive as long as `keep`.
        unsafe { self.header.as_ref() }
    }

    pub(super) fn tail(&self) -> &AtomicU64 {
        &self.counters().tail.0
    }

    pub(super) fn head(&self) -> &AtomicU64 {
        &self.counters().head.0
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes from a position to where the circle closes.
    pub(super) const fn bytes_to_end(&self, at: u64) -> u64 {
        self.capacity - at % self.capacity
    }

    /// A pointer to these bytes, which must not cross the end. Making the pointer touches nothing.
    pub(super) fn bytes(&self, at: u64, len: u64) -> *mut [u8] {
        let offset = at % self.capacity;
        assert!(offset + len <= self.capacity, "a payload lies in one piece");
        // SAFETY: in bounds of the allocation, as just asserted.
        let first = unsafe { self.base.as_ptr().add(offset as usize) };
        core::ptr::slice_from_raw_parts_mut(first, len as usize)
    }

    /// Writes a record's header.
    ///
    /// # Safety
    /// The caller owns the bytes of the header, and `at` is a multiple of [`HEADER`].
    pub(super) unsafe fn put(&self, at: u64, record: Record) {
        self.trace_write(at, HEADER);
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(&record.start.to_le_bytes());
        header[8..12].copy_from_slice(&record.len.to_le_bytes());
        header[12..].copy_from_slice(&(record.state as u32).to_le_bytes());
        // SAFETY: in bounds, and the caller's. No reference is made: in a region other processes may write
        // here.
        unsafe { self.bytes(at, HEADER).cast::<[u8; HEADER as usize]>().write(header) };
    }

    /// Copies bytes to a position of a region, without a reference to it.
    pub(super) fn copy_in(&self, at: u64, bytes: &[u8]) {
        #[cfg(not(loom))]
        if let Backing::Region { part } = &self.keep {
            let offset = at % self.capacity;
            assert!(offset + bytes.len() as u64 <= self.capacity, "a payload lies in one piece");
            part.copy_in(size_of::<Header>() + offset as usize, bytes);
        }
        #[cfg(loom)]
        let _ = (at, bytes);
    }

    /// Reads a record's header; `None` if its state is invalid.
    ///
    /// # Safety
    /// The caller owns the bytes of the header, and `at` is a multiple of [`HEADER`].
    pub(super) unsafe fn get(&self, at: u64) -> Option<Record> {
        self.trace_read(at, HEADER);
        // SAFETY: in bounds, and the caller's.
        let header = unsafe { &*self.bytes(at, HEADER) };
        let word = |from: usize| {
            u32::from_le_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]])
        };
        let state = match word(12) {
            1 => State::Committed,
            2 => State::Released,
            3 => State::Skipped,
            _ => return None,
        };
        let start = u64::from(word(4)) << 32 | u64::from(word(0));
        Some(Record { start, len: word(8), state })
    }

    /// Reports to loom that these bytes are read.
    #[cfg(loom)]
    pub(super) fn trace_read(&self, at: u64, len: u64) {
        for unit in self.units(at, len) {
            self.cells[unit].with(|_| ());
        }
    }

    /// Reports to loom that these bytes are written.
    #[cfg(loom)]
    pub(super) fn trace_write(&self, at: u64, len: u64) {
        for unit in self.units(at, len) {
            self.cells[unit].with_mut(|_| ());
        }
    }

    #[cfg(loom)]
    fn units(&self, at: u64, len: u64) -> core::ops::Range<usize> {
        let first = (at % self.capacity / HEADER) as usize;
        first..first + (len / HEADER) as usize
    }

    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn trace_read(&self, _at: u64, _len: u64) {}

    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn trace_write(&self, _at: u64, _len: u64) {}
}

impl Drop for Arena {
    fn drop(&mut self) {
        match self.keep {
            // SAFETY: allocated with this layout, and both halves are gone; loom's atomics need
            // their drop.
            Backing::Owned(layout) => unsafe {
                self.header.drop_in_place();
                alloc::alloc::dealloc(self.header.as_ptr().cast(), layout);
            },
            #[cfg(not(loom))]
            Backing::Region { .. } => {}
        }
    }
}

/// Bytes that a pool of this capacity takes in a region.
#[cfg(not(loom))]
pub(super) const fn bytes_of(capacity: u64) -> usize {
    size_of::<Header>() + capacity as usize
}

/// Whether a pool in a region may have this capacity.
#[cfg(not(loom))]
pub(super) const fn is_capacity(capacity: u64) -> bool {
    capacity.is_multiple_of(HEADER) && capacity >= CAPACITY_MIN && capacity <= CAPACITY_MAX
}

//! The memory of a ring: counters and slots in one block.
//!
//! # Layout
//! One block of memory: allocated, or a part of a [`Region`](crate::Region) that is shared between
//! processes. All numbers are native-endian `u32`.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | capacity in slots, a power of two from 2 to 65536 | its maker, once |
//! | 4 | bytes per slot | its maker, once |
//! | 128 | `tail`: items pushed since the beginning, modulo 2^32 | producer |
//! | 132 | 1 once the producer is gone, else 0 | producer |
//! | 256 | `head`: items popped since the beginning, modulo 2^32 | consumer |
//! | 260 | 1 once the consumer is gone, else 0 | consumer |
//! | 384 | the slots; item `n` lies in slot `n mod capacity` | producer |
//!
//! There are `tail - head` items waiting, 0 to capacity.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

#[cfg(not(loom))]
use crate::region::{RegionError, RegionSlice};
use crate::sync::{Arc, AtomicU32, CacheLine, Ordering, UnsafeCell};

/// The counters that one side publishes.
#[repr(C)]
pub(super) struct Side {
    /// Items pushed, or popped, since the beginning; wraps.
    pub(super) index: AtomicU32,
    /// 1 once this side is gone.
    pub(super) gone: AtomicU32,
}

#[repr(C)]
struct Header {
    capacity: u32,
    slot_size: u32,
    producer: CacheLine<Side>,
    consumer: CacheLine<Side>,
}

#[cfg(not(loom))]
const _: () = {
    assert!(core::mem::offset_of!(Header, producer) == 128);
    assert!(core::mem::offset_of!(Header, consumer) == 256);
    assert!(core::mem::offset_of!(Side, gone) == 4);
    assert!(size_of::<Header>() == 384);
};

pub(super) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// The block, freed when both halves are gone.
struct Memory<T> {
    header: NonNull<Header>,
    slots: NonNull<Slot<T>>,
    layout: Layout,
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: both halves are gone, so nothing changes the counters, and the slots from `head` to `tail`
        // hold items that were not moved out. Loom's cells and atomics need a drop too. The block was
        // allocated with this layout.
        unsafe {
            let header = self.header.as_ref();
            let capacity = header.capacity as usize;
            if core::mem::needs_drop::<T>() {
                let [head, tail] = [&header.consumer.0, &header.producer.0]
                    .map(|side| side.index.load(Ordering::Acquire));
                for n in 0..tail.wrapping_sub(head) {
                    let at = head.wrapping_add(n) as usize & (capacity - 1);
                    let slot = self.slots.add(at).as_ref();
                    slot.with_mut(|slot| (*slot).assume_init_drop());
                }
            }
            core::ptr::slice_from_raw_parts_mut(self.slots.as_ptr(), capacity).drop_in_place();
            self.header.drop_in_place();
            alloc::alloc::dealloc(self.header.as_ptr().cast(), self.layout);
        }
    }
}

/// The part that both halves see: pointers into the block, kept at hand so that an operation follows one
/// pointer and not three.
pub(super) struct Shared<T> {
    header: NonNull<Header>,
    slots: NonNull<Slot<T>>,
    pub(super) capacity: u32,
    memory: Backing<T>,
}

/// The owner that keeps the block in place.
enum Backing<T> {
    Owned(Arc<Memory<T>>),
    #[cfg(not(loom))]
    Region(RegionSlice),
}

impl<T> Clone for Backing<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Owned(memory) => Self::Owned(Arc::clone(memory)),
            #[cfg(not(loom))]
            Self::Region(part) => Self::Region(part.clone()),
        }
    }
}

// SAFETY: the block is accessed through atomics and through slots; the counters decide which half may access
// a slot, and the items may move between threads.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// `capacity` is a power of two, at most 65536.
    pub(super) fn new(capacity: usize, start: u32) -> Self {
        const { assert!(align_of::<T>() <= align_of::<Header>(), "slots follow the header") };
        let slots = Layout::array::<Slot<T>>(capacity).expect("the slots fit the address space");
        let (layout, at) =
            Layout::new::<Header>().extend(slots).expect("the slots fit the address space");
        // SAFETY: the layout is not empty, it begins with a header.
        let block = unsafe { alloc::alloc::alloc(layout) };
        let Some(block) = NonNull::new(block) else { alloc::alloc::handle_alloc_error(layout) };
        let side = || CacheLine(Side { index: AtomicU32::new(start), gone: AtomicU32::new(0) });
        let header = block.cast::<Header>();
        // SAFETY: both lie in the block just allocated, aligned as its layout says; nothing reads
        // it before it is written.
        let slots = unsafe {
            header.write(Header {
                capacity: capacity as u32,
                slot_size: size_of::<T>() as u32,
                producer: side(),
                consumer: side(),
            });
            let slots = block.add(at).cast::<Slot<T>>();
            for n in 0..capacity {
                slots.add(n).write(UnsafeCell::new(MaybeUninit::uninit()));
            }
            slots
        };
        let memory = Backing::Owned(Arc::new(Memory { header, slots, layout }));
        Self { header, slots, capacity: capacity as u32, memory }
    }
}

/// Bytes that a ring takes in a region.
#[cfg(not(loom))]
pub(super) const fn bytes_of(capacity: u32, slot: usize) -> usize {
    size_of::<Header>() + capacity as usize * slot
}

#[cfg(not(loom))]
impl<T: Copy> Shared<T> {
    /// A ring in a region, of a capacity that the caller knows: a power of two, 2 to 65536. Nothing
    /// is read or written yet.
    pub(super) fn within(part: RegionSlice, capacity: u32) -> Self {
        const { assert!(align_of::<T>() <= align_of::<Header>(), "slots follow the header") };
        let header = part.base().cast::<Header>();
        // SAFETY: the part holds a header and the slots behind it; the caller made it long enough.
        let slots = unsafe { part.base().add(size_of::<Header>()) }.cast::<Slot<T>>();
        Self { header, slots, capacity, memory: Backing::Region(part) }
    }

    /// Writes the header of an empty ring.
    pub(super) fn clear(&self) {
        let header = self.header.as_ptr();
        // SAFETY: within the part; volatile, since other processes may read it already.
        unsafe {
            (&raw mut (*header).capacity).write_volatile(self.capacity);
            (&raw mut (*header).slot_size).write_volatile(size_of::<T>() as u32);
        }
        for side in [self.producer(), self.consumer()] {
            side.index.store(0, core::sync::atomic::Ordering::Relaxed);
            side.gone.store(0, core::sync::atomic::Ordering::Release);
        }
    }

    /// Whether the header states this ring.
    pub(super) fn check(&self) -> Result<(), RegionError> {
        let header = self.header.as_ptr();
        // SAFETY: within the part; each word is read once.
        let (capacity, slot) = unsafe {
            (
                (&raw const (*header).capacity).read_volatile(),
                (&raw const (*header).slot_size).read_volatile(),
            )
        };
        let same = capacity == self.capacity && slot as usize == size_of::<T>();
        if same { Ok(()) } else { Err(RegionError::Header) }
    }
}

impl<T> Shared<T> {
    pub(super) fn second(&self) -> Self {
        let memory = self.memory.clone();
        Self { header: self.header, slots: self.slots, capacity: self.capacity, memory }
    }

    #[inline]
    pub(super) fn producer(&self) -> &Side {
        // SAFETY: written by `new` or in a region, where every word is a value; never borrowed
        // mutably, and alive as long as `memory`.
        unsafe { &self.header.as_ref().producer.0 }
    }

    #[inline]
    pub(super) fn consumer(&self) -> &Side {
        // SAFETY: as for `producer`.
        unsafe { &self.header.as_ref().consumer.0 }
    }

    /// The slot of item `n`; a cell, so that holding it claims nothing about its content.
    #[inline]
    pub(super) fn slot(&self, n: u32) -> &Slot<T> {
        let at = (n & (self.capacity - 1)) as usize;
        // SAFETY: `new` wrote `capacity` cells, a power of two, and `at` is less; they live as
        // long as `memory`.
        unsafe { self.slots.add(at).as_ref() }
    }

    /// The slots of `count` items from the item numbered `first`, in order; `count` is at most the
    /// capacity. Two runs, since the slots wrap; each is copied as one block.
    #[inline]
    pub(super) fn slots(&self, first: u32, count: u32) -> (&[Slot<T>], &[Slot<T>]) {
        let capacity = self.capacity as usize;
        // SAFETY: as for `slot`.
        let slots = unsafe { core::slice::from_raw_parts(self.slots.as_ptr(), capacity) };
        let at = (first & (self.capacity - 1)) as usize;
        let end = at + count as usize;
        (&slots[at..end.min(capacity)], &slots[..end.saturating_sub(capacity)])
    }
}

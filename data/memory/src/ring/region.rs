//! Rings in memory that processes share: the same layout and the same producer, and a consumer that trusts
//! nothing.
//!
//! An [`UntrustedConsumer`] keeps its counter where no other process can write it, copies each item out
//! before it looks at it, and frees an item's slot only on a call of `free`. If it dies, the next consumer
//! finds the items that were not freed.

use alloc::sync::Arc;

use super::Producer;
use super::block::{Shared, bytes_of};
use crate::region::{Plain, Region, RegionError, RegionSlice};
use crate::sync::Ordering;

/// Bytes that a ring of this capacity takes in a region.
#[must_use]
pub const fn ring_region<T>(capacity: u32) -> usize {
    bytes_of(capacity, size_of::<T>())
}

/// A capacity that a ring may have: a power of two, 2 to 65536.
const fn is_capacity(capacity: u32) -> bool {
    capacity.is_power_of_two() && capacity >= 2 && capacity <= 65_536
}

fn shared<T: Plain>(
    region: &Arc<dyn Region>,
    at: usize,
    capacity: u32,
) -> Result<Shared<T>, RegionError> {
    if !is_capacity(capacity) {
        return Err(RegionError::Header);
    }
    Ok(Shared::within(RegionSlice::new(region, at, ring_region::<T>(capacity))?, capacity))
}

impl<T: Plain> Producer<T> {
    /// The producing half of a ring that lies in a region; continues where the last producer stopped.
    ///
    /// # Errors
    /// [`RegionError`] if no such ring lies there.
    pub fn within(region: &Arc<dyn Region>, at: usize, capacity: u32) -> Result<Self, RegionError> {
        let shared = shared(region, at, capacity)?;
        shared.check()?;
        let tail = shared.producer().index.load(Ordering::Acquire);
        let head_seen = shared.consumer().index.load(Ordering::Acquire);
        shared.producer().gone.store(0, Ordering::Release);
        Ok(Self { shared, tail, head_seen })
    }
}

/// The consuming half of a ring whose producer is not trusted: items are lent out in order, and
/// their slots freed in the same order later.
pub struct UntrustedConsumer<T> {
    shared: Shared<T>,
    /// Items freed; the producer sees this counter.
    head: u32,
    /// Items lent out.
    next: u32,
    tail_seen: u32,
}

impl<T: Plain> UntrustedConsumer<T> {
    /// Makes an empty ring in a region.
    ///
    /// # Errors
    /// [`RegionError::Bounds`] if it does not fit there.
    pub fn create(region: &Arc<dyn Region>, at: usize, capacity: u32) -> Result<Self, RegionError> {
        let shared = shared(region, at, capacity)?;
        shared.clear();
        Ok(Self { shared, head: 0, next: 0, tail_seen: 0 })
    }

    /// Takes over a ring that lies in a region already: it lends out from the oldest item that was not freed.
    ///
    /// # Errors
    /// [`RegionError`] if no such ring lies there, or its counters are invalid.
    pub fn resume(region: &Arc<dyn Region>, at: usize, capacity: u32) -> Result<Self, RegionError> {
        let shared = shared(region, at, capacity)?;
        shared.check()?;
        let head = shared.consumer().index.load(Ordering::Acquire);
        let tail_seen = shared.producer().index.load(Ordering::Acquire);
        if tail_seen.wrapping_sub(head) > capacity {
            return Err(RegionError::Header);
        }
        shared.consumer().gone.store(0, Ordering::Release);
        Ok(Self { shared, head, next: head, tail_seen })
    }

    /// Lends out the next item: a copy, which no other process can change. `None` when there is none.
    ///
    /// # Errors
    /// [`RegionError::Header`] while the producer's counter claims more items than there are slots: no item
    /// can be trusted then.
    #[inline]
    pub fn pop_copy(&mut self) -> Result<Option<T>, RegionError> {
        if self.next == self.tail_seen {
            let tail = self.shared.producer().index.load(Ordering::Acquire);
            if tail.wrapping_sub(self.head) > self.shared.capacity
                || tail.wrapping_sub(self.next) > tail.wrapping_sub(self.head)
            {
                return Err(RegionError::Header);
            }
            self.tail_seen = tail;
            if self.next == tail {
                return Ok(None);
            }
        }
        // SAFETY: the slot lies in the region, and every pattern of bits is a `T`. Volatile, so
        // that it is read once, whatever its producer does meanwhile.
        let item =
            self.shared.slot(self.next).with(|slot| unsafe { slot.read_volatile().assume_init() });
        self.next = self.next.wrapping_add(1);
        Ok(Some(item))
    }

    /// Whether there is nothing to lend now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.producer().index.load(Ordering::Acquire) == self.next
    }

    /// Frees the slots of the `count` oldest items that are lent out (all, if there are fewer).
    pub fn free(&mut self, count: u32) {
        let count = count.min(self.outstanding());
        self.head = self.head.wrapping_add(count);
        self.shared.consumer().index.store(self.head, Ordering::Release);
    }

    /// Items lent out and not freed.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.next.wrapping_sub(self.head)
    }

    /// How many items the ring holds when full.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.shared.capacity
    }

    /// Whether the producer has marked itself as gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.producer().gone.load(Ordering::Acquire) != 0
    }
}

impl<T> Drop for UntrustedConsumer<T> {
    fn drop(&mut self) {
        self.shared.consumer().gone.store(1, Ordering::Release);
    }
}

impl<T> core::fmt::Debug for UntrustedConsumer<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let lent = self.next.wrapping_sub(self.head);
        f.debug_struct("Lender").field("lent", &lent).finish_non_exhaustive()
    }
}

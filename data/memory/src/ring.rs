//! A bounded ring between one producer and one consumer, without locks: the path of frame descriptors from a
//! source to the scheduler.
//!
//! Counters and slots lie in one block, whose layout `ring/block.rs` states. Each side publishes its counter
//! with release order after it is done with the slots, and reads the other's with acquire order before it
//! accesses them. Each remembers the last counter that it saw of the other. It reads that counter again only
//! when the ring would be full or empty by the remembered value, so in steady flow the cache lines stay where
//! they are.

mod block;
#[cfg(not(loom))]
mod region;

use core::fmt;

#[cfg(not(loom))]
pub use self::region::{UntrustedConsumer, ring_region};

use self::block::Shared;
use crate::sync::{Ordering, read_all, write_all};

const CAPACITY_MIN: usize = 2;
const CAPACITY_MAX: usize = 65_536;

/// Makes a ring of `capacity` slots, rounded up to a power of two from 2 to 65536. Nothing is allocated
/// afterwards. Items that were not popped are dropped with the second half.
#[must_use]
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    ring_from(capacity, 0)
}

/// A ring whose counters begin at `start`, so that a test can see them wrap.
fn ring_from<T: Send>(capacity: usize, start: u32) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.clamp(CAPACITY_MIN, CAPACITY_MAX).next_power_of_two();
    let shared = Shared::new(capacity, start);
    (
        Producer { shared: shared.second(), tail: start, head_seen: start },
        Consumer { shared, head: start, tail_seen: start },
    )
}

/// The half that pushes.
pub struct Producer<T> {
    shared: Shared<T>,
    tail: u32,
    head_seen: u32,
}

impl<T: Send> Producer<T> {
    /// Appends an item, in constant time and without blocking.
    ///
    /// # Errors
    /// Returns the item when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.free_for(1) == 0 {
            return Err(item);
        }
        // SAFETY: the slot is free: the consumer has released it and cannot see it again before
        // `tail` is published.
        self.shared.slot(self.tail).with_mut(|slot| unsafe { (*slot).write(item) });
        self.publish(1);
        Ok(())
    }

    /// How many items can be pushed now; more as soon as the consumer pops.
    #[must_use]
    pub fn free(&self) -> usize {
        let head = self.shared.consumer().index.load(Ordering::Acquire);
        self.free_slots_at(head) as usize
    }

    /// Whether an item can be pushed now. Reads the consumer's counter only if the ring is full by the
    /// remembered value.
    #[inline]
    #[must_use]
    pub fn has_room(&mut self) -> bool {
        self.free_for(1) > 0
    }

    /// How many items the ring holds when full.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity as usize
    }

    /// Whether the consumer is gone, so that nothing pushed will ever be read.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.consumer().gone.load(Ordering::Acquire) != 0
    }

    #[inline]
    fn free_slots_at(&self, head: u32) -> u32 {
        self.shared.capacity.saturating_sub(self.tail.wrapping_sub(head))
    }

    /// Free slots; reads the consumer's counter only if `wanted` are not known to be free.
    #[inline]
    fn free_for(&mut self, wanted: u32) -> u32 {
        let free = self.free_slots_at(self.head_seen);
        if free >= wanted {
            return free;
        }
        self.head_seen = self.shared.consumer().index.load(Ordering::Acquire);
        self.free_slots_at(self.head_seen)
    }

    #[inline]
    fn publish(&mut self, count: u32) {
        self.tail = self.tail.wrapping_add(count);
        self.shared.producer().index.store(self.tail, Ordering::Release);
    }
}

impl<T: Copy + Send> Producer<T> {
    /// Appends as many of the items, from the front, as there is room for, and publishes them at once;
    /// returns their number.
    pub fn push_slice(&mut self, items: &[T]) -> usize {
        let wanted = items.len().min(self.shared.capacity as usize) as u32;
        let count = self.free_for(wanted).min(wanted);
        let (run, rest) = self.shared.slots(self.tail, count);
        let (front, back) = items[..count as usize].split_at(run.len());
        for (slots, items) in [(run, front), (rest, back)] {
            // SAFETY: as in `push`; there are `count` free slots from `tail` on.
            unsafe { write_all(slots, items) };
        }
        self.publish(count);
        count as usize
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.producer().gone.store(1, Ordering::Release);
    }
}

/// The half that pops.
pub struct Consumer<T> {
    shared: Shared<T>,
    head: u32,
    tail_seen: u32,
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest item, in constant time and without blocking; `None` when there is none.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.waiting_for(1) == 0 {
            return None;
        }
        // SAFETY: as in `peek`; the item is moved out once, since `head` passes it now.
        let item = self.shared.slot(self.head).with(|slot| unsafe { (*slot).assume_init_read() });
        self.publish(1);
        Some(item)
    }

    /// The oldest item, which stays where it is.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        if self.waiting_for(1) == 0 {
            return None;
        }
        // SAFETY: the producer wrote the slot before it published `tail`, and does not touch it
        // before `head` is published, which takes a mutable borrow of `self`.
        self.shared.slot(self.head).with(|slot| Some(unsafe { (*slot).assume_init_ref() }))
    }

    /// How many items wait now; more as soon as the producer pushes.
    #[must_use]
    pub fn len(&self) -> usize {
        let tail = self.shared.producer().index.load(Ordering::Acquire);
        self.waiting_slots_at(tail) as usize
    }

    /// Whether no item waits now. Reads the producer's counter only if no item waits by the remembered value.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting_slots_at(self.tail_seen) == 0 && self.len() == 0
    }

    /// Whether the producer is gone. Items that it pushed before can still be popped: the ring has ended if
    /// this is true and a `pop` *after* it finds nothing.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.producer().gone.load(Ordering::Acquire) != 0
    }

    #[inline]
    fn waiting_slots_at(&self, tail: u32) -> u32 {
        tail.wrapping_sub(self.head).min(self.shared.capacity)
    }

    /// Waiting items; reads the producer's counter only if `wanted` are not known to wait.
    #[inline]
    fn waiting_for(&mut self, wanted: u32) -> u32 {
        let waiting = self.waiting_slots_at(self.tail_seen);
        if waiting >= wanted {
            return waiting;
        }
        self.tail_seen = self.shared.producer().index.load(Ordering::Acquire);
        self.waiting_slots_at(self.tail_seen)
    }

    #[inline]
    fn publish(&mut self, count: u32) {
        self.head = self.head.wrapping_add(count);
        self.shared.consumer().index.store(self.head, Ordering::Release);
    }
}

impl<T: Copy + Send> Consumer<T> {
    /// Takes as many of the oldest items as there are and as `items` has room for, writes them to its front,
    /// and returns their number.
    pub fn pop_into(&mut self, items: &mut [T]) -> usize {
        let wanted = items.len().min(self.shared.capacity as usize) as u32;
        let count = self.waiting_for(wanted).min(wanted);
        let (run, rest) = self.shared.slots(self.head, count);
        let (front, back) = items[..count as usize].split_at_mut(run.len());
        for (slots, items) in [(run, front), (rest, back)] {
            // SAFETY: as in `peek`; there are `count` written slots from `head` on.
            unsafe { read_all(slots, items) };
        }
        self.publish(count);
        count as usize
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.consumer().gone.store(1, Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("capacity", &self.shared.capacity).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("capacity", &self.shared.capacity).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_a_power_of_two_within_bounds() {
        let mut cases = vec![(0, 2), (2, 2), (3, 4), (256, 256)];
        if cfg!(not(miri)) {
            cases.push((usize::MAX, 65_536));
        }
        for (asked, given) in cases {
            assert_eq!(ring::<u8>(asked).0.capacity(), given, "asked for {asked}");
        }
    }

    #[test]
    fn a_full_ring_gives_the_item_back() {
        let (mut producer, mut consumer) = ring(2);
        assert_eq!((producer.push('a'), producer.push('b')), (Ok(()), Ok(())));
        assert_eq!(producer.push('c'), Err('c'));
        assert_eq!(consumer.pop(), Some('a'));
        assert_eq!(producer.push('c'), Ok(()));
        assert_eq!((consumer.pop(), consumer.pop(), consumer.pop()), (Some('b'), Some('c'), None));
    }

    #[test]
    fn counters_wrap() {
        let (mut producer, mut consumer) = ring_from(4, u32::MAX - 1);
        for round in 0..4_u64 {
            let items = [round, round + 10, round + 20];
            assert_eq!(producer.push_slice(&items), 3);
            assert_eq!((producer.free(), consumer.len()), (1, 3));
            let mut taken = [0; 4];
            assert_eq!(consumer.pop_into(&mut taken), 3);
            assert_eq!(taken[..3], items);
        }
    }

    #[test]
    fn what_was_pushed_survives_its_producer() {
        let (mut producer, mut consumer) = ring(4);
        assert_eq!(producer.push(7), Ok(()));
        assert!(!consumer.is_abandoned());
        drop(producer);
        assert!(consumer.is_abandoned());
        assert_eq!(consumer.peek(), Some(&7));
        assert_eq!((consumer.pop(), consumer.pop()), (Some(7), None));
    }

    #[test]
    fn a_producer_sees_that_nobody_reads() {
        let (mut producer, consumer) = ring(2);
        assert!(!producer.is_abandoned());
        drop(consumer);
        assert!(producer.is_abandoned());
        assert_eq!(
            (producer.push(1), producer.push(2), producer.push(3)),
            (Ok(()), Ok(()), Err(3))
        );
    }

    #[test]
    fn items_that_nobody_popped_are_dropped_once() {
        let item = alloc::sync::Arc::new(());
        for start in [0, u32::MAX - 1] {
            let (mut producer, mut consumer) = ring_from(4, start);
            for _ in 0..4 {
                assert!(producer.push(alloc::sync::Arc::clone(&item)).is_ok());
            }
            drop(consumer.pop());
            assert!(producer.push(alloc::sync::Arc::clone(&item)).is_ok());
            assert_eq!(alloc::sync::Arc::strong_count(&item), 5);
            drop(producer);
            assert_eq!(alloc::sync::Arc::strong_count(&item), 5);
            drop(consumer);
            assert_eq!(alloc::sync::Arc::strong_count(&item), 1);
        }
    }

    #[test]
    fn items_of_no_size_are_counted() {
        let (mut producer, mut consumer) = ring(2);
        assert_eq!(producer.push_slice(&[(), (), ()]), 2);
        assert_eq!((consumer.pop(), consumer.pop(), consumer.pop()), (Some(()), Some(()), None));
    }
}

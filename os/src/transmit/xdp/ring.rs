//! The two rings that an AF_XDP socket shares with the kernel: frames to send, and frames that are free
//! again. Each is two counters and slots; each counter has one writer.

use std::sync::atomic::{AtomicU32, Ordering};

/// The location of a ring.
#[derive(Debug)]
pub(super) struct Ring<T> {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    slots: *mut T,
    /// The number of slots less one; it is a power of two.
    mask: u32,
}

// SAFETY: the pointers are into memory that its owner keeps mapped and that no thread owns.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// A ring over memory: its counters, its slots, and the number of slots.
    ///
    /// # Safety
    /// The counters and `slots` slots, a power of two, must stay mapped for as long as the ring is used, and
    /// no other code may write where this side does.
    pub(super) const unsafe fn new(
        producer: *const AtomicU32,
        consumer: *const AtomicU32,
        slots: *mut T,
        count: u32,
    ) -> Self {
        Self { producer, consumer, slots, mask: count - 1 }
    }

    fn counters(&self) -> (&AtomicU32, &AtomicU32) {
        // SAFETY: mapped for as long as the ring is used (see `new`), aligned as the kernel lays
        // them out, and written as atomics by both sides.
        unsafe { (&*self.producer, &*self.consumer) }
    }

    const fn slot(&self, n: u32) -> *mut T {
        // SAFETY: masked, so within the slots.
        unsafe { self.slots.add((n & self.mask) as usize) }
    }

    /// How many items the other side has not taken yet.
    pub(super) fn waiting(&self) -> u32 {
        let (producer, consumer) = self.counters();
        producer.load(Ordering::Relaxed).wrapping_sub(consumer.load(Ordering::Acquire))
    }

    /// Enqueues one; the caller has checked that there is room.
    pub(super) fn push(&mut self, item: T) {
        let producer = self.counters().0;
        let at = producer.load(Ordering::Relaxed);
        // SAFETY: the slot is this side's until the counter changes (see `new`).
        unsafe { self.slot(at).write(item) };
        producer.store(at.wrapping_add(1), Ordering::Release);
    }

    /// Takes back the last item that was enqueued; the other side must not be reading.
    pub(super) fn pop_back(&mut self) -> T {
        let producer = self.counters().0;
        let at = producer.load(Ordering::Relaxed).wrapping_sub(1);
        producer.store(at, Ordering::Release);
        // SAFETY: this side wrote the slot, and owns it again.
        unsafe { self.slot(at).read() }
    }

    /// Takes the oldest item that the other side enqueued.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (producer, consumer) = self.counters();
        let at = consumer.load(Ordering::Relaxed);
        if producer.load(Ordering::Acquire) == at {
            return None;
        }
        // SAFETY: the other side wrote the slot before it moved its counter.
        let item = unsafe { self.slot(at).read() };
        consumer.store(at.wrapping_add(1), Ordering::Release);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs under Miri.
    #[test]
    fn what_goes_in_comes_out_and_can_be_taken_back() {
        let counters = [const { AtomicU32::new(u32::MAX - 2) }; 2];
        let mut slots = [0_u64; 4];
        // SAFETY: both outlive the ring, and only it accesses them.
        let mut ring = unsafe {
            Ring::new(&raw const counters[0], &raw const counters[1], slots.as_mut_ptr(), 4)
        };
        assert_eq!(ring.pop(), None);
        for n in 1..=4 {
            ring.push(n);
        }
        assert_eq!(ring.waiting(), 4);
        assert_eq!((ring.pop(), ring.pop()), (Some(1), Some(2)));
        assert_eq!(ring.pop_back(), 4);
        ring.push(5);
        assert_eq!((ring.pop(), ring.pop(), ring.pop()), (Some(3), Some(5), None));
        assert_eq!(ring.waiting(), 0);
    }
}

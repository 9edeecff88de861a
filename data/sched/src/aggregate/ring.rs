//! Rings of streamlets: each set links those of its streamlets that have frames. Idle streamlets are never
//! visited, and a streamlet may leave from anywhere in constant time.

use alloc::vec::Vec;

use super::StreamletCounts;

/// No streamlet.
const NONE: u32 = u32::MAX;

/// A streamlet: 64 bytes.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) set: u8,
    present: bool,
    /// Neighbours, while linked.
    previous: u32,
    next: u32,
    /// Frames that wait, without the head.
    pub(super) waiting: u64,
    pub(super) tally: StreamletCounts,
}

impl Entry {
    pub(super) fn new(set: u8) -> Self {
        let (previous, next) = (NONE, NONE);
        Self { set, present: true, previous, next, waiting: 0, tally: StreamletCounts::default() }
    }
}

/// Both ends of a set's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    first: u32,
    last: u32,
}

impl Default for Ring {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Ring {
    pub(super) const fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

/// All streamlets, and the links between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Rings {
    entries: Vec<Entry>,
}

impl Rings {
    /// # Panics
    /// If there are 2^32 - 1 streamlets already.
    pub(super) fn push(&mut self, entry: Entry) -> u32 {
        let index = u32::try_from(self.entries.len()).ok().filter(|&index| index != NONE);
        let index = index.expect("fewer than 2^32 - 1 streamlets");
        self.entries.push(entry);
        index
    }

    pub(super) fn put(&mut self, index: u32, entry: Entry) {
        self.entries[index as usize] = entry;
    }

    /// Frees the index.
    pub(super) fn clear(&mut self, index: u32) {
        self.entries[index as usize].present = false;
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.entries.get(index as usize).is_some_and(|entry| entry.present)
    }

    pub(super) fn get(&self, index: u32) -> &Entry {
        let found = self.entries.get(index as usize).filter(|entry| entry.present);
        found.unwrap_or_else(|| panic!("there is no streamlet {index}"))
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Entry {
        let found = self.entries.get_mut(index as usize).filter(|entry| entry.present);
        found.unwrap_or_else(|| panic!("there is no streamlet {index}"))
    }

    pub(super) fn append(&mut self, ring: &mut Ring, index: u32) {
        let entry = &mut self.entries[index as usize];
        (entry.previous, entry.next) = (ring.last, NONE);
        match ring.last {
            NONE => ring.first = index,
            last => self.entries[last as usize].next = index,
        }
        ring.last = index;
    }

    pub(super) fn pop(&mut self, ring: &mut Ring) -> Option<u32> {
        let first = ring.first;
        (first != NONE).then(|| {
            self.unlink(ring, first);
            first
        })
    }

    pub(super) fn unlink(&mut self, ring: &mut Ring, index: u32) {
        let Entry { previous, next, .. } = self.entries[index as usize];
        match previous {
            NONE => ring.first = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => ring.last = previous,
            next => self.entries[next as usize].previous = previous,
        }
    }

    /// The streamlets of a ring, beginning with the next.
    #[cfg(test)]
    pub(super) fn linked(&self, ring: &Ring) -> impl Iterator<Item = u32> {
        let some = |index: u32| (index != NONE).then_some(index);
        core::iter::successors(some(ring.first), move |&index| {
            some(self.entries[index as usize].next)
        })
    }
}

//! The same decisions by `std`'s binary heap, to compare with: as good as a heap gets without
//! giving up the order, on streams whose attributes are small enough to be packed.

use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hint::black_box;

use selvedge_units::Instant;

use super::{Load, frame};
use crate::slot::{Cold, Slot};
use crate::window::{CLASS_BITS, tightness_class};
use crate::{Discipline, StreamIndex};

/// 16 bytes: deadline and tightness, or the deadline alone; then, where these are equal, 8 bits of
/// `x'`, 36 of the arrival, 20 of the stream.
type Key = u128;

pub(super) struct Heap {
    heap: BinaryHeap<Reverse<Key>>,
    slots: Vec<Slot>,
    /// Whether it goes by the window, too.
    windows: bool,
    arrival: Instant,
}

impl Heap {
    /// `None` for a discipline other than `dwcs` and `edf`, or more than 2^20 streams.
    pub(super) fn new(load: Load) -> Option<Self> {
        let windows = match load.discipline {
            Discipline::Dwcs => true,
            Discipline::Edf => false,
            _ => return None,
        };
        if load.streams > 1 << 20 {
            return None;
        }
        let mut slots: Vec<Slot> = load.contracts().map(|c| Cold::begin(&c).0).collect();
        let mut heap = Vec::with_capacity(slots.len());
        let mut arrival = Instant::ZERO;
        for (s, slot) in (0..).zip(&mut slots) {
            arrival.0 += 1;
            slot.bring_up(&frame(arrival), None);
            heap.push(Reverse(key(slot, s, windows)));
        }
        Some(Self { heap: heap.into(), slots, windows, arrival })
    }

    pub(super) fn next(&mut self) -> StreamIndex {
        self.arrival.0 += 1;
        let top = self.heap.peek_mut().expect("every stream has a head");
        let decision = if self.windows { decision::<true> } else { decision::<false> };
        decision(top, &mut self.slots, self.arrival)
    }

    pub(super) fn run(&mut self, decisions: u64) {
        for _ in 0..decisions {
            black_box(self.next());
        }
    }
}

#[inline(never)]
fn decision<const WINDOWS: bool>(
    mut top: PeekMut<'_, Reverse<Key>>,
    slots: &mut [Slot],
    arrival: Instant,
) -> StreamIndex {
    let s = top.0 as u32 & ((1 << 20) - 1);
    let slot = &mut slots[s as usize];
    let now = black_box(Instant::ZERO);
    assert!(slot.deadline > now, "nothing expires");
    black_box(slot.flags);
    slot.window.serve();
    slot.count_sent(1);
    slot.bring_up(&frame(arrival), None);
    *top = Reverse(key(slot, s, WINDOWS));
    StreamIndex(s)
}

#[inline(always)]
fn key(slot: &Slot, s: u32, windows: bool) -> Key {
    let (deadline, window) = (slot.deadline.0, slot.window.current());
    let (first, lose) = if windows {
        (deadline << CLASS_BITS | tightness_class(window), u64::from(window.lose))
    } else {
        (deadline, 0)
    };
    let second = lose << 56 | slot.arrival.0 << 20 | u64::from(s);
    u128::from(first) << 64 | u128::from(second)
}

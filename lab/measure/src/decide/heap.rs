//! The same decisions by `std`'s binary heap, to compare with: as good as a heap gets without
//! giving up the order, on streams whose attributes are small enough to be packed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::hint::{black_box, select_unpredictable};

use selvedge_data_sched::{Discipline, Head, StreamIndex};
use selvedge_data_stream::{Contract, Kind, Window, Windows};
use selvedge_units::{Duration, Instant};

use crate::load::{Load, frame};

/// 16 bytes: deadline and tightness, or the deadline alone; then, where these are equal, 8 bits of
/// `x'`, 36 of the arrival, 20 of the stream.
type Key = u128;

/// A stream's state: what the scheduler keeps of one for these disciplines, and as large.
#[repr(align(64))]
struct Slot {
    deadline: Instant,
    arrival: Instant,
    period: Duration,
    declared: Window,
    current: Window,
    sent: u32,
    kind: Kind,
    has_head: bool,
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    fn new(contract: &Contract) -> Self {
        let Windows::Whole(window) = contract.windows else { unreachable!("one for all kinds") };
        Self {
            deadline: Instant::ZERO,
            arrival: Instant::ZERO,
            period: contract.period,
            declared: window,
            current: window,
            sent: 0,
            kind: Kind::Data,
            has_head: false,
        }
    }

    #[inline(always)]
    fn set_head(&mut self, head: &Head) {
        self.has_head = true;
        let by_contract = self.deadline.max(head.arrival) + self.period;
        self.deadline = head.deadline.unwrap_or(by_contract);
        self.arrival = head.arrival;
        self.kind = head.kind;
    }

    /// Rule a, and the counter.
    #[inline(always)]
    fn dequeue(&mut self) {
        let of = self.current.of.saturating_sub(1);
        let (spent, lose) = (of == 0, self.current.lose.min(of));
        self.current.of = select_unpredictable(spent, self.declared.of, of);
        self.current.lose = select_unpredictable(spent, self.declared.lose, lose);
        self.sent = self.sent.wrapping_add(1);
    }
}

/// How many bits [`tightness`] has.
const CLASS_BITS: u32 = 20;
/// Classes below this are of windows that may lose nothing.
const NONE: u64 = 4096;
const SCALE: u64 = (1 << CLASS_BITS) - 1 - NONE;

/// `2^32 SCALE / y'`, rounded up; the first is not used. The load's windows are of at most 8 frames.
static RECIPROCALS: [u64; 16] = {
    let mut table = [0; 16];
    let mut of = 1;
    while of < table.len() {
        table[of] = (SCALE << 32).div_ceil(of as u64);
        of += 1;
    }
    table
};

/// `x'/y'` as an integer, the tighter the lower; of those that may lose nothing the larger `y'`.
#[inline(always)]
fn tightness(window: Window) -> u64 {
    let nothing = window.lose == 0;
    let of = select_unpredictable(nothing, 1, usize::from(window.of));
    let some = (u64::from(window.lose) * RECIPROCALS[of]) >> 32;
    let none = (NONE - 1).saturating_sub(u64::from(window.of));
    select_unpredictable(nothing, none, NONE + some)
}

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
        let mut slots: Vec<Slot> = load.contracts().map(|c| Slot::new(&c)).collect();
        let mut heap = Vec::with_capacity(slots.len());
        let mut arrival = Instant::ZERO;
        for (s, slot) in (0..).zip(&mut slots) {
            arrival.0 += 1;
            slot.set_head(&frame(arrival));
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
    black_box(slot.has_head);
    slot.dequeue();
    slot.set_head(&frame(arrival));
    *top = Reverse(key(slot, s, WINDOWS));
    StreamIndex(s)
}

#[inline(always)]
fn key(slot: &Slot, s: u32, windows: bool) -> Key {
    let (deadline, window) = (slot.deadline.0, slot.current);
    let (first, lose) = if windows {
        (deadline << CLASS_BITS | tightness(window), u64::from(window.lose))
    } else {
        (deadline, 0)
    };
    let second = lose << 56 | slot.arrival.0 << 20 | u64::from(s);
    u128::from(first) << 64 | u128::from(second)
}

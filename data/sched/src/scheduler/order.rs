//! Which of two streams goes, expires or becomes ready first, by the full comparison: trees use it where keys
//! are equal. Also the texts for a caller's mistakes.

use alloc::vec::Vec;

use selvedge_units::Instant;

use crate::discipline::{HeadState, Rule};
use crate::record::StreamIndex;
use crate::slot::{Flags, Slot};

#[inline(always)]
pub(super) fn head_state(s: StreamIndex, slot: &Slot) -> HeadState {
    HeadState {
        stream: s.0,
        deadline: slot.deadline,
        arrival: slot.arrival,
        period: slot.period,
        window: slot.window.current(),
        priority: slot.priority,
        weight: slot.weight,
    }
}

/// Whether the head of one stream goes before that of another, by the full comparison.
#[inline(always)]
#[allow(clippy::ptr_arg, reason = "two words in registers, where a slice would take three")]
pub(super) fn before<R: Rule>(slots: &Vec<Slot>, rule: &R) -> impl Fn(u32, u32) -> bool + Copy {
    move |a, b| {
        let place = |s: u32| {
            let slot = &slots[s as usize];
            let arrival = if R::TIES_BY_INDEX { Instant::ZERO } else { slot.arrival };
            (rule.rank(&head_state(StreamIndex(s), slot)), arrival, s)
        };
        place(a) < place(b)
    }
}

/// Whether the head of one stream expires before that of another.
#[inline(always)]
pub(super) fn due_before(slots: &[Slot]) -> impl Fn(u32, u32) -> bool + Copy {
    move |a, b| (slots[a as usize].deadline, a) < (slots[b as usize].deadline, b)
}

/// Whether the head of one stream is ready before that of another.
#[inline(always)]
pub(super) fn ready_before(slots: &[Slot]) -> impl Fn(u32, u32) -> bool + Copy {
    move |a, b| (slots[a as usize].ready(), a) < (slots[b as usize].ready(), b)
}

#[inline(always)]
pub(super) fn slot_mut(slots: &mut [Slot], s: StreamIndex) -> &mut Slot {
    match slots.get_mut(s.0 as usize) {
        Some(slot) if slot.flags.has(Flags::PRESENT) => slot,
        _ => no_stream(s),
    }
}

#[cold]
#[inline(never)]
pub(super) fn no_stream(s: StreamIndex) -> ! {
    panic!("there is no stream {}", s.0)
}

#[cold]
#[inline(never)]
pub(super) fn has_no_head(s: StreamIndex, what: &str) -> ! {
    panic!("stream {} has no head to {what}", s.0)
}

#[cold]
#[inline(never)]
pub(super) fn has_head_already(s: StreamIndex) -> ! {
    panic!("stream {} has a head already", s.0)
}

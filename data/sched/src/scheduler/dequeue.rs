//! Heads that go: one, one with the next behind it, a run of them; and heads that are dequeued or expired in
//! one step.

use selvedge_units::Instant;

use super::core::Core;
use super::order::{before, has_no_head, head_state, slot_mut};
use crate::discipline::Rule;
use crate::record::{Dequeued, Head, StreamIndex};
use crate::slot::{Count, Flags, Slot};

/// For a dequeued or expired head: it has missed its deadline.
pub(super) const EXPIRED: u64 = 1;
/// For a dequeued or expired head: its loss violates the window-constraint.
pub(super) const VIOLATION: u64 = 2;

impl Core {
    #[inline]
    pub(super) fn dequeue<R: Rule>(&mut self, rule: &mut R, s: StreamIndex) -> Dequeued {
        let tagged = self.is_observed::<R>(s);
        self.remove_head(rule, s, "serve");
        let served = self.count_served(s);
        if R::OBSERVES {
            self.notify_dequeued(rule, s, tagged);
        }
        served
    }

    #[inline(never)]
    pub(super) fn dequeue_and_enqueue<R: Rule>(
        &mut self,
        rule: &mut R,
        s: StreamIndex,
        next: &Head,
    ) -> Dequeued {
        let at = s.0 as usize;
        if R::OBSERVES {
            let served = self.dequeue(rule, s);
            self.install_head(rule, s, next);
            return served;
        }
        let ordinary = |slot: &&mut Slot| slot.flags.is_ordinary() && !slot.counter_near_carry(1);
        let Some(slot) = self.slots.get_mut(at).filter(ordinary) else {
            return self.serve_and_push_any(rule, s, next);
        };
        // The same as below for a stream without special properties.
        slot.window.apply_rule_a();
        slot.count_sent(1);
        let served = Dequeued { deadline: slot.deadline, late: false };
        slot.set_next_head(next);
        if next.arrival > self.epoch_ends {
            self.move_epoch(rule, next.arrival);
        } else if R::DEADLINE_FIRST {
            // The same as `place` does for such a stream, from values at hand: reading them back from the
            // slot would take longer.
            let key = rule.key(&head_state(s, slot), self.epoch);
            self.enter(rule, s, key);
            return served;
        }
        self.place(rule, s);
        served
    }

    #[inline(never)]
    pub(super) fn dequeue_many<R: Rule>(
        &mut self,
        rule: &mut R,
        s: StreamIndex,
        (frames, last): (u32, Instant),
        next: Option<&Head>,
    ) -> bool {
        let slot = slot_mut(&mut self.slots, s);
        if R::OBSERVES || !slot.flags.is_ordinary() || slot.counter_near_carry(frames) {
            return false;
        }
        slot.window.serve_times(frames);
        slot.count_sent(frames);
        slot.deadline = last;
        let Some(next) = next else {
            self.remove_head(rule, s, "serve");
            return true;
        };
        slot.set_next_head(next);
        if next.arrival > self.epoch_ends {
            self.move_epoch(rule, next.arrival);
        }
        self.place(rule, s);
        true
    }

    /// The stream that goes or whose head expires at `now`, under a discipline that goes by deadline. `None`
    /// unless the trees' winners are enough to decide and [`dequeue_or_expire`](Self::dequeue_or_expire) can
    /// do it. Advances the clock.
    #[inline(always)]
    pub(super) fn quick_next(&mut self, now: Instant) -> Option<StreamIndex> {
        self.clock = self.clock.max(now);
        let first = self.selection.settled_winner()?;
        let can_dequeue_or_expire = self.slots.get(first.leaf as usize)?.can_dequeue_or_expire();
        (can_dequeue_or_expire && self.waiting.is_after(self.clock.0))
            .then_some(StreamIndex(first.leaf))
    }

    /// Dequeues or expires the head of the stream that [`quick_next`](Self::quick_next) returned, and makes
    /// `next` its head. Returns the deadline of the old head, and its [fate](EXPIRED). Whether it has expired
    /// is hard to predict. So nothing here branches on that, and the result is returned as bits in registers,
    /// which the compiler does not turn into a branch either.
    #[inline(never)]
    pub(super) fn dequeue_or_expire<R: Rule>(
        &mut self,
        rule: &mut R,
        s: StreamIndex,
        next: &Head,
    ) -> (Instant, u64) {
        let deadline = self.slots[s.0 as usize].deadline;
        let expired = self.is_due(deadline);
        let slot = &mut self.slots[s.0 as usize];
        let violation = slot.dequeue_or_expire(expired);
        let fate = (u64::from(expired) * EXPIRED) | (u64::from(violation) * VIOLATION);
        slot.set_next_head(next);
        if next.arrival > self.epoch_ends {
            self.move_epoch(rule, next.arrival);
            self.place(rule, s);
        } else {
            let key = rule.key(&head_state(s, slot), self.epoch);
            self.selection.change(s.0, key, before(&self.slots, rule));
            self.look_ahead::<R>(s);
        }
        (deadline, fate)
    }

    #[inline(never)]
    fn serve_and_push_any<R: Rule>(
        &mut self,
        rule: &mut R,
        s: StreamIndex,
        next: &Head,
    ) -> Dequeued {
        if !slot_mut(&mut self.slots, s).flags.has(Flags::HEAD) {
            has_no_head(s, "serve");
        }
        let served = self.count_served(s);
        self.install_head(rule, s, next);
        served
    }

    /// Rule a and the counters.
    #[inline(always)]
    fn count_served(&mut self, s: StreamIndex) -> Dequeued {
        let at = s.0 as usize;
        let slot = &mut self.slots[at];
        let late = slot.flags.has(Flags::MISSED);
        slot.window.apply_rule_a();
        slot.count(&mut self.cold, at, Count::Sent, 1);
        if late {
            slot.count(&mut self.cold, at, Count::Late, 1);
        }
        slot.write_back(&mut self.cold, at);
        Dequeued { deadline: slot.deadline, late }
    }
}

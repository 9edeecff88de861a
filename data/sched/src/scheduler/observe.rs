//! Notifying a discipline that remembers what it has sent (a virtual time, a tag, a deficit): of heads once
//! they may go. The discipline returns the streams whose rank has changed. Nothing here runs for a discipline
//! that looks at heads alone.

use selvedge_units::Instant;

use super::core::Core;
use super::order::head_state;
use crate::discipline::Rule;
use crate::record::{Head, StreamIndex};
use crate::slot::{Flags, Slot};

impl Core {
    /// Whether the discipline was notified of a stream's head: it is, once the head may go.
    #[inline]
    pub(super) fn is_observed<R: Rule>(&self, s: StreamIndex) -> bool {
        R::OBSERVES && self.slots.get(s.0 as usize).is_some_and(|slot| self.is_ready(slot))
    }

    fn is_ready(&self, slot: &Slot) -> bool {
        slot.flags.has(Flags::WORK_CONSERVING) || slot.ready() <= self.clock
    }

    /// Notifies the discipline of a new head, if it may go; otherwise the notification follows when it may.
    #[inline(never)]
    pub(super) fn notify_head<R: Rule>(&mut self, rule: &mut R, s: StreamIndex, head: &Head) {
        let slot = &self.slots[s.0 as usize];
        if self.is_ready(slot) {
            let fresh = head.arrival > self.clock;
            rule.observe_head(&head_state(s, slot), head.size, fresh);
            self.rerank_stale(rule);
        } else {
            self.cold[s.0 as usize].size = head.size;
        }
    }

    /// Notifies the discipline that a waiting head may go.
    #[inline(never)]
    pub(super) fn notify_ready<R: Rule>(&mut self, rule: &mut R, s: StreamIndex) {
        let at = s.0 as usize;
        rule.observe_head(&head_state(s, &self.slots[at]), self.cold[at].size, true);
        self.select(rule, s);
        self.rerank_stale(rule);
    }

    /// Notifies the discipline that a head has gone, and of the head itself if it went before it was allowed
    /// to.
    #[inline(never)]
    pub(super) fn notify_dequeued<R: Rule>(&mut self, rule: &mut R, s: StreamIndex, tagged: bool) {
        let at = s.0 as usize;
        let standing = head_state(s, &self.slots[at]);
        if !tagged {
            rule.observe_head(&standing, self.cold[at].size, true);
        }
        rule.observe_dequeued(&standing);
        self.rerank_stale(rule);
    }

    /// Notifies the discipline that a head is lost.
    #[inline(never)]
    pub(super) fn notify_dropped<R: Rule>(&mut self, rule: &mut R, s: StreamIndex) {
        rule.observe_dropped(&head_state(s, &self.slots[s.0 as usize]));
        self.rerank_stale(rule);
    }

    /// Notifies the discipline of the time.
    #[inline(never)]
    pub(super) fn notify_time<R: Rule>(&mut self, rule: &mut R) {
        rule.advance(self.clock);
        self.rerank_stale(rule);
    }

    /// Ranks anew all streams that the discipline reports as changed.
    fn rerank_stale<R: Rule>(&mut self, rule: &mut R) {
        while let Some(stale) = rule.next_stale() {
            let s = StreamIndex(stale);
            let slot = &self.slots[stale as usize];
            if slot.flags.has(Flags::HEAD) && self.is_ready(slot) {
                self.select(rule, s);
            }
        }
    }

    /// The next instant at which the discipline will report a change.
    pub(super) fn next_discipline_event<R: Rule>(rule: &R, now: Instant) -> Option<Instant> {
        if R::OBSERVES { rule.next_event(now) } else { None }
    }
}

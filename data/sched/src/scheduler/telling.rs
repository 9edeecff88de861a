//! What a discipline is told that remembers what it has sent (a virtual time, a tag, a deficit):
//! heads once they may go, and back from it, whose rank has changed. Nothing here runs for a
//! discipline that looks at heads alone.

use super::{Scheduler, before, standing};
use crate::slot::{Flags, Head, Slot, StreamIndex};

impl Scheduler {
    /// Whether the discipline has been told of a stream's head: it is, once the head may go.
    #[inline]
    pub(super) fn is_tagged(&self, s: StreamIndex) -> bool {
        self.told && self.slots.get(s.0 as usize).is_some_and(|slot| self.is_ready(slot))
    }

    pub(super) fn is_ready(&self, slot: &Slot) -> bool {
        slot.flags.has(Flags::WORK_CONSERVING) || slot.ready() <= self.clock
    }

    /// Tells the discipline of a new head, if it may go; else it is told when it may.
    #[inline(never)]
    pub(super) fn tell_head(&mut self, s: StreamIndex, head: &Head) {
        let slot = &self.slots[s.0 as usize];
        if self.is_ready(slot) {
            let fresh = head.arrival > self.clock;
            self.rule.head(&standing(s, slot), head.size, fresh);
            self.renew_stale();
        } else {
            self.cold[s.0 as usize].size = head.size;
        }
    }

    /// Puts a head that may go where its rank says.
    pub(super) fn compete(&mut self, s: StreamIndex) {
        let before = before(&self.slots, &self.rule);
        if self.rule.waits(s.0) {
            self.selection.leave(s.0, &before);
        } else {
            let standing = standing(s, &self.slots[s.0 as usize]);
            self.selection.enter(self.rule.key(&standing, self.epoch), &before);
        }
    }

    /// Ranks anew whatever the discipline says has changed.
    pub(super) fn renew_stale(&mut self) {
        while let Some(stale) = self.rule.stale() {
            let s = StreamIndex(stale);
            let slot = &self.slots[stale as usize];
            if slot.flags.has(Flags::HEAD) && self.is_ready(slot) {
                self.compete(s);
            }
        }
    }
}

//! The canonical architecture: stream slots, and the trees that make a decision cheap, under any rule.
//!
//! Heads come from [`Scheduler`](super::Scheduler), which knows the rule; each operation is compiled once for
//! every rule. Streams that may send compete in a [`Tournament`] under their discipline's key. A second one
//! holds the deadlines of all heads, unless the discipline goes by deadline anyway; a third holds the ready
//! times of those that are not yet eligible. This is ShareStreams' section 4.3: slots hold the state, one
//! comparison decides, an update follows, and where a discipline's tags do not change the update does
//! nothing.
//!
//! A discipline that remembers what it has sent (a virtual time, a tag, a deficit) is notified of heads once they
//! may go, and returns the streams whose rank has changed. None of this runs for one that looks at heads alone.

use alloc::vec::Vec;

use selvedge_data_memory::fetch::prefetch;
use selvedge_units::Instant;

use super::order::{
    before, due_before, has_head_already, has_no_head, head_state, ready_before, slot_mut,
};
use crate::discipline::{EPOCH_MAX, Rule};
use crate::record::{Decision, Expiry, Head, StreamIndex, Verdict};
use crate::slot::{Cold, Count, Flags, Slot};
use crate::tournament::{LAST_KEY, Tournament};

/// The latest instant at which anything expires: a deadline of [`Instant::MAX`] (at which deadlines saturate)
/// is never missed.
const LAST: Instant = Instant(u64::MAX - 1);
/// How far a frame's arrival may lie after the epoch: it leaves the same range for deadlines.
const EPOCH_AHEAD: u64 = 1 << 43;

/// The result of one look at the trees' winners.
#[derive(Clone, Copy)]
pub(super) enum Look {
    /// The head of this stream goes.
    Send(StreamIndex),
    /// The head of this stream has expired.
    Expired(StreamIndex),
}

/// The whole of a scheduler except its rule.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(super) slots: Vec<Slot>,
    pub(super) cold: Vec<Cold>,
    /// Eligible heads.
    pub(super) selection: Tournament,
    /// Deadlines of all heads; empty if the selection is in the order of deadlines. Heads that are not in it
    /// are due only after they are ready.
    pub(super) deadlines: Tournament,
    /// Ready times of the heads that are not in the selection.
    pub(super) waiting: Tournament,
    /// The latest instant polled.
    pub(super) clock: Instant,
    /// Keys count time from here.
    pub(super) epoch: Instant,
    /// An arrival after this moves the epoch.
    pub(super) epoch_ends: Instant,
}

impl Default for Core {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            cold: Vec::new(),
            selection: Tournament::default(),
            deadlines: Tournament::default(),
            waiting: Tournament::default(),
            clock: Instant::ZERO,
            epoch: Instant::ZERO,
            epoch_ends: Instant(EPOCH_AHEAD),
        }
    }
}

impl Core {
    /// Puts a stream at an index, either the next one or a vacant one.
    pub(super) fn put<R: Rule>(&mut self, rule: &mut R, index: u32, slot: Slot, cold: Cold) {
        let at = index as usize;
        if at < self.slots.len() {
            self.slots[at] = slot;
            self.cold[at] = cold;
        } else {
            self.slots.push(slot);
            self.cold.push(cold);
            if at == 0 || at.is_power_of_two() {
                self.grow(rule, 2 * at.max(1));
            }
        }
        rule.reset(index, &self.cold[at].contract);
    }

    fn grow<R: Rule>(&mut self, rule: &mut R, streams: usize) {
        rule.grow(streams);
        self.selection.grow(streams, before(&self.slots, rule));
        self.waiting.grow(streams, ready_before(&self.slots));
        if !R::DEADLINE_FIRST {
            self.deadlines.grow(streams, due_before(&self.slots));
        }
    }

    #[inline(never)]
    pub(super) fn enqueue_head<R: Rule>(
        &mut self,
        rule: &mut R,
        s: StreamIndex,
        head: &Head,
    ) -> Instant {
        let slot = slot_mut(&mut self.slots, s);
        if slot.flags.has(Flags::HEAD) {
            has_head_already(s);
        }
        self.install_head(rule, s, head)
    }

    /// Makes a frame the head of a stream that has none.
    #[inline(always)]
    pub(super) fn install_head<R: Rule>(
        &mut self,
        rule: &mut R,
        s: StreamIndex,
        head: &Head,
    ) -> Instant {
        let slot = &mut self.slots[s.0 as usize];
        let mut delayed = None;
        if slot.flags.has(Flags::SLOW_HEAD) {
            delayed = self.cold[s.0 as usize].load_contract(slot, head);
        }
        let deadline = slot.set_head(head, delayed);
        if R::OBSERVES {
            self.notify_head(rule, s, head);
        }
        let slot = &self.slots[s.0 as usize];
        if head.arrival > self.epoch_ends {
            self.move_epoch(rule, head.arrival);
        } else if R::DEADLINE_FIRST && slot.flags.has(Flags::WORK_CONSERVING) {
            // The same as `place` does for such a stream, from values at hand.
            let key = rule.key(&head_state(s, slot), self.epoch);
            self.enter(rule, s, key);
            return deadline;
        }
        self.place(rule, s);
        deadline
    }

    /// What to do at `now`, if the trees' winners are enough to decide. Advances the clock.
    #[inline(always)]
    pub(super) fn quick_decision(&mut self, deadline_first: bool, now: Instant) -> Option<Look> {
        self.clock = self.clock.max(now);
        let first = self.selection.settled_winner()?;
        let due = if deadline_first { first } else { self.deadlines.settled_winner()? };
        let deadline = self.slots.get(due.leaf as usize)?.deadline;
        if !self.waiting.is_after(self.clock.0) {
            return None;
        }
        let expired = self.is_due(deadline);
        Some(if expired {
            Look::Expired(StreamIndex(due.leaf))
        } else {
            Look::Send(StreamIndex(first.leaf))
        })
    }

    /// Whether a deadline has come.
    #[inline(always)]
    pub(super) fn is_due(&self, deadline: Instant) -> bool {
        deadline <= self.clock.min(LAST)
    }

    #[inline]
    pub(super) fn poll_expired<R: Rule>(&mut self, rule: &mut R, now: Instant) -> Option<Expiry> {
        self.advance(rule, now);
        let first = if R::DEADLINE_FIRST {
            self.selection.winner(before(&self.slots, rule))
        } else {
            self.deadlines.winner(due_before(&self.slots))
        };
        let s = StreamIndex(first?.leaf);
        if !self.is_due(self.slots[s.0 as usize].deadline) {
            return None;
        }
        Some(self.expire(rule, s))
    }

    /// [`expire`](Self::expire) as a decision. It is made where the caller wants it, since copying parts that
    /// were just written would wait for those writes.
    #[inline(never)]
    pub(super) fn decide_expired<R: Rule>(&mut self, rule: &mut R, s: StreamIndex) -> Decision {
        Decision::Expired(self.expire(rule, s))
    }

    /// Counts the miss of a stream whose deadline has come.
    #[inline(always)]
    fn expire<R: Rule>(&mut self, rule: &mut R, s: StreamIndex) -> Expiry {
        let at = s.0 as usize;
        let slot = &mut self.slots[at];
        if slot.flags.has(Flags::DROPS_LATE) {
            let (deadline, violation) = self.drop_head(rule, s);
            let verdict = Verdict::Dropped;
            return Expiry { stream: s, deadline, misses: 1, verdict, violation };
        }
        let missed = slot.deadline;
        let misses = slot.advance_past(self.clock.min(LAST));
        let deadline = slot.deadline;
        let violations = slot.window.miss_times(misses);
        slot.count(&mut self.cold, at, Count::Missed, misses);
        slot.count(&mut self.cold, at, Count::Violations, violations);
        slot.write_back(&mut self.cold, at);
        self.place(rule, s);
        let (verdict, violation) = (Verdict::Kept { deadline }, violations > 0);
        Expiry { stream: s, deadline: missed, misses, verdict, violation }
    }

    /// The choice, if the trees' winners are enough to decide.
    #[inline(always)]
    pub(super) fn quick_choice(&self, now: Instant) -> Option<StreamIndex> {
        let winner = self.selection.settled_winner()?;
        self.waiting.is_after(now.max(self.clock).0).then_some(StreamIndex(winner.leaf))
    }

    #[inline(never)]
    pub(super) fn choose<R: Rule>(&self, rule: &R, now: Instant) -> Option<StreamIndex> {
        let before = before(&self.slots, rule);
        let mut best = self.selection.winner(before).map(|entry| entry.leaf);
        let now = now.max(self.clock);
        // Some may have become ready since the last poll.
        self.waiting.search(|entry, bottom| {
            let due = self.slots[entry.leaf as usize].ready() <= now;
            if due && bottom && best.is_none_or(|best| before(entry.leaf, best)) {
                best = Some(entry.leaf);
            }
            due
        });
        best.map(StreamIndex)
    }

    pub(super) fn choose_block<R: Rule>(&self, rule: &mut R, block: &mut [StreamIndex]) -> usize {
        if let Some(len) = rule.block(block) {
            return len;
        }
        let before = before(&self.slots, rule);
        let mut len = 0;
        self.selection.search(|entry, bottom| {
            let full = len == block.len();
            let goes = |other: &StreamIndex| before(entry.leaf, other.0);
            if full && !block.last().is_some_and(goes) {
                return false;
            }
            if bottom {
                let place = block[..len].iter().position(goes).unwrap_or(len);
                len += usize::from(!full);
                block[place..len].rotate_right(1);
                block[place] = StreamIndex(entry.leaf);
            }
            true
        });
        len
    }

    /// Counts the loss of a head and removes it. Returns its deadline, and whether the loss is a violation.
    #[inline]
    pub(super) fn drop_head<R: Rule>(&mut self, rule: &mut R, s: StreamIndex) -> (Instant, bool) {
        let tagged = self.is_observed::<R>(s);
        self.remove_head(rule, s, "drop");
        let at = s.0 as usize;
        let slot = &mut self.slots[at];
        let violation = slot.window.miss();
        slot.count(&mut self.cold, at, Count::Missed, 1);
        if !slot.flags.has(Flags::DROPS_LATE) {
            slot.count(&mut self.cold, at, Count::Dropped, 1);
        }
        slot.count(&mut self.cold, at, Count::Violations, u64::from(violation));
        slot.write_back(&mut self.cold, at);
        let deadline = slot.deadline;
        if tagged {
            self.notify_dropped(rule, s);
        }
        (deadline, violation)
    }

    /// Removes a stream's head, which must exist, from all trees.
    #[inline]
    pub(super) fn remove_head<R: Rule>(&mut self, rule: &R, s: StreamIndex, what: &str) {
        let slot = slot_mut(&mut self.slots, s);
        if !slot.flags.has(Flags::HEAD) {
            has_no_head(s, what);
        }
        slot.flags = slot.flags.without(Flags::HEAD);
        let waits = !slot.flags.has(Flags::WORK_CONSERVING);
        self.selection.remove(s.0, before(&self.slots, rule));
        if waits {
            self.waiting.remove(s.0, ready_before(&self.slots));
        }
        if !R::DEADLINE_FIRST {
            self.deadlines.remove(s.0, due_before(&self.slots));
        }
    }

    pub(super) fn remove<R: Rule>(&mut self, rule: &mut R, s: StreamIndex) {
        if slot_mut(&mut self.slots, s).flags.has(Flags::HEAD) {
            let tagged = self.is_observed::<R>(s);
            self.remove_head(rule, s, "remove");
            if tagged {
                self.notify_dropped(rule, s);
            }
        }
        self.slots[s.0 as usize] = Slot::VACANT;
    }

    /// Advances the clock, and puts heads that have become ready into the selection.
    #[inline]
    fn advance<R: Rule>(&mut self, rule: &mut R, now: Instant) {
        self.clock = self.clock.max(now);
        if R::OBSERVES {
            self.notify_time(rule);
        }
        while let Some(entry) = self.waiting.winner(ready_before(&self.slots)) {
            if self.slots[entry.leaf as usize].ready() > self.clock {
                break;
            }
            self.waiting.remove(entry.leaf, ready_before(&self.slots));
            if R::OBSERVES {
                self.notify_ready(rule, StreamIndex(entry.leaf));
            } else {
                self.select(rule, StreamIndex(entry.leaf));
            }
        }
    }

    /// Ranks a stream's head and puts it into the right tree, after any change to it.
    #[inline(always)]
    pub(super) fn place<R: Rule>(&mut self, rule: &R, s: StreamIndex) {
        let slot = &self.slots[s.0 as usize];
        if !R::DEADLINE_FIRST {
            if slot.deadline > LAST {
                self.deadlines.remove(s.0, due_before(&self.slots));
            } else {
                let key = slot.deadline.0.min(LAST_KEY);
                self.deadlines.insert(s.0, key, due_before(&self.slots));
            }
        }
        if slot.flags.has(Flags::WORK_CONSERVING) {
            self.select(rule, s);
        } else if slot.ready() <= self.clock {
            self.waiting.remove(s.0, ready_before(&self.slots));
            self.select(rule, s);
        } else {
            let ready = slot.ready().0.min(LAST_KEY);
            self.selection.remove(s.0, before(&self.slots, rule));
            self.waiting.insert(s.0, ready, ready_before(&self.slots));
        }
    }

    /// Puts a head that may go into the selection by its key.
    #[inline(always)]
    pub(super) fn select<R: Rule>(&mut self, rule: &R, s: StreamIndex) {
        if R::OBSERVES && rule.withholds(s.0) {
            self.selection.remove(s.0, before(&self.slots, rule));
            return;
        }
        let key = rule.key(&head_state(s, &self.slots[s.0 as usize]), self.epoch);
        self.enter(rule, s, key);
    }

    #[inline(always)]
    pub(super) fn enter<R: Rule>(&mut self, rule: &R, s: StreamIndex, key: u64) {
        self.selection.insert(s.0, key, before(&self.slots, rule));
        self.look_ahead::<R>(s);
    }

    /// Prefetches the data of the stream that a change to this one has brought close to winning.
    #[inline(always)]
    pub(super) fn look_ahead<R: Rule>(&mut self, s: StreamIndex) {
        let soon = self.selection.fetch_ahead(s.0);
        if let Some(soon) = soon
            && let Some(slot) = self.slots.get(soon as usize)
        {
            prefetch(slot);
            if !R::DEADLINE_FIRST {
                self.deadlines.prefetch_leaf(soon);
            }
        }
    }

    /// Moves the epoch, from which keys count time, nearer to now; in nanoseconds that happens once in an
    /// hour or two. Keys that lie far from the epoch are right, but slow to compare. O(N).
    #[cold]
    #[inline(never)]
    pub(super) fn move_epoch<R: Rule>(&mut self, rule: &R, arrival: Instant) {
        self.epoch = Instant(arrival.0 - EPOCH_AHEAD / 4).min(EPOCH_MAX);
        self.epoch_ends = Instant(self.epoch.0.saturating_add(EPOCH_AHEAD));
        let Self { slots, epoch, .. } = self;
        let key =
            |leaf: u32| rule.key(&head_state(StreamIndex(leaf), &slots[leaf as usize]), *epoch);
        self.selection.rekey(key, before(slots, rule));
    }

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

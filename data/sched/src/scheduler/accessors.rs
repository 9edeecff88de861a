//! The readable state of a scheduler's streams, the knobs that may be changed while it runs, and the time of
//! its next event.

use ::core::ops::Range;

use selvedge_data_stream::{Contract, Counters, Kind, Window, Windows};
use selvedge_units::{Duration, Instant};

use super::Scheduler;
use super::core::Core;
use super::order::{no_stream, slot_mut};
use crate::discipline::{Rule, with_rule};
use crate::record::StreamIndex;
use crate::slot::{Flags, Slot, at_least_one, within_bounds};
use crate::tournament::{Tournament, lies};
use crate::window::WindowSet;

impl Scheduler {
    /// The deadline of a stream's head, if it has one. O(1).
    #[must_use]
    pub fn head_deadline(&self, s: StreamIndex) -> Option<Instant> {
        let slot = self.slot(s);
        slot.flags.has(Flags::HEAD).then_some(slot.deadline)
    }

    /// An instant before which no head is due. It is the earliest deadline if the discipline goes by deadline
    /// and no head waits to become ready; otherwise it may be earlier. `None` if there is no head, or the
    /// discipline does not go by deadline. O(1) after `poll_expired`.
    #[must_use]
    #[inline]
    pub fn first_deadline(&self, now: Instant) -> Option<Instant> {
        if !self.deadline_first {
            return None;
        }
        let first = self.core.selection.settled_winner()?;
        let deadline = self.core.slots[first.leaf as usize].deadline;
        // A head that waits is due after it is ready.
        let quiet = self.core.waiting.is_after(deadline.0);
        Some(if quiet { deadline } else { now.min(deadline) })
    }

    /// The earliest instant after `now` at which a head expires or becomes ready; `None` if there is none,
    /// for example with work-conserving streams whose queues are all empty. Polling later than that delays
    /// misses and frames; polling earlier does no harm. O(1) after `poll_expired(now)` returned `None`; else
    /// O(log N) for each instant already past.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let now = self.core.clock.max(now);
        let Core { slots, selection, deadlines, waiting, .. } = &self.core;
        let mut next = Instant::MAX;
        let mut consider = |at: Instant| {
            next = if at > now { next.min(at) } else { next };
            at <= now
        };
        let deadline = |leaf: u32| slots[leaf as usize].deadline;
        // One of the two is empty, or in another order.
        if self.deadline_first {
            selection.search(|entry, _| consider(deadline(entry.leaf)));
        } else {
            deadlines.search(|entry, _| consider(deadline(entry.leaf)));
        }
        waiting.search(|entry, bottom| {
            let ready = consider(slots[entry.leaf as usize].ready());
            if ready && bottom {
                consider(deadline(entry.leaf));
            }
            ready
        });
        let change = with_rule!(&self.rule, rule => Core::next_discipline_event(rule, now));
        next = change.map_or(next, |at| next.min(at));
        (next < Instant::MAX).then_some(next)
    }

    /// Where the large parts of its state lie, for a caller that chooses its kind of memory.
    pub fn memory(&self) -> impl Iterator<Item = Range<*const u8>> {
        let Core { slots, cold, selection, deadlines, waiting, .. } = &self.core;
        let trees = [selection, deadlines, waiting].into_iter().flat_map(Tournament::memory);
        trees.chain([lies(slots), lies(cold)])
    }

    /// The counters of a stream's frames. O(1).
    #[must_use]
    pub fn counters(&self, s: StreamIndex) -> Counters {
        self.slot(s).counters(&self.core.cold[s.0 as usize])
    }

    /// The current window `x'/y'` in which frames of this kind are counted. O(1).
    #[must_use]
    pub fn window(&self, s: StreamIndex, kind: Kind) -> Window {
        self.windows(s).current(kind)
    }

    /// All windows of a stream, for a caller that computes ahead. O(1).
    #[must_use]
    pub fn windows(&self, s: StreamIndex) -> WindowSet {
        self.slot(s).windows(&self.core.cold[s.0 as usize])
    }

    /// A stream's contract as it holds for its next frame. O(1).
    #[must_use]
    pub fn contract(&self, s: StreamIndex) -> &Contract {
        let _present = self.slot(s);
        &self.core.cold[s.0 as usize].contract
    }

    /// Changes a stream's windows from its next frame on. A window that differs from the one before starts
    /// anew at `x/y`; an unchanged one continues. O(1).
    pub fn set_windows(&mut self, s: StreamIndex, windows: Windows) {
        self.change(s, true, |contract| contract.windows = within_bounds(&windows));
        let contract = &self.core.cold[s.0 as usize].contract;
        with_rule!(&mut self.rule, rule => rule.windows(s.0, contract));
    }

    /// Changes a stream's period from its next frame on; zero counts as 1 ns. O(1).
    pub fn set_period(&mut self, s: StreamIndex, period: Duration) {
        self.change(s, false, |contract| contract.period = at_least_one(period));
    }

    /// Changes a stream's priority from its next frame on. O(1).
    pub fn set_priority(&mut self, s: StreamIndex, priority: i32) {
        self.change(s, false, |contract| contract.priority = priority);
    }

    /// Changes a stream's weight from its next frame on. O(1).
    pub fn set_weight(&mut self, s: StreamIndex, weight: u32) {
        self.change(s, false, |contract| contract.weight = weight);
    }

    fn change(&mut self, s: StreamIndex, windows: bool, set: impl FnOnce(&mut Contract)) {
        let slot = slot_mut(&mut self.core.slots, s);
        let cold = &mut self.core.cold[s.0 as usize];
        set(&mut cold.contract);
        cold.mark_changed(slot, windows);
    }

    fn slot(&self, s: StreamIndex) -> &Slot {
        match self.core.slots.get(s.0 as usize) {
            Some(slot) if slot.flags.has(Flags::PRESENT) => slot,
            _ => no_stream(s),
        }
    }
}

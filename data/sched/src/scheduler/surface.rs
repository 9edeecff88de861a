//! What can be seen of a scheduler's streams and turned on them while it runs, and when it has
//! something to do next.

use selvedge_stream::{Contract, Kind, Window, Windows};
use selvedge_units::{Instant, Span};

use super::{Scheduler, slot_mut};
use crate::slot::{Counters, StreamIndex, at_least_one, within_bounds};
use crate::window::WindowSet;

impl Scheduler {
    /// The earliest moment after `now` at which a head expires or becomes ready; `None` if there
    /// is none, as of work-conserving streams whose queues are all empty. To come back later than
    /// that delays misses and frames; to come back earlier does no harm. O(1) after
    /// `poll_expired(now)` returned `None`; else O(log N) for each moment already past.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let now = self.clock.max(now);
        let mut next = Instant::MAX;
        let deadline = |leaf: u32| self.slots[leaf as usize].deadline;
        let mut consider = |at: Instant| {
            next = if at > now { next.min(at) } else { next };
            at <= now
        };
        if self.deadline_first {
            self.selection.search(|key, _| consider(deadline(key.leaf())));
        } else {
            self.deadlines.search(|key, _| consider(Instant(key.rank() as u64)));
        }
        self.waiting.search(|key, bottom| {
            let ready_by_now = consider(Instant(key.rank() as u64));
            if ready_by_now && bottom {
                consider(deadline(key.leaf()));
            }
            ready_by_now
        });
        next = self.rule.next_event(now).map_or(next, |at| next.min(at));
        (next < Instant::MAX).then_some(next)
    }

    /// What has become of a stream's frames. O(1).
    #[must_use]
    pub fn counters(&self, s: StreamIndex) -> Counters {
        self.slot(s).counters(&self.cold[s.0 as usize])
    }

    /// The current window `x'/y'` that frames of this kind are counted in. O(1).
    #[must_use]
    pub fn window(&self, s: StreamIndex, kind: Kind) -> Window {
        self.windows(s).current(kind)
    }

    /// All windows of a stream, to be run ahead. O(1).
    #[must_use]
    pub fn windows(&self, s: StreamIndex) -> WindowSet {
        self.slot(s).windows(&self.cold[s.0 as usize])
    }

    /// A stream's contract as it holds for its next frame. O(1).
    #[must_use]
    pub fn contract(&self, s: StreamIndex) -> &Contract {
        let _present = self.slot(s);
        &self.cold[s.0 as usize].contract
    }

    /// Changes a stream's windows from its next frame on. A window that differs from the one
    /// before starts anew at `x/y`; one that does not goes on where it stands. O(1).
    pub fn set_windows(&mut self, s: StreamIndex, windows: Windows) {
        self.change(s, true, |contract| contract.windows = within_bounds(&windows));
        self.rule.windows(s.0, &self.cold[s.0 as usize].contract);
    }

    /// Changes a stream's period from its next frame on; zero counts as 1 ns. O(1).
    pub fn set_period(&mut self, s: StreamIndex, period: Span) {
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
        let slot = slot_mut(&mut self.slots, s);
        let cold = &mut self.cold[s.0 as usize];
        set(&mut cold.contract);
        cold.changed(slot, windows);
    }
}

//! The scheduler: stream slots, and the three trees that make a decision cheap.
//!
//! Head frames come from the caller's queues, decisions go back to it. Streams that may send
//! compete in a [`Tournament`] under their discipline's key; one [`Timeline`] holds the deadlines
//! of all heads, another the ready times of those that are not yet eligible.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use selvedge_stream::{Contract, Kind, Window, Windows};
use selvedge_units::{Instant, Span};

use crate::discipline::{AnyRule, Discipline, Rule, Standing};
use crate::slot::{
    Counters, Expiry, Head, Queued, Served, Slot, StreamIndex, Verdict, at_least_one, within_bounds,
};
use crate::timeline::Timeline;
use crate::tournament::{Key, Tournament};
use crate::window::WindowSet;

/// The last moment at which anything expires: a deadline of [`Instant::MAX`] (which is where
/// deadlines saturate) is never missed.
const LAST: Instant = Instant(u64::MAX - 1);

/// Decides which stream's head frame goes next, and counts what each stream loses.
///
/// A decision at a moment is: [`poll_expired`](Self::poll_expired) until it returns `None`, giving
/// each stream whose frame was dropped its next head before polling again;
/// [`choose`](Self::choose); [`serve`](Self::serve), and the stream's next head.
///
/// Time never goes back: a `now` before the latest one seen by `poll_expired` counts as that one.
/// `N` below is the largest number of streams that there were at once.
///
/// # Panics
/// Methods that take a stream panic if there is none at that index: using an index after
/// `remove` is a bug of the caller.
#[derive(Clone, Debug)]
pub struct Scheduler {
    discipline: Discipline,
    rule: AnyRule,
    slots: Vec<Option<Slot>>,
    free: BinaryHeap<Reverse<u32>>,
    /// Eligible heads.
    selection: Tournament,
    /// Deadlines of all heads.
    deadlines: Timeline,
    /// Ready times of the heads that are not in the selection.
    waiting: Timeline,
    /// The latest moment polled.
    clock: Instant,
}

impl Scheduler {
    /// A scheduler without streams.
    #[must_use]
    pub fn new(discipline: Discipline) -> Self {
        Self {
            discipline,
            rule: discipline.rule(),
            slots: Vec::new(),
            free: BinaryHeap::new(),
            selection: Tournament::default(),
            deadlines: Timeline::default(),
            waiting: Timeline::default(),
            clock: Instant::ZERO,
        }
    }

    /// The discipline that it was made with.
    #[must_use]
    pub const fn discipline(&self) -> Discipline {
        self.discipline
    }

    /// Adds a stream at the lowest free index, with full windows and counters at zero.
    /// A period of zero counts as 1 ns, a window's `x` above its `y` as `y`. O(log N) amortised;
    /// the only method that allocates.
    ///
    /// # Panics
    /// If there are 2^32 streams already.
    pub fn add(&mut self, contract: &Contract) -> StreamIndex {
        let index = match self.free.pop() {
            Some(Reverse(index)) => index,
            None => {
                let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 streams");
                self.slots.push(None);
                let leaves = self.slots.len().next_power_of_two();
                if self.slots.len() == 1 || leaves / 2 == self.slots.len() - 1 {
                    self.selection.grow(leaves);
                    self.deadlines.grow(leaves);
                    self.waiting.grow(leaves);
                }
                // So that `remove` never allocates.
                self.free.reserve(self.slots.len());
                index
            }
        };
        self.slots[index as usize] = Some(Slot::new(contract));
        StreamIndex(index)
    }

    /// Removes a stream, its head and its counters. Its index is free for the next. O(log N).
    pub fn remove(&mut self, s: StreamIndex) {
        let _present = self.slot(s);
        self.retire(s);
        self.slots[s.0 as usize] = None;
        self.free.push(Reverse(s.0));
    }

    /// Brings up the next frame of a stream's queue; returns its deadline. What was changed by
    /// the `set_` methods since the last frame takes effect now. O(log N).
    ///
    /// # Panics
    /// If the stream has a head already.
    pub fn push_head(&mut self, s: StreamIndex, head: Head) -> Instant {
        let slot = self.slot_mut(s);
        assert!(slot.head.is_none(), "stream {} has a head already", s.0);
        let deadline = slot.next_deadline(&head);
        if core::mem::take(&mut slot.windows_changed) {
            slot.windows.change(&slot.contract.windows);
        }
        slot.last_deadline = deadline;
        slot.head = Some(Queued {
            kind: head.kind,
            deadline,
            period: slot.contract.period,
            priority: slot.contract.priority,
            missed: false,
            key: Key { rank: 0, arrival: head.arrival },
        });
        self.place(s);
        deadline
    }

    /// The deadline of a stream's head, if it has one. O(1).
    #[must_use]
    pub fn head_deadline(&self, s: StreamIndex) -> Option<Instant> {
        self.slot(s).head.as_ref().map(|head| head.deadline)
    }

    /// The next frame whose deadline has come (`D <= now`), in the order of the streams' indexes;
    /// `None` when there is no more. Counts the miss and applies rule b. After
    /// [`Verdict::Dropped`] the next frame of that stream may be pushed before polling again; if
    /// it is late as well, it is the next to expire.
    ///
    /// A frame that is kept (`late = send`) comes up once in a poll, however many periods have
    /// elapsed: [`Expiry::misses`] says how many deadlines it missed, and all are accounted for as
    /// if they had been polled one by one. So the work is bounded by the number of frames, not by
    /// the length of the gap. A deadline of [`Instant::MAX`] is never missed. O(log N).
    pub fn poll_expired(&mut self, now: Instant) -> Option<Expiry> {
        self.advance(now);
        let now = self.clock.min(LAST);
        let s = StreamIndex(self.deadlines.first_due(now, 0)?);
        let slot = self.slot_mut(s);
        if slot.drops_late() {
            let (deadline, violation) = self.drop_head(s);
            return Some(Expiry {
                stream: s,
                deadline,
                misses: 1,
                verdict: Verdict::Dropped,
                violation,
            });
        }
        let head = slot.head.as_mut().expect("only heads have deadlines");
        let missed = head.deadline;
        let misses = head.move_past(now);
        let next = head.deadline;
        let violations = slot.windows.of_mut(head.kind).miss_times(misses);
        slot.last_deadline = next;
        slot.counters.count_misses(misses, violations);
        self.place(s);
        Some(Expiry {
            stream: s,
            deadline: missed,
            misses,
            verdict: Verdict::Kept { deadline: next },
            violation: violations > 0,
        })
    }

    /// The stream whose head frame goes first at `now`, of those that are eligible: every head,
    /// if its stream is work-conserving, else those whose ready time (deadline minus period) has
    /// come. Changes nothing. O(1) after `poll_expired(now)`; else O(log N) for each stream that
    /// has become ready since the last poll.
    #[must_use]
    pub fn choose(&self, now: Instant) -> Option<StreamIndex> {
        let now = self.clock.max(now);
        let mut best = self.selection.winner();
        let mut from = 0;
        while let Some(leaf) = self.waiting.first_due(now, from) {
            let ready = (self.head(StreamIndex(leaf)).key, leaf);
            best = Some(best.map_or(ready, |best| best.min(ready)));
            from = leaf + 1;
        }
        best.map(|(_, leaf)| StreamIndex(leaf))
    }

    /// Serves a stream's head: applies rule a, counts it as sent, removes it. It need not be the
    /// one that was chosen. O(log N).
    ///
    /// # Panics
    /// If the stream has no head.
    pub fn serve(&mut self, s: StreamIndex) -> Served {
        let head = self.retire(s).unwrap_or_else(|| panic!("stream {} has no head to serve", s.0));
        let slot = self.slot_mut(s);
        slot.windows.of_mut(head.kind).serve();
        slot.counters.count_sent(head.missed);
        Served { deadline: head.deadline, late: head.missed }
    }

    /// Gives a stream's head up before its deadline (or after): counts a miss and a drop, applies
    /// rule b, removes it. True if that violates the window-constraint. O(log N).
    ///
    /// # Panics
    /// If the stream has no head.
    pub fn forfeit(&mut self, s: StreamIndex) -> bool {
        self.drop_head(s).1
    }

    /// The earliest moment after `now` at which a head expires or becomes ready; `None` if there
    /// is none, as of work-conserving streams whose queues are all empty. To come back later than
    /// that delays misses and frames; to come back earlier does no harm. O(1) after
    /// `poll_expired(now)` returned `None`; else O(log N) for each moment already past.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let now = self.clock.max(now);
        let due = self.deadlines.next_after(now);
        let ready = self.waiting.next_after(now);
        due.into_iter().chain(ready).min()
    }

    /// What has become of a stream's frames. O(1).
    #[must_use]
    pub fn counters(&self, s: StreamIndex) -> Counters {
        self.slot(s).counters
    }

    /// The current window `x'/y'` that frames of this kind are counted in. O(1).
    #[must_use]
    pub fn window(&self, s: StreamIndex, kind: Kind) -> Window {
        self.slot(s).windows.of(kind).current()
    }

    /// All windows of a stream, to be copied and run ahead. O(1).
    #[must_use]
    pub fn windows(&self, s: StreamIndex) -> &WindowSet {
        &self.slot(s).windows
    }

    /// A stream's contract as it holds for its next frame. O(1).
    #[must_use]
    pub fn contract(&self, s: StreamIndex) -> &Contract {
        &self.slot(s).contract
    }

    /// Changes a stream's windows from its next frame on. A window that differs from the one
    /// before starts anew at `x/y`; one that does not goes on where it stands. O(1).
    pub fn set_windows(&mut self, s: StreamIndex, windows: Windows) {
        let slot = self.slot_mut(s);
        slot.contract.windows = within_bounds(&windows);
        slot.windows_changed = slot.head.is_some();
        if !slot.windows_changed {
            slot.windows.change(&slot.contract.windows);
        }
    }

    /// Changes a stream's period from its next frame on; zero counts as 1 ns. O(1).
    pub fn set_period(&mut self, s: StreamIndex, period: Span) {
        self.slot_mut(s).contract.period = at_least_one(period);
    }

    /// Changes a stream's priority from its next frame on. O(1).
    pub fn set_priority(&mut self, s: StreamIndex, priority: i32) {
        self.slot_mut(s).contract.priority = priority;
    }

    /// Changes a stream's weight from its next frame on. None of the present disciplines looks
    /// at it. O(1).
    pub fn set_weight(&mut self, s: StreamIndex, weight: u32) {
        self.slot_mut(s).contract.weight = weight;
    }

    fn slot(&self, s: StreamIndex) -> &Slot {
        let slot = self.slots.get(s.0 as usize).and_then(Option::as_ref);
        slot.unwrap_or_else(|| panic!("there is no stream {}", s.0))
    }

    fn slot_mut(&mut self, s: StreamIndex) -> &mut Slot {
        let slot = self.slots.get_mut(s.0 as usize).and_then(Option::as_mut);
        slot.unwrap_or_else(|| panic!("there is no stream {}", s.0))
    }

    fn head(&self, s: StreamIndex) -> &Queued {
        self.slot(s).head.as_ref().expect("only heads are in the trees")
    }

    /// Moves the clock on, and into the selection whatever has become ready.
    fn advance(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
        while let Some(leaf) = self.waiting.first_due(self.clock, 0) {
            self.waiting.set(leaf, Instant::MAX);
            self.selection.enter(leaf, self.head(StreamIndex(leaf)).key);
        }
    }

    /// Ranks a stream's head and puts it where it belongs, after any change to it.
    fn place(&mut self, s: StreamIndex) {
        let slot = self.slots[s.0 as usize].as_mut().expect("the caller has looked it up");
        let head = slot.head.as_mut().expect("the caller has set it");
        let standing = Standing {
            deadline: head.deadline,
            window: slot.windows.of(head.kind).current(),
            priority: head.priority,
        };
        head.key.rank = self.rule.rank(&standing);
        self.deadlines.set(s.0, head.deadline);
        if slot.contract.work_conserving || head.ready() <= self.clock {
            self.waiting.set(s.0, Instant::MAX);
            self.selection.enter(s.0, head.key);
        } else {
            self.selection.leave(s.0);
            self.waiting.set(s.0, head.ready());
        }
    }

    /// Takes a stream's head out of everything.
    fn retire(&mut self, s: StreamIndex) -> Option<Queued> {
        let head = self.slot_mut(s).head.take()?;
        self.selection.leave(s.0);
        self.waiting.set(s.0, Instant::MAX);
        self.deadlines.set(s.0, Instant::MAX);
        Some(head)
    }

    /// Counts the loss of a head and removes it: its deadline, and whether that is a violation.
    fn drop_head(&mut self, s: StreamIndex) -> (Instant, bool) {
        let head = self.retire(s).unwrap_or_else(|| panic!("stream {} has no head to drop", s.0));
        let slot = self.slot_mut(s);
        let violation = slot.windows.of_mut(head.kind).miss();
        slot.counters.count_misses(1, u64::from(violation));
        slot.counters.count_drop();
        (head.deadline, violation)
    }
}

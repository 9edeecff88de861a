//! The scheduler: stream slots, and the trees that make a decision cheap.
//!
//! Head frames come from the caller's queues, decisions go back to it. Streams that may send
//! compete in a [`Tournament`] under their discipline's key; a second one holds the deadlines of
//! all heads, unless the discipline goes by deadline anyway; a third the ready times of those that
//! are not yet eligible. This is ShareStreams' canonical architecture (section 4.3): slots hold
//! the state, one comparison decides, an update follows, and where a discipline's tags do not
//! change the update does nothing.

mod surface;
mod telling;

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use selvedge_stream::Contract;
use selvedge_units::Instant;

use crate::discipline::{AnyRule, Discipline, Standing, Tree};
use crate::prefetch::prefetch;
use crate::slot::{Cold, Count, Expiry, Flags, Head, Served, Slot, StreamIndex, Verdict};
use crate::tournament::{Key, Tournament, lower_leaf};

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
    slots: Vec<Slot>,
    cold: Vec<Cold>,
    free: BinaryHeap<Reverse<u32>>,
    /// Eligible heads.
    selection: Tournament,
    /// Deadlines of all heads; empty if the selection is in the order of deadlines. Those that
    /// are not in it are due only after they are ready.
    deadlines: Tournament,
    /// Ready times of the heads that are not in the selection.
    waiting: Tournament,
    deadline_first: bool,
    /// Whether the discipline wants to hear what becomes of heads, and of time.
    told: bool,
    /// The latest moment polled.
    clock: Instant,
    /// Keys count time from here.
    epoch: u64,
}

impl Scheduler {
    /// A scheduler without streams.
    #[must_use]
    pub fn new(discipline: Discipline) -> Self {
        Self::with_rule(discipline, discipline.rule())
    }

    /// A scheduler of discipline [`Discipline::Hwfq`] whose streams hang below the nodes of a
    /// tree: [`Contract::parent`] says which.
    #[must_use]
    pub fn with_tree(tree: &Tree) -> Self {
        Self::with_rule(Discipline::Hwfq, AnyRule::with_tree(tree))
    }

    fn with_rule(discipline: Discipline, rule: AnyRule) -> Self {
        Self {
            discipline,
            slots: Vec::new(),
            cold: Vec::new(),
            free: BinaryHeap::new(),
            selection: Tournament::default(),
            deadlines: Tournament::default(),
            waiting: Tournament::default(),
            deadline_first: rule.deadline_first(),
            told: rule.told(),
            rule,
            clock: Instant::ZERO,
            epoch: 0,
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
    /// If there are [`Self::STREAMS_MAX`] streams already.
    pub fn add(&mut self, contract: &Contract) -> StreamIndex {
        let (slot, cold) = Cold::begin(contract);
        let index = match self.free.pop() {
            Some(Reverse(index)) => {
                self.slots[index as usize] = slot;
                self.cold[index as usize] = cold;
                index
            }
            None => {
                let index = self.slots.len();
                assert!(
                    index < Self::STREAMS_MAX as usize,
                    "more than {} streams",
                    Self::STREAMS_MAX
                );
                self.slots.push(slot);
                self.cold.push(cold);
                if index == 0 || index.is_power_of_two() {
                    self.grow(2 * index.max(1));
                }
                // So that `remove` never allocates.
                self.free.reserve(self.slots.len());
                index as u32
            }
        };
        self.rule.reset(index, contract);
        StreamIndex(index)
    }

    /// The most streams that a scheduler can hold.
    pub const STREAMS_MAX: u32 = Key::LEAVES;

    fn grow(&mut self, streams: usize) {
        self.rule.grow(streams);
        let Self { slots, rule, .. } = self;
        self.selection.grow(streams, &before(slots, rule));
        self.waiting.grow(streams, &lower_leaf);
        if !self.deadline_first {
            self.deadlines.grow(streams, &lower_leaf);
        }
    }

    /// Removes a stream, its head and its counters. Its index is free for the next. O(log N).
    pub fn remove(&mut self, s: StreamIndex) {
        let _present = self.slot(s);
        let tagged = self.is_tagged(s);
        if self.retire(s) && tagged {
            self.rule.lost(&standing(s, &self.slots[s.0 as usize]));
            self.renew_stale();
        }
        self.slots[s.0 as usize] = Slot::VACANT;
        self.free.push(Reverse(s.0));
    }

    /// Brings up the next frame of a stream's queue; returns its deadline. What was changed by
    /// the `set_` methods since the last frame takes effect now. O(log N).
    ///
    /// # Panics
    /// If the stream has a head already.
    #[inline]
    pub fn push_head(&mut self, s: StreamIndex, head: Head) -> Instant {
        let at = s.0 as usize;
        let slot = slot_mut(&mut self.slots, s);
        if slot.flags.has(Flags::HEAD) {
            has_head_already(s);
        }
        let mut delayed = None;
        if slot.flags.has(Flags::LOOK) {
            delayed = self.cold[at].look(slot, &head);
        }
        let by_contract = || slot.deadline.max(head.arrival) + slot.period;
        let deadline = head.deadline.or(delayed).unwrap_or_else(by_contract);
        slot.deadline = deadline;
        slot.arrival = head.arrival;
        slot.kind = head.kind;
        slot.flags.set(Flags::HEAD, true);
        slot.flags.set(Flags::MISSED, false);
        if self.told {
            self.tell_head(s, &head);
        }
        if head.arrival.0 > self.epoch.saturating_add(EPOCH_AHEAD) {
            self.move_epoch(head.arrival.0);
        }
        self.place(s);
        deadline
    }

    /// The deadline of a stream's head, if it has one. O(1).
    #[must_use]
    pub fn head_deadline(&self, s: StreamIndex) -> Option<Instant> {
        let slot = self.slot(s);
        slot.flags.has(Flags::HEAD).then_some(slot.deadline)
    }

    /// The next frame whose deadline has come (`D <= now`), the earliest first; `None` when there
    /// is no more. Counts the miss and applies rule b. After [`Verdict::Dropped`] the next frame
    /// of that stream may be pushed before polling again, and expires in its turn if it is late
    /// as well.
    ///
    /// A frame that is kept (`late = send`) comes up once in a poll, however many periods have
    /// elapsed: [`Expiry::misses`] says how many deadlines it missed, and all are accounted for as
    /// if they had been polled one by one. So the work is bounded by the number of frames, not by
    /// the length of the gap. A deadline of [`Instant::MAX`] is never missed. O(log N).
    #[inline]
    pub fn poll_expired(&mut self, now: Instant) -> Option<Expiry> {
        self.advance(now);
        let now = self.clock.min(LAST);
        let s = self.first_to_expire()?;
        if self.slots[s.0 as usize].deadline > now { None } else { Some(self.expire(s, now)) }
    }

    #[inline]
    fn first_to_expire(&self) -> Option<StreamIndex> {
        let first = if self.deadline_first {
            self.selection.winner(&before(&self.slots, &self.rule))
        } else {
            self.deadlines.winner(&lower_leaf)
        };
        first.map(|key| StreamIndex(key.leaf()))
    }

    fn expire(&mut self, s: StreamIndex, now: Instant) -> Expiry {
        let at = s.0 as usize;
        let slot = &mut self.slots[at];
        if slot.flags.has(Flags::DROPS_LATE) {
            let (deadline, violation) = self.drop_head(s);
            let verdict = Verdict::Dropped;
            return Expiry { stream: s, deadline, misses: 1, verdict, violation };
        }
        let missed = slot.deadline;
        let misses = slot.move_past(now);
        let next = slot.deadline;
        let violations = slot.window.miss_times(misses);
        slot.count(&mut self.cold, at, Count::Missed, misses);
        slot.count(&mut self.cold, at, Count::Violations, violations);
        slot.write_back(&mut self.cold, at);
        self.place(s);
        Expiry {
            stream: s,
            deadline: missed,
            misses,
            verdict: Verdict::Kept { deadline: next },
            violation: violations > 0,
        }
    }

    /// The stream whose head frame goes first at `now`, of those that are eligible: every head,
    /// if its stream is work-conserving, else those whose ready time (deadline minus period) has
    /// come. Changes nothing. O(1) after `poll_expired(now)`; else O(log N) for each stream that
    /// has become ready since the last poll.
    #[must_use]
    #[inline]
    pub fn choose(&self, now: Instant) -> Option<StreamIndex> {
        let best = self.selection.winner(&before(&self.slots, &self.rule));
        let ready = self.waiting.winner(&lower_leaf);
        if ready.is_some_and(|key| key.rank() <= u128::from(now.max(self.clock).0)) {
            return self.choose_among_ready(now, best);
        }
        best.map(|key| StreamIndex(key.leaf()))
    }

    #[cold]
    fn choose_among_ready(&self, now: Instant, best: Option<Key>) -> Option<StreamIndex> {
        let now = u128::from(now.max(self.clock).0);
        let before = before(&self.slots, &self.rule);
        let mut best = best.map(Key::leaf);
        self.waiting.search(|key, bottom| {
            let due = key.rank() <= now;
            if due && bottom && best.is_none_or(|best| before(key.leaf(), best)) {
                best = Some(key.leaf());
            }
            due
        });
        best.map(StreamIndex)
    }

    /// Fills `block` with the streams whose heads go first at `now`, best first, of those that
    /// have been eligible since the last poll; how many there are. One decision orders them all:
    /// a ShareStreams block (section 4.3), sent from its front (max-first) or its back
    /// (min-first). Changes nothing. O(K (log N + K)) for a block of K.
    pub fn choose_block(&self, block: &mut [StreamIndex]) -> usize {
        let before = before(&self.slots, &self.rule);
        let mut len = 0;
        self.selection.search(|key, bottom| {
            let full = len == block.len();
            let goes = |other: &StreamIndex| before(key.leaf(), other.0);
            if full && !block.last().is_some_and(goes) {
                return false;
            }
            if bottom {
                let place = block[..len].iter().position(goes).unwrap_or(len);
                len += usize::from(!full);
                block[place..len].rotate_right(1);
                block[place] = StreamIndex(key.leaf());
            }
            true
        });
        len
    }

    /// Serves a stream's head: applies rule a, counts it as sent, removes it. It need not be the
    /// one that was chosen. O(log N).
    ///
    /// # Panics
    /// If the stream has no head.
    #[inline]
    pub fn serve(&mut self, s: StreamIndex) -> Served {
        let tagged = self.is_tagged(s);
        if !self.retire(s) {
            has_no_head(s, "serve");
        }
        let at = s.0 as usize;
        let slot = &mut self.slots[at];
        let late = slot.flags.has(Flags::MISSED);
        slot.window.serve();
        slot.count(&mut self.cold, at, Count::Sent, 1);
        if late {
            slot.count(&mut self.cold, at, Count::Late, 1);
        }
        slot.write_back(&mut self.cold, at);
        let served = Served { deadline: slot.deadline, late };
        if self.told {
            let standing = standing(s, slot);
            if !tagged {
                self.rule.head(&standing, self.cold[at].size, true);
            }
            self.rule.served(&standing);
            self.renew_stale();
        }
        served
    }

    /// Gives a stream's head up before its deadline (or after): counts a miss and a drop, applies
    /// rule b, removes it. True if that violates the window-constraint. O(log N).
    ///
    /// # Panics
    /// If the stream has no head.
    pub fn forfeit(&mut self, s: StreamIndex) -> bool {
        self.drop_head(s).1
    }

    /// A stream that is likely to be chosen within the next decisions: a caller with much state
    /// for each stream may fetch what it will need. `None` where there are so few streams that
    /// it does not matter. O(1).
    #[must_use]
    #[inline]
    pub fn likely_soon(&self) -> Option<StreamIndex> {
        self.selection.fetch_ahead().map(StreamIndex)
    }

    #[inline]
    fn slot(&self, s: StreamIndex) -> &Slot {
        match self.slots.get(s.0 as usize) {
            Some(slot) if slot.flags.has(Flags::PRESENT) => slot,
            _ => no_stream(s),
        }
    }

    /// Moves the clock on, and into the selection whatever has become ready.
    #[inline]
    fn advance(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
        if self.told {
            self.rule.advance(self.clock);
            self.renew_stale();
        }
        while let Some(key) = self.waiting.winner(&lower_leaf) {
            if key.rank() > u128::from(self.clock.0) {
                break;
            }
            self.waiting.leave(key.leaf(), &lower_leaf);
            let s = StreamIndex(key.leaf());
            let standing = standing(s, &self.slots[key.leaf() as usize]);
            if self.told {
                self.rule.head(&standing, self.cold[key.leaf() as usize].size, true);
                self.compete(s);
                self.renew_stale();
            } else {
                let key = self.rule.key(&standing, self.epoch);
                self.selection.enter(key, &before(&self.slots, &self.rule));
            }
        }
    }

    /// Ranks a stream's head and puts it where it belongs, after any change to it.
    #[inline]
    fn place(&mut self, s: StreamIndex) {
        let slot = &self.slots[s.0 as usize];
        if !self.deadline_first {
            self.deadlines.enter(Key::new(slot.deadline.0.into(), s.0), &lower_leaf);
        }
        let before = before(&self.slots, &self.rule);
        if slot.flags.has(Flags::WORK_CONSERVING) || slot.ready() <= self.clock {
            if !slot.flags.has(Flags::WORK_CONSERVING) {
                self.waiting.leave(s.0, &lower_leaf);
            }
            if self.told && self.rule.waits(s.0) {
                self.selection.leave(s.0, &before);
            } else {
                self.selection.enter(self.rule.key(&standing(s, slot), self.epoch), &before);
            }
        } else {
            self.selection.leave(s.0, &before);
            self.waiting.enter(Key::new(slot.ready().0.into(), s.0), &lower_leaf);
        }
        let soon = self.selection.fetch_ahead();
        if let Some(slot) = soon.and_then(|soon| self.slots.get(soon as usize)) {
            prefetch(slot);
        }
    }

    /// Takes a stream's head out of everything; whether there was one.
    #[inline]
    fn retire(&mut self, s: StreamIndex) -> bool {
        let slot = slot_mut(&mut self.slots, s);
        if !slot.flags.has(Flags::HEAD) {
            return false;
        }
        slot.flags.set(Flags::HEAD, false);
        let waits = !slot.flags.has(Flags::WORK_CONSERVING);
        self.selection.leave(s.0, &before(&self.slots, &self.rule));
        if waits {
            self.waiting.leave(s.0, &lower_leaf);
        }
        if !self.deadline_first {
            self.deadlines.leave(s.0, &lower_leaf);
        }
        true
    }

    /// Counts the loss of a head and removes it: its deadline, and whether that is a violation.
    fn drop_head(&mut self, s: StreamIndex) -> (Instant, bool) {
        let tagged = self.is_tagged(s);
        if !self.retire(s) {
            has_no_head(s, "drop");
        }
        let at = s.0 as usize;
        let slot = &mut self.slots[at];
        let violation = slot.window.miss();
        slot.count(&mut self.cold, at, Count::Missed, 1);
        slot.count(&mut self.cold, at, Count::Dropped, 1);
        slot.count(&mut self.cold, at, Count::Violations, u64::from(violation));
        slot.write_back(&mut self.cold, at);
        let deadline = slot.deadline;
        if tagged {
            self.rule.lost(&standing(s, slot));
            self.renew_stale();
        }
        (deadline, violation)
    }

    /// Counts the time in keys from nearer to now, which happens at most once in 2^53 ns (104
    /// days): keys that are too far from the epoch are right, but slow to compare. O(N).
    #[cold]
    #[inline(never)]
    fn move_epoch(&mut self, arrival: u64) {
        if !self.rule.timed() {
            return;
        }
        self.epoch = arrival - EPOCH_AHEAD / 2;
        let Self { slots, rule, epoch, .. } = self;
        let key = |leaf: u32| rule.key(&standing(StreamIndex(leaf), &slots[leaf as usize]), *epoch);
        self.selection.rekey(key, &before(slots, rule));
    }
}

/// How far a frame's arrival may lie after the epoch: leaves as much for deadlines.
const EPOCH_AHEAD: u64 = 1 << 54;

#[inline]
fn standing(s: StreamIndex, slot: &Slot) -> Standing {
    Standing {
        stream: s.0,
        deadline: slot.deadline,
        arrival: slot.arrival,
        period: slot.period,
        window: slot.window.current(),
        priority: slot.priority,
        weight: slot.weight,
    }
}

/// Whether the head of one stream goes before that of another, by all that counts.
#[inline]
fn before(slots: &[Slot], rule: &AnyRule) -> impl Fn(u32, u32) -> bool {
    move |a, b| {
        let standing = |s: u32| standing(StreamIndex(s), &slots[s as usize]);
        rule.before(&standing(a), &standing(b))
    }
}

#[inline]
fn slot_mut(slots: &mut [Slot], s: StreamIndex) -> &mut Slot {
    match slots.get_mut(s.0 as usize) {
        Some(slot) if slot.flags.has(Flags::PRESENT) => slot,
        _ => no_stream(s),
    }
}

#[cold]
#[inline(never)]
fn no_stream(s: StreamIndex) -> ! {
    panic!("there is no stream {}", s.0)
}

#[cold]
#[inline(never)]
fn has_no_head(s: StreamIndex, what: &str) -> ! {
    panic!("stream {} has no head to {what}", s.0)
}

#[cold]
#[inline(never)]
fn has_head_already(s: StreamIndex) -> ! {
    panic!("stream {} has a head already", s.0)
}

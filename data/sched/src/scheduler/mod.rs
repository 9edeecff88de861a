//! The scheduler: which stream's head frame goes next, and what each loses.
//!
//! Head frames come from the caller's queues, decisions go back to it. This is the interface, which looks the
//! discipline up; the work is done in `core`.

mod accessors;
mod core;
mod dequeue;
mod order;

use ::core::cmp::Reverse;
use alloc::collections::BinaryHeap;

use selvedge_data_stream::Contract;
use selvedge_units::Instant;

use self::core::{Core, Look};
use self::dequeue::{EXPIRED, VIOLATION};
use crate::discipline::{AnyRule, Discipline, Tree, with_rule};
use crate::record::{Decision, Dequeued, Expiry, Head, Outcome, StreamIndex};
use crate::slot::Cold;

/// Decides which stream's head frame goes next, and counts what each stream loses.
///
/// To decide at an instant, call [`decide`](Self::decide) until nothing more has expired, and enqueue the
/// next head of each stream whose frame was dropped before calling it again. Then call
/// [`dequeue`](Self::dequeue) for the stream that is to send, and enqueue that stream's next head.
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
    /// A property of the discipline.
    deadline_first: bool,
    /// A property of the discipline.
    observes: bool,
    core: Core,
    free: BinaryHeap<Reverse<u32>>,
    /// How many indexes have been given out.
    indexes: u32,
}

impl Scheduler {
    /// The most streams that a scheduler can hold.
    pub const STREAMS_MAX: u32 = 1 << 30;

    /// A scheduler without streams.
    #[must_use]
    pub fn new(discipline: Discipline) -> Self {
        Self::with_rule(discipline, discipline.rule())
    }

    /// A scheduler of discipline [`Discipline::Hwfq`] whose streams hang below the nodes of a tree, as
    /// [`Contract::parent`] states.
    #[must_use]
    pub fn with_tree(tree: &Tree) -> Self {
        Self::with_rule(Discipline::Hwfq, AnyRule::with_tree(tree))
    }

    fn with_rule(discipline: Discipline, rule: AnyRule) -> Self {
        Self {
            discipline,
            rule,
            deadline_first: discipline.goes_by_deadline(),
            observes: discipline.is_observer(),
            core: Core::default(),
            free: BinaryHeap::new(),
            indexes: 0,
        }
    }

    /// The discipline that it was made with.
    #[must_use]
    pub const fn discipline(&self) -> Discipline {
        self.discipline
    }

    /// Adds a stream at the lowest free index, with full windows and counters at zero. A period of zero
    /// counts as 1 ns, a window's `x` above its `y` as `y`. O(log N) amortised; the only method that
    /// allocates.
    ///
    /// # Panics
    /// If there are [`Self::STREAMS_MAX`] streams already.
    pub fn add(&mut self, contract: &Contract) -> StreamIndex {
        let index = match self.free.pop() {
            Some(Reverse(index)) => index,
            None => {
                let index = self.indexes;
                assert!(index < Self::STREAMS_MAX, "more than {} streams", Self::STREAMS_MAX);
                self.indexes += 1;
                // So that `remove` never allocates.
                self.free.reserve(self.indexes as usize);
                index
            }
        };
        let (slot, cold) = Cold::begin(contract);
        with_rule!(&mut self.rule, rule => self.core.put(rule, index, slot, cold));
        StreamIndex(index)
    }

    /// Removes a stream, its head and its counters. Its index is free for the next. O(log N).
    pub fn remove(&mut self, s: StreamIndex) {
        with_rule!(&mut self.rule, rule => self.core.remove(rule, s));
        self.free.push(Reverse(s.0));
    }

    /// Makes the next frame of a stream's queue its head; returns its deadline. Changes that the `set_`
    /// methods made since the last frame take effect now. O(log N).
    ///
    /// # Panics
    /// If the stream has a head already.
    pub fn enqueue_head(&mut self, s: StreamIndex, head: Head) -> Instant {
        with_rule!(&mut self.rule, rule => self.core.enqueue_head(rule, s, &head))
    }

    /// What to do at `now`: a [`poll_expired`](Self::poll_expired), and if nothing has expired, a
    /// [`choose`](Self::choose). Where nothing expires, both take one look at the trees. O(log N).
    #[inline]
    pub fn decide(&mut self, now: Instant) -> Decision {
        if !self.observes
            && let Some(quick_decision) = self.core.quick_decision(self.deadline_first, now)
        {
            return match quick_decision {
                Look::Send(first) => Decision::Send(first),
                Look::Expired(due) => self.expire(due),
            };
        }
        self.decide_slow(now)
    }

    /// [`decide`](Self::decide) and its consequence in one call. It serves the head that goes, or drops the
    /// one that has expired, and makes the next frame of its stream the head. It is faster, most of all where
    /// many frames miss their deadlines: which of the two happens is hard to predict, and nothing here
    /// branches on it, nor need a caller. `next` returns the frame behind the head, if there is one; it is
    /// called at most once.
    ///
    /// Returns `None` and does nothing in all other cases; then call `decide`. These are: `next` returns no
    /// frame, or the discipline does not go by deadline first. The head is late already, or a waiting head
    /// has become ready. The stream keeps late frames, has windows per kind or a delay, or may not send
    /// before its time. O(log N).
    #[must_use]
    #[inline]
    pub fn dequeue_or_expire(
        &mut self,
        now: Instant,
        next: impl FnOnce(StreamIndex) -> Option<Head>,
    ) -> Option<Outcome> {
        if !self.deadline_first || self.observes {
            return None;
        }
        let stream = self.core.quick_next(now)?;
        let next = next(stream)?;
        let (deadline, fate) =
            with_rule!(&mut self.rule, rule => self.core.dequeue_or_expire(rule, stream, &next));
        let (dropped, violation) = (fate & EXPIRED != 0, fate & VIOLATION != 0);
        Some(Outcome { stream, deadline, dropped, violation })
    }

    #[inline(never)]
    fn expire(&mut self, due: StreamIndex) -> Decision {
        with_rule!(&mut self.rule, rule => self.core.decide_expired(rule, due))
    }

    #[inline(never)]
    fn decide_slow(&mut self, now: Instant) -> Decision {
        if let Some(expiry) = self.poll_expired_slow(now) {
            return Decision::Expired(expiry);
        }
        self.choose(now).map_or(Decision::Idle, Decision::Send)
    }

    /// The next frame whose deadline has come (`D <= now`), the earliest first; `None` when there is no more.
    /// Counts the miss and applies rule b. After [`Verdict::Dropped`] the caller may enqueue the next frame
    /// of that stream before polling again; it expires in its turn if it is late as well.
    ///
    /// A frame that is kept (`late = send`) is returned once in a poll, however many periods have elapsed.
    /// [`Expiry::misses`] is the number of deadlines that it missed, and all are counted as if they had been
    /// polled one by one. So the work is bounded by the number of frames, not by the length of the gap. A
    /// deadline of [`Instant::MAX`] is never missed. O(log N).
    #[inline]
    pub fn poll_expired(&mut self, now: Instant) -> Option<Expiry> {
        if !self.observes
            && let Some(Look::Send(_)) = self.core.quick_decision(self.deadline_first, now)
        {
            return None;
        }
        self.poll_expired_slow(now)
    }

    /// Separate, so that a poll that finds nothing is a few comparisons in its caller.
    #[inline(never)]
    fn poll_expired_slow(&mut self, now: Instant) -> Option<Expiry> {
        with_rule!(&mut self.rule, rule => self.core.poll_expired(rule, now))
    }

    /// The stream whose head frame goes first at `now`, of those that are eligible: every head, if its stream
    /// is work-conserving, else those whose ready time (deadline minus period) has come. Changes nothing.
    /// O(1) after `poll_expired(now)`; else O(log N) for each stream that has become ready since the last
    /// poll.
    #[must_use]
    #[inline]
    pub fn choose(&self, now: Instant) -> Option<StreamIndex> {
        let quick_decision = self.core.quick_choice(now);
        quick_decision.or_else(|| with_rule!(&self.rule, rule => self.core.choose(rule, now)))
    }

    /// Fills `block` with the streams whose heads go first at `now`, best first, of those that have been
    /// eligible since the last poll; returns their number. One decision orders them all: a ShareStreams block
    /// (section 4.3), sent from its front (max-first) or its back (min-first). It is the order in which
    /// single decisions would send them if no other frame arrived. Changes no visible state. O(K (log N + K))
    /// for a block of K; under `hwfq` O(K depth log N), and a block larger than any before allocates.
    pub fn choose_block(&mut self, block: &mut [StreamIndex]) -> usize {
        with_rule!(&mut self.rule, rule => self.core.choose_block(rule, block))
    }

    /// Serves a stream's head: applies rule a, counts it as sent, removes it. The stream need not be the
    /// chosen one. O(log N).
    ///
    /// # Panics
    /// If the stream has no head.
    pub fn dequeue(&mut self, s: StreamIndex) -> Dequeued {
        with_rule!(&mut self.rule, rule => self.core.dequeue(rule, s))
    }

    /// [`dequeue`](Self::dequeue) and [`enqueue_head`](Self::enqueue_head) in one call, which is faster: for
    /// a stream whose queue holds another frame. O(log N).
    ///
    /// # Panics
    /// If the stream has no head.
    pub fn dequeue_and_enqueue(&mut self, s: StreamIndex, next: Head) -> Dequeued {
        with_rule!(&mut self.rule, rule => self.core.dequeue_and_enqueue(rule, s, &next))
    }

    /// Serves a stream's head and the frames behind it, `frames` in all, of which the last was due at `last`
    /// and each stated its deadline; `next`, if there is one, becomes the head. The effect is that of a
    /// [`dequeue`](Self::dequeue) and an enqueue for each, but the stream is ranked once: for a run of frames
    /// that is sent in one piece. Returns false, and does nothing, where each frame must be examined. The
    /// reasons are windows per kind, a head that has missed a deadline or had to wait for its time, a
    /// contract with a delay or a changed one, and a discipline that shares by bytes. O(log N).
    ///
    /// # Panics
    /// If there is no such stream.
    #[must_use]
    pub fn dequeue_many(
        &mut self,
        s: StreamIndex,
        frames: u32,
        last: Instant,
        next: Option<Head>,
    ) -> bool {
        let run = (frames, last);
        with_rule!(&mut self.rule, rule => self.core.dequeue_many(rule, s, run, next.as_ref()))
    }

    /// Drops a stream's head before its deadline (or after): counts a miss and a drop, applies rule b,
    /// removes it. True if that violates the window-constraint. O(log N).
    ///
    /// # Panics
    /// If the stream has no head.
    pub fn drop_head(&mut self, s: StreamIndex) -> bool {
        with_rule!(&mut self.rule, rule => self.core.drop_head(rule, s)).1
    }

    /// A stream that is likely to be chosen within the next decisions: a caller with much state for each
    /// stream may prefetch it. `None` where there are so few streams that it does not matter. O(1).
    #[must_use]
    #[inline]
    pub fn likely_next(&self) -> Option<StreamIndex> {
        self.core.selection.soon().map(StreamIndex)
    }
}

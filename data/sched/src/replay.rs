//! Replay in the unit-slot model: the scheduler driven by a list of arrivals, one decision a slot.
//!
//! This is the model of the papers' proofs, of the RTL and of the trace files. Time is an integer: here one
//! unit of [`Instant`] and [`Duration`](selvedge_units::Duration) is one slot. A decision is taken at `t = 0,
//! 1, 2, ...`; the chosen frame occupies `[t, t+1)`; arrivals at `t` are seen by the decision at `t`. Expiry
//! precedes the choice.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use selvedge_data_stream::{Contract, Counters, Kind, Window};
use selvedge_units::{Bytes, Instant};

use crate::{Discipline, Head, Scheduler, StreamIndex, Tree, Verdict};

/// The size of a frame for which a trace states none.
pub(crate) const SIZE: Bytes = Bytes(1000);

/// The input of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The order in which streams are served.
    pub discipline: Discipline,
    /// The number of slots; the first is at 0.
    pub ticks: u64,
    /// The streams, in the order of their indexes.
    pub streams: Vec<TraceStream>,
    /// The tree by which `hwfq` shares the link.
    pub tree: Tree,
    /// Their frames.
    pub arrivals: Arrivals,
}

/// A stream of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceStream {
    /// The name in printed events.
    pub id: String,
    /// Its contract, the period in slots.
    pub contract: Contract,
    /// The first frame's deadline, if it is not that frame's arrival plus one period.
    pub first_deadline: Option<Instant>,
}

/// The frames of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Every queue always holds a frame, and all of them arrived at 0.
    Backlogged,
    /// One by one, in any order of time; frames of one stream that arrive together keep their order.
    Listed(Vec<Arrival>),
}

/// A frame that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time; frames that arrive after the last slot are never seen.
    pub at: Instant,
    /// The stream, as an index into [`Trace::streams`].
    pub stream: StreamIndex,
    /// Its size, for the disciplines that look at it; every frame takes one slot.
    pub size: Bytes,
}

/// The frame of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRef {
    /// Its stream.
    pub stream: StreamIndex,
    /// Its number in its stream, from 0.
    pub seq: u64,
    /// The deadline that it missed, or, if it was sent, its current one.
    pub deadline: Instant,
}

/// What happened in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayAction {
    /// A frame missed its deadline and was lost.
    Drop(FrameRef),
    /// A frame missed its deadline and was kept.
    Miss(FrameRef),
    /// A frame was sent.
    Send {
        /// The frame.
        frame: FrameRef,
        /// Whether it had missed a deadline before.
        late: bool,
    },
    /// There was nothing to send.
    Idle,
}

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The slot.
    pub t: Instant,
    /// What happened in it.
    pub action: ReplayAction,
}

/// The result of a trace, from any engine that replayed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its events in order of time.
    pub events: Vec<Event>,
    /// The streams' counters and current windows.
    pub totals: Vec<(Counters, Window)>,
}

impl Outcome {
    /// The result by the scheduler alone.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut replay = Replay::new(trace);
        let events = replay.by_ref().collect();
        let totals = replay.totals().map(|(_, counters, window)| (counters, window)).collect();
        Self { events, totals }
    }
}

/// Replays a trace; yields its events in order of time. Exactly one in each slot is a `Send` or `Idle`, the
/// last of that slot. Memory is bounded by the trace, not by its ticks; each event takes O(log N) for N
/// streams.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    trace: &'a Trace,
    sched: Scheduler,
    queues: Vec<Queue>,
    /// Indexes into the list of arrivals, by time.
    order: Vec<usize>,
    /// How many of `order` have arrived.
    arrived: usize,
    /// The present slot.
    t: u64,
    /// Whether the arrivals of the present slot are in their queues.
    begun: bool,
    /// The misses of the present slot that are still to be reported, the next one last. For a kept frame the
    /// number is that of its misses, a period apart; for a dropped frame it is 0.
    expired: Vec<(FrameRef, u64)>,
}

/// The frames behind a stream's head.
#[derive(Clone, Debug)]
struct Queue {
    /// Arrival times and sizes.
    waiting: VecDeque<(Instant, Bytes)>,
    /// Whether there is always one more frame that arrived at 0.
    backlogged: bool,
    /// For the first frame only.
    first_deadline: Option<Instant>,
    /// The head's number.
    seq: u64,
}

impl Queue {
    fn pop(&mut self) -> Option<(Instant, Bytes)> {
        if self.backlogged { Some((Instant::ZERO, SIZE)) } else { self.waiting.pop_front() }
    }
}

impl<'a> Replay<'a> {
    /// A replay at its beginning. O(A log A) for A arrivals.
    ///
    /// # Panics
    /// If an arrival belongs to a stream that the trace does not have.
    #[must_use]
    pub fn new(trace: &'a Trace) -> Self {
        let listed: &[Arrival] = match &trace.arrivals {
            Arrivals::Backlogged => &[],
            Arrivals::Listed(listed) => listed,
        };
        let known = |arrival: &Arrival| (arrival.stream.0 as usize) < trace.streams.len();
        assert!(listed.iter().all(known), "an arrival is of a stream that is not in the trace");
        let mut order: Vec<usize> = (0..listed.len()).collect();
        order.sort_by_key(|&place| listed[place].at);

        let mut sched = match trace.discipline {
            Discipline::Hwfq => Scheduler::with_tree(&trace.tree),
            discipline => Scheduler::new(discipline),
        };
        let mut queues = Vec::with_capacity(trace.streams.len());
        for stream in &trace.streams {
            sched.add(&stream.contract);
            queues.push(Queue {
                waiting: VecDeque::new(),
                backlogged: trace.arrivals == Arrivals::Backlogged,
                first_deadline: stream.first_deadline,
                seq: 0,
            });
        }
        let (arrived, t, begun, expired) = (0, 0, false, Vec::new());
        let mut replay = Self { trace, sched, queues, order, arrived, t, begun, expired };
        for index in (0..).take(replay.queues.len()) {
            replay.enqueue_next_head(StreamIndex(index));
        }
        replay
    }

    /// The streams' counters and current windows `x'/y'`, in the order of the trace; final once
    /// all events have been taken.
    pub fn totals(&self) -> impl Iterator<Item = (&TraceStream, Counters, Window)> {
        self.trace.streams.iter().zip(0..).map(|(stream, index)| {
            let s = StreamIndex(index);
            (stream, self.sched.counters(s), self.sched.window(s, Kind::Data))
        })
    }

    /// Enqueues the frames that arrive in this slot.
    fn admit(&mut self) {
        let Arrivals::Listed(listed) = &self.trace.arrivals else { return };
        while let Some(&place) = self.order.get(self.arrived) {
            let arrival = listed[place];
            if arrival.at > Instant(self.t) {
                break;
            }
            self.arrived += 1;
            self.queues[arrival.stream.0 as usize].waiting.push_back((arrival.at, arrival.size));
            if self.sched.head_deadline(arrival.stream).is_none() {
                self.enqueue_next_head(arrival.stream);
            }
        }
    }

    /// Makes the next frame of a queue its head, if there is one.
    fn enqueue_next_head(&mut self, s: StreamIndex) {
        let queue = &mut self.queues[s.0 as usize];
        if let Some((arrival, size)) = queue.pop() {
            let deadline = queue.first_deadline.take();
            self.sched.enqueue_head(s, Head { deadline, size, ..Head::arrived(arrival) });
        }
    }

    /// The head has left: counts it, and enqueues the next.
    fn leave(&mut self, s: StreamIndex) {
        self.queues[s.0 as usize].seq += 1;
        self.enqueue_next_head(s);
    }

    /// Expires the frames that are due in this slot. The scheduler goes by deadline, a trace by stream.
    fn expire(&mut self) {
        while let Some(expiry) = self.sched.poll_expired(Instant(self.t)) {
            let s = expiry.stream;
            let seq = self.queues[s.0 as usize].seq;
            let frame = FrameRef { stream: s, seq, deadline: expiry.deadline };
            let dropped = expiry.verdict == Verdict::Dropped;
            self.expired.push((frame, if dropped { 0 } else { expiry.misses }));
            if dropped {
                self.leave(s);
            }
        }
        // Stable, so that those of one stream stay in their order.
        self.expired.reverse();
        self.expired.sort_by_key(|(frame, _)| Reverse(frame.stream));
    }

    /// The next of the misses that are still to be reported. A kept frame has several at once if its first
    /// deadline is stated and lies more than a period before its arrival.
    fn next_miss(&mut self) -> Option<ReplayAction> {
        let (frame, misses) = self.expired.last_mut()?;
        let missed_frame = *frame;
        if *misses == 0 {
            self.expired.pop();
            return Some(ReplayAction::Drop(missed_frame));
        }
        *misses -= 1;
        if *misses == 0 {
            self.expired.pop();
        } else {
            let period = self.trace.streams[missed_frame.stream.0 as usize].contract.period;
            frame.deadline = missed_frame.deadline + period;
        }
        Some(ReplayAction::Miss(missed_frame))
    }

    fn decide(&mut self) -> ReplayAction {
        let Some(s) = self.sched.choose(Instant(self.t)) else { return ReplayAction::Idle };
        let served = self.sched.dequeue(s);
        let seq = self.queues[s.0 as usize].seq;
        self.leave(s);
        ReplayAction::Send {
            frame: FrameRef { stream: s, seq, deadline: served.deadline },
            late: served.late,
        }
    }
}

impl Iterator for Replay<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.t >= self.trace.ticks {
            return None;
        }
        let t = Instant(self.t);
        if !self.begun {
            self.admit();
            self.expire();
            self.begun = true;
        }
        if let Some(happening) = self.next_miss() {
            return Some(Event { t, action: happening });
        }
        let happening = self.decide();
        self.t += 1;
        self.begun = false;
        Some(Event { t, action: happening })
    }
}

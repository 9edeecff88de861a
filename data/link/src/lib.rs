//! A link: frames of many streams enter, one packet at a time leaves, and each frame's fate is
//! reported.
//!
//! Frames come from the streams' rings; packets go to the transmission engine; fates go to the
//! ledger and to the owner of the payloads, which releases them. `sched` decides the order of
//! service (NI coprocessors, section 2.2.4); `select` decides which frames are not worth sending;
//! `pace` decides when a packet may leave. Frames are pre-empted between packets: each packet is
//! chosen anew.
//!
//! The caller's loop: `handle_frame` for all arrivals; then `poll_transmit`, wait until `departure`
//! of that packet's size, send it, call `sent`; `poll_settled` until it is empty. Arrivals while
//! waiting change the choice, so poll again after each wait.

mod arrival;
pub mod bound;
mod burst;
mod encoders;
mod lateness;
mod pace;
mod params;
mod prefetch;
mod queue;
mod rate_meter;
mod select;
mod settled;

use std::ops::Range;

use selvedge_data_sched::{Decision, Discipline, Expiry, Scheduler, StreamIndex, Tree, Verdict};
use selvedge_data_stream::{Contract, DropReason, Fate, Frame, Late, Ledger, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use burst::Grant;
pub use burst::Run;
pub use encoders::{Encoder, IntraRequests, beside_waiting, follow};
pub use lateness::Paced;
pub use pace::Pacer;
use params::{Delays, RateDerived};
pub use params::{LinkParams, PathEstimate, default_catch_up};
use prefetch::FetchAhead;
use queue::{Pending, StreamQueue};
pub use rate_meter::RateMeter;
use select::{Capacity, Selection, drop_dependents, drop_one};
use settled::{SettledQueue, settle, settle_dropped};

/// Frames of one stream that may wait in the link; more are dropped as full. The engine leaves
/// them in their ring instead.
pub const WAITING_MAX: usize = 1024;

/// Frames that arrive within this time count when something is given up: it can't save much more
/// than the waiting ones.
const HORIZON: Duration = Duration::from_secs(3);

/// Frames of a burst that are fetched at once.
const FETCHED: usize = 16;

/// The packet to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its stream.
    pub stream: StreamIndex,
    /// The frame that it belongs to.
    pub frame: Frame,
    /// The packet's number in the frame, from 0.
    pub packet: u16,
    /// When the frame is due.
    pub deadline: Instant,
}

/// A frame that the link is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Its stream.
    pub stream: StreamIndex,
    /// The frame; its payload may be released.
    pub frame: Frame,
    /// Its fate.
    pub fate: Fate,
}

/// A link and all frames that wait for it.
#[derive(Clone, Debug)]
pub struct Link {
    params: LinkParams,
    /// By which rate frames are selected.
    expected: Bitrate,
    reserve: Duration,
    scheduler: Scheduler,
    pacer: Pacer,
    queues: Vec<Option<StreamQueue>>,
    ledgers: Vec<Option<Ledger>>,
    selection: Selection,
    settled: SettledQueue,
    offered: RateMeter,
    sent: RateMeter,
    sent_bytes: Bytes,
    /// The bytes that the earlier rates allowed while frames waited, and for how long frames have
    /// waited at the current rate, up to `watched`.
    could_send: Bytes,
    waited: Duration,
    capacity_counted_until: Instant,
    /// No frame may go: none waits, or each has to wait for its period.
    idle: bool,
    delays: Delays,
    derived: RateDerived,
    /// Bytes of all waiting frames that are not given up.
    backlog: Bytes,
    /// The packet last returned by `poll_transmit`.
    next: Option<StreamIndex>,
    grant: Option<Grant>,
    /// Until then some frame may wait behind one of its stream with a later deadline.
    inverted_until: Instant,
    ahead: FetchAhead,
}

impl Link {
    /// A link without streams.
    #[must_use]
    pub fn new(params: LinkParams) -> Self {
        let pacer = Pacer::new(params.rate, params.burst.max(params.mtu));
        let derived = RateDerived::new(&pacer, params.mtu);
        let mut link = Self {
            params,
            expected: params.rate,
            reserve: Duration::ZERO,
            scheduler: Scheduler::new(params.discipline),
            pacer,
            queues: Vec::new(),
            ledgers: Vec::new(),
            selection: Selection::default(),
            settled: SettledQueue::default(),
            offered: RateMeter::default(),
            sent: RateMeter::default(),
            sent_bytes: Bytes(0),
            could_send: Bytes(0),
            waited: Duration::ZERO,
            capacity_counted_until: Instant::ZERO,
            idle: true,
            delays: Delays::default(),
            derived,
            backlog: Bytes(0),
            next: None,
            grant: None,
            inverted_until: Instant::ZERO,
            ahead: FetchAhead::default(),
        };
        link.set_catch_up();
        link
    }

    /// A link without streams; under `hwfq` its streams hang below the nodes of `tree`, as their
    /// contracts' `parent` states. Other disciplines ignore it.
    #[must_use]
    pub fn with_tree(params: LinkParams, tree: &Tree) -> Self {
        let mut link = Self::new(params);
        if params.discipline == Discipline::Hwfq {
            link.scheduler = Scheduler::with_tree(tree);
        }
        link
    }

    /// Sets how much is caught up, at this rate and for the present streams.
    fn set_catch_up(&mut self) {
        let LinkParams { rate, mtu, catch_up, .. } = self.params;
        let default = || default_catch_up(rate, mtu, self.delays.shortest());
        self.pacer.set_catch_up(catch_up.unwrap_or_else(default));
    }

    /// Adds a stream.
    pub fn add_stream(&mut self, contract: Contract) -> StreamIndex {
        // With a delay each frame's deadline is stated: it is known here.
        let stream = self.scheduler.add(&Contract { delay: None, ..contract });
        let at = stream.0 as usize;
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, || None);
            self.ledgers.resize_with(at + 1, || None);
            self.ahead.grow(at + 1);
        }
        self.queues[at] = Some(StreamQueue::new(contract));
        self.delays.add(contract.delay);
        self.set_catch_up();
        // Room for every waiting frame, and for references as far back as they are followed.
        self.ledgers[at] = Some(Ledger::new(4 * WAITING_MAX));
        stream
    }

    /// Removes a stream; its waiting frames are settled as removed. Its ledger can be read until
    /// its number is given to another stream.
    pub fn remove_stream(&mut self, now: Instant, stream: StreamIndex) {
        let at = stream.0 as usize;
        let Some(mut queue) = self.queues.get_mut(at).and_then(Option::take) else { return };
        self.grant = None;
        self.delays.remove(queue.contract.delay);
        self.set_catch_up();
        self.scheduler.remove(stream);
        if self.next == Some(stream) {
            self.next = None;
        }
        for pending in queue.frames.drain(..) {
            if pending.dropped.is_none() {
                self.backlog = self.backlog - pending.left;
            }
            let ledger = &mut self.ledgers[at];
            settle_dropped(&mut self.settled, ledger, stream, &pending, DropReason::Removed, now);
        }
    }

    /// Settles all waiting frames of a stream as removed, and keeps the stream.
    pub fn clear_stream(&mut self, now: Instant, stream: StreamIndex) {
        let Some(queue) = self.queue_mut(stream) else { return };
        let mut freed = Bytes(0);
        for at in 0..queue.frames.len() {
            if queue.frames[at].dropped.is_none() {
                freed += drop_one(queue, at, DropReason::Removed);
            }
        }
        self.backlog = self.backlog - freed;
        self.enqueue_next_head(now, stream);
    }

    fn queue_mut(&mut self, stream: StreamIndex) -> Option<&mut StreamQueue> {
        self.queues.get_mut(stream.0 as usize)?.as_mut()
    }

    /// Makes the waiting frames fit the link again.
    fn select(&mut self, now: Instant) {
        if !self.params.selection {
            return;
        }
        let offered = self.offered.long_mean(now);
        let excess = Bitrate(offered.0.saturating_sub(self.expected.0));
        let capacity = Capacity {
            rate: self.expected,
            from: now.max(self.free_at()),
            guard: self.derived.guard,
            excess,
            coming: (excess * HORIZON).min(self.backlog + Bytes(self.backlog.0 / 3)),
        };
        let scheduler = &self.scheduler;
        let windows = |stream: usize| scheduler.windows(StreamIndex(stream as u32));
        let freed = self.selection.drop_until_feasible(&mut self.queues, capacity, windows);
        if freed > Bytes(0) {
            self.backlog = self.backlog - freed;
            self.promote_all(now);
        }
    }

    /// When the link is free for a full packet: a bucket that is not full represents work still
    /// owed.
    fn free_at(&self) -> Instant {
        self.pacer.before_full(self.derived.slack)
    }

    /// When all waiting frames can be sent, with some time to spare for each frame.
    fn all_sent(&self, now: Instant) -> Instant {
        now.max(self.free_at()) + self.pacer.time(self.backlog) + self.derived.guard
    }

    fn promote_all(&mut self, now: Instant) {
        for at in 0..self.queues.len() {
            self.enqueue_next_head(now, StreamIndex(at as u32));
        }
    }

    /// Drops frames that are given up at the head of a stream, and passes its next head to the
    /// scheduler.
    fn enqueue_next_head(&mut self, now: Instant, stream: StreamIndex) {
        let at = stream.0 as usize;
        let Some(queue) = self.queues[at].as_mut() else { return };
        while let Some(head) = queue.frames.front().copied() {
            if self.scheduler.head_deadline(stream).is_none()
                && let Some(next) = queue.head()
            {
                self.scheduler.enqueue_head(stream, next);
            }
            let Some(reason) = head.dropped else { break };
            self.scheduler.drop_head(stream);
            queue.take_first();
            settle_dropped(&mut self.settled, &mut self.ledgers[at], stream, &head, reason, now);
        }
    }

    /// Counts the bytes that the rate allowed up to now, if frames waited that could go. Only then
    /// was unused capacity missed.
    fn count_capacity(&mut self, now: Instant) {
        if self.idle || self.backlog == Bytes(0) {
            self.pacer.idle_until(now);
        } else {
            self.waited += now.since(self.capacity_counted_until);
        }
        self.capacity_counted_until = self.capacity_counted_until.max(now);
    }

    /// Expires heads that are past their deadlines; returns the packet that should leave next, if
    /// any. The same packet may be returned again, or another, until `sent` is called.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        self.count_capacity(now);
        let next = self.choose(now);
        self.idle = next.is_none();
        next
    }

    #[inline]
    fn choose(&mut self, now: Instant) -> Option<Transmit> {
        self.next = None;
        if let Some(granted) = self.granted(now) {
            self.next = Some(granted.stream);
            return Some(granted);
        }
        loop {
            let stream = match self.scheduler.decide(now) {
                Decision::Expired(expiry) => {
                    self.expire(now, expiry);
                    continue;
                }
                Decision::Send(stream) => stream,
                Decision::Idle => return None,
            };
            let frames = if self.params.bursts() { FETCHED } else { 1 };
            self.ahead.prefetch_chosen(stream, frames, &self.queues, &self.ledgers);
            let selection = self.params.selection;
            let queue = self.queues[stream.0 as usize].as_ref()?;
            let head = *queue.frames.front()?;
            let drop_late = queue.contract.late == Late::Drop;
            if selection && drop_late && now + self.soonest(head.left) > head.deadline {
                let queue = self.queues[stream.0 as usize].as_mut()?;
                let freed = drop_one(queue, 0, DropReason::TooLate);
                self.backlog = self.backlog - freed;
                self.drop_dependents(stream, head.frame.seq);
                self.enqueue_next_head(now, stream);
                continue;
            }
            self.next = Some(stream);
            self.grant = self.grant_to(now, stream);
            return Some(Transmit {
                stream,
                frame: head.frame,
                packet: head.packets_sent,
                deadline: self
                    .due_at_the_far_end(&head)
                    .or_else(|| self.scheduler.head_deadline(stream))
                    .unwrap_or(head.deadline),
            });
        }
    }

    /// How long this takes to send at the rate that is expected.
    #[inline]
    fn soonest(&self, size: Bytes) -> Duration {
        if self.expected > self.params.rate { size / self.expected } else { self.pacer.time(size) }
    }

    /// The deadline without the reserve, if there is one.
    #[inline]
    fn due_at_the_far_end(&self, waiting: &Pending) -> Option<Instant> {
        (waiting.reserve > Duration::ZERO).then(|| waiting.deadline + waiting.reserve)
    }

    /// Drops a head that has expired, unless its stream sends late frames.
    fn expire(&mut self, now: Instant, expiry: Expiry) {
        if expiry.verdict != Verdict::Dropped {
            return;
        }
        let at = expiry.stream.0 as usize;
        let Some(queue) = self.queues[at].as_mut() else { return };
        let Some(head) = queue.take_first() else { return };
        queue.mark_lost(head.frame.seq);
        if head.dropped.is_none() {
            self.backlog = self.backlog - head.left;
        }
        let ledger = &mut self.ledgers[at];
        settle_dropped(&mut self.settled, ledger, expiry.stream, &head, DropReason::Expired, now);
        if self.params.selection {
            self.drop_dependents(expiry.stream, head.frame.seq);
        }
        self.enqueue_next_head(now, expiry.stream);
    }

    /// Gives up the waiting frames of a stream that depend on `root`, which is lost.
    fn drop_dependents(&mut self, stream: StreamIndex, root: u32) {
        let Some(queue) = self.queue_mut(stream) else { return };
        let freed = drop_dependents(queue, 0, root, DropReason::ReferenceLost);
        self.backlog = self.backlog - freed;
    }

    /// When a packet of this size may leave; an instant that is not after now means at once.
    #[must_use]
    pub fn departure(&self, size: Bytes) -> Instant {
        self.pacer.departure(size)
    }

    /// When a packet that is sent now behind `before` bytes should leave the device, for a device
    /// that can hold it until then: this spreads a burst on the wire.
    #[must_use]
    pub fn spaced(&self, now: Instant, before: Bytes) -> Instant {
        self.pacer.spaced(now, before)
    }

    /// When a head will next expire or become ready by itself. Calling earlier is harmless; later,
    /// a miss is counted late and a frame that had to wait for its period waits longer.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        self.scheduler.next_event(now)
    }

    /// The next frame that the link is done with.
    #[inline]
    pub fn poll_settled(&mut self) -> Option<Settled> {
        self.settled.pop()
    }

    /// The packet last polled has been sent, and took `size` on the wire.
    pub fn sent(&mut self, now: Instant, size: Bytes) {
        self.sent_run(now, 1, size);
    }

    /// The packet last polled has been sent together with the next ones of its frame, `packets` in
    /// all, in one call; they took `size` on the wire. For links that grant a burst: one decision
    /// covers all that the burst holds of the chosen frame.
    #[inline]
    pub fn sent_run(&mut self, now: Instant, packets: u16, size: Bytes) {
        if let Some(stream) = self.consume_credit(now, size) {
            self.account_head_packets(now, stream, packets, size);
        }
    }

    /// Records that this number of the head's packets have been sent.
    #[inline(always)]
    fn account_head_packets(
        &mut self,
        now: Instant,
        stream: StreamIndex,
        packets: u16,
        size: Bytes,
    ) {
        let at = stream.0 as usize;
        let Some(queue) = self.queues[at].as_mut() else { return };
        let Some(head) = queue.frames.front_mut() else { return };
        head.packets_sent = head.packets_sent.saturating_add(packets);
        let last = head.packets_sent >= head.frame.packets;
        let part = if last { head.left } else { size.min(head.left) };
        head.left = head.left - part;
        self.backlog = self.backlog - part;
        if last {
            let frame = head.frame;
            queue.take_first();
            let next = queue.head();
            let served = match next {
                Some(next) => self.scheduler.dequeue_and_enqueue(stream, next),
                None => self.scheduler.dequeue(stream),
            };
            let on_time = !served.late && now <= served.deadline;
            let fate = Fate::Sent { on_time, queueing: now.since(frame.arrival) };
            settle(&mut self.settled, &mut self.ledgers[at], stream, &frame, fate, now);
            if next.is_some() {
                self.enqueue_next_head(now, stream);
            }
        }
    }

    /// The packets polled last leave the link; returns their stream.
    #[inline(always)]
    fn consume_credit(&mut self, now: Instant, size: Bytes) -> Option<StreamIndex> {
        let stream = self.next.take()?;
        self.pacer.take(now, size);
        self.sent.add(now, size);
        self.sent_bytes += size;
        if let Some(grant) = &mut self.grant {
            grant.left = grant.left - size;
        }
        Some(stream)
    }

    /// The frame of the packet last polled can't be sent at all.
    pub fn failed(&mut self, now: Instant, reason: DropReason) {
        let Some(stream) = self.next.take() else { return };
        let Some(queue) = self.queue_mut(stream) else { return };
        let Some(head) = queue.frames.front().map(|head| head.frame.seq) else { return };
        let freed = drop_one(queue, 0, reason);
        self.backlog = self.backlog - freed;
        if self.params.selection {
            self.drop_dependents(stream, head);
        }
        self.enqueue_next_head(now, stream);
    }

    /// The parameters that it was made with; the rate is the current one.
    #[must_use]
    pub const fn params(&self) -> &LinkParams {
        &self.params
    }

    /// The scheduler, for its counters and windows.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The ledger of a stream: the fates of its frames.
    #[must_use]
    pub fn ledger(&self, stream: StreamIndex) -> Option<&Ledger> {
        self.ledgers.get(stream.0 as usize)?.as_ref()
    }

    /// Where the large parts of its streams' state lie, for an owner that controls their memory.
    pub fn memory(&self) -> impl Iterator<Item = Range<*const u8>> {
        self.ledgers.iter().flatten().map(Ledger::memory).chain(self.scheduler.memory())
    }

    /// Frames of one stream that wait here, including those given up but not yet settled.
    #[must_use]
    pub fn queued(&self, stream: StreamIndex) -> usize {
        let queue = self.queues.get(stream.0 as usize).and_then(Option::as_ref);
        queue.map_or(0, |q| q.frames.len())
    }

    /// Bytes of all frames that wait to be sent.
    #[must_use]
    pub const fn backlog(&self) -> Bytes {
        self.backlog
    }

    /// Bytes sent since the start.
    #[must_use]
    pub const fn sent_bytes(&self) -> Bytes {
        self.sent_bytes
    }

    /// Bytes that the rate would have allowed while frames waited that could go: the bytes sent
    /// should be nearly as many.
    #[must_use]
    pub fn could_send(&self) -> Bytes {
        self.could_send + self.params.rate * self.waited
    }

    /// The mean rates offered and sent over the last whole second or so.
    #[must_use]
    pub fn rates(&self, now: Instant) -> (Bitrate, Bitrate) {
        (self.offered.last_second(now), self.sent.last_second(now))
    }

    /// Changes a stream's windows; they start afresh.
    pub fn set_windows(&mut self, stream: StreamIndex, windows: Windows) {
        if let Some(queue) = self.queue_mut(stream) {
            queue.contract.windows = windows;
            self.scheduler.set_windows(stream, windows);
        }
    }

    /// Changes a stream's priority.
    pub fn set_priority(&mut self, stream: StreamIndex, priority: i32) {
        if let Some(queue) = self.queue_mut(stream) {
            queue.contract.priority = priority;
            self.scheduler.set_priority(stream, priority);
        }
    }

    /// Changes windows, priority, weight, period and delay of a stream to those of a contract, from
    /// its next frame on; waiting frames keep their deadlines. The other terms of the contract stay
    /// as they were when the stream was added. Windows that do not change keep their counts.
    pub fn set_terms(&mut self, stream: StreamIndex, terms: &Contract) {
        let Some(before) = self.contract(stream).copied() else { return };
        if before.windows != terms.windows {
            self.set_windows(stream, terms.windows);
        }
        if before.priority != terms.priority {
            self.set_priority(stream, terms.priority);
        }
        let Some(queue) = self.queue_mut(stream) else { return };
        let Contract { weight, period, delay, .. } = *terms;
        queue.contract = Contract { weight, period, delay, ..queue.contract };
        if before.weight != weight {
            self.scheduler.set_weight(stream, weight);
        }
        if before.period != period {
            self.scheduler.set_period(stream, period);
        }
        if before.delay != delay {
            self.delays.remove(before.delay);
            self.delays.add(delay);
            self.set_catch_up();
        }
    }

    /// Changes how many bytes may wait, and how many of the bytes missed by late wake-ups are
    /// caught up.
    pub fn set_bounds(&mut self, queue: Option<Bytes>, catch_up: Option<Bytes>) {
        self.params.queue = queue;
        self.params.catch_up = catch_up;
        self.set_catch_up();
    }

    /// The contract of a stream, as it is now.
    #[must_use]
    pub fn contract(&self, stream: StreamIndex) -> Option<&Contract> {
        self.queues.get(stream.0 as usize)?.as_ref().map(|q| &q.contract)
    }

    /// What is known of the path behind it.
    #[must_use]
    pub const fn path(&self) -> PathEstimate {
        PathEstimate { rate: self.params.rate, expected: self.expected, reserve: self.reserve }
    }

    /// Changes the rate; frames that no longer fit are given up at once.
    pub fn set_rate(&mut self, now: Instant, rate: Bitrate) {
        self.set_path(now, PathEstimate { rate, expected: rate, ..self.path() });
    }

    /// Changes what is known of the path behind the link; frames that no longer fit are given up at once. The reserve
    /// is of frames that arrive from now on.
    pub fn set_path(&mut self, now: Instant, path: PathEstimate) {
        let PathEstimate { rate, expected, reserve } = path;
        (self.expected, self.reserve) = (expected.max(rate), reserve);
        self.count_capacity(now);
        self.could_send = self.could_send();
        self.waited = Duration::ZERO;
        self.params.rate = rate;
        self.pacer.set_rate(now, rate);
        self.set_catch_up();
        self.derived = RateDerived::new(&self.pacer, self.params.mtu);
        self.select(now);
    }
}

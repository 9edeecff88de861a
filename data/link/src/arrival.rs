//! Frames on their way into a link: which are missing before them, whether they can be of use, and
//! which must go so that they fit.
//!
//! These methods of [`Link`] have a file of their own: what they find goes on in [`ArrivalSummary`].
//!
//! Ends of groups given up in advance. Breaking off a group costs least just before its end: little
//! of it is still to come. Waiting until a frame no longer fits may mean breaking off a group at
//! its beginning, with nothing to send until its stream's next intra picture.
//!
//! So on each arrival of a referenced picture, the link predicts how much will wait at the next end
//! of a group, of any stream. It derives this from sizes and lengths of the groups before,
//! including the intra pictures to come. If that is more than can wait, and this stream's group
//! ends before, the rest of the group is given up as soon as all of it is needed and the link has
//! enough to send until its end.

use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::{Head, StreamIndex};
use selvedge_data_stream::{DropReason, Fate, Frame, Kind, Late, Ledger, References};
use selvedge_units::{Bytes, Duration, Instant};

use super::queue::{Pending, StreamQueue};
use super::select::drop_one;
use super::settled::settle;
use super::{Link, Settled, WAITING_MAX};

/// Frames that may be missing from a stream at once. A larger gap is a fresh start: waiting frames
/// of the stream are dropped as removed.
const GAP_MAX: u32 = 1024;

/// The effects on the link of frames that were put into one queue.
struct ArrivalSummary {
    /// Whether the queue was empty before, and its first frame is now one that is to be sent.
    first: bool,
    head: Option<Head>,
    /// Whether frames may be given up so that these are on time.
    presses: bool,
    /// Bytes that arrived, and those that are to be sent.
    offered: Bytes,
    kept: Bytes,
    /// The earliest deadline of the frames to be sent, if there are any.
    earliest: Option<Instant>,
    /// How long before its deadline a frame has to leave.
    reserve: Duration,
    /// The deadline of the last waiting frame.
    last: Instant,
    /// Until then one of the frames may wait behind one with a later deadline.
    inverted_until: Instant,
}

/// Bytes; negative if there are too few.
type Balance = i128;

impl Link {
    /// Takes a frame over from its stream's ring. Frames come in the order of their numbers;
    /// missing numbers were lost on the way here, and count as dropped for a full ring.
    pub fn handle_frame(&mut self, now: Instant, stream: StreamIndex, frame: Frame) {
        let mut frame = Some(frame);
        self.handle_frames(now, stream, || frame.take());
    }

    /// Takes over all frames that `next` returns, in their order; faster than one by one.
    pub fn handle_frames(
        &mut self,
        now: Instant,
        stream: StreamIndex,
        mut next: impl FnMut() -> Option<Frame>,
    ) {
        self.count_capacity(now);
        while let Some(frame) = self.enqueue_in_order(now, stream, &mut next) {
            self.handle_unexpected(now, stream, &frame);
        }
    }

    /// Puts frames into a stream's queue for as long as each is the expected one and finds a place;
    /// returns the first for which that fails.
    #[inline]
    fn enqueue_in_order(
        &mut self,
        now: Instant,
        stream: StreamIndex,
        next: &mut impl FnMut() -> Option<Frame>,
    ) -> Option<Frame> {
        let at = stream.0 as usize;
        let (Some(Some(queue)), Some(Some(ledger))) =
            (self.queues.get_mut(at), self.ledgers.get_mut(at))
        else {
            return next();
        };
        let (params, backlog) = (&self.params, self.backlog);
        let mut taken = ArrivalSummary::into(queue, self.reserve);
        let odd = loop {
            let Some(frame) = next() else { break None };
            if frame.seq != queue.next_seq || queue.frames.len() >= WAITING_MAX {
                break Some(frame);
            }
            taken.offered += frame.size;
            let waiting = backlog + taken.kept + frame.size;
            let full = params.queue.is_some_and(|most| waiting > most);
            let dropped = full.then_some(DropReason::Full);
            taken.put(queue, ledger, &frame, dropped, params.selection);
        };
        self.restore_feasibility(now, stream, &taken);
        odd
    }

    /// Takes over a frame that is not to be sent, and whose payload is released already. It counts as dropped
    /// for a full ring.
    pub fn handle_discarded(&mut self, now: Instant, stream: StreamIndex, frame: &Frame) {
        self.count_capacity(now);
        if self.enqueue_missing(now, stream, frame).is_some() {
            let gone = Frame { packets: 0, payload: PayloadSpan::default(), ..*frame };
            self.enqueue_lost(now, stream, &gone);
        }
    }

    /// Takes a frame that is not the expected one, or finds no place.
    #[cold]
    #[inline(never)]
    fn handle_unexpected(&mut self, now: Instant, stream: StreamIndex, frame: &Frame) {
        if self.enqueue_missing(now, stream, frame).is_none() {
            let fate = Fate::Dropped(DropReason::Removed);
            self.settled.push(Settled { stream, frame: *frame, fate });
            return;
        }
        if self.queued(stream) >= WAITING_MAX {
            self.offered.add(now, frame.size);
            self.refuse(now, stream, *frame);
        } else {
            let mut frame = Some(*frame);
            self.enqueue_in_order(now, stream, &mut || frame.take());
        }
    }

    /// Enqueues stand-ins for the frames that are missing before this one; `None` if there is no such stream.
    fn enqueue_missing(&mut self, now: Instant, stream: StreamIndex, frame: &Frame) -> Option<()> {
        let expected = self.queue_mut(stream)?.next_seq;
        let gap = frame.seq.wrapping_sub(expected);
        if gap > GAP_MAX {
            self.reset_stream(now, stream, frame.seq);
        } else {
            for seq in (0..gap).map(|n| expected.wrapping_add(n)) {
                self.enqueue_lost(now, stream, &lost_before_arrival(seq, frame));
            }
        }
        Some(())
    }

    /// The stream's numbers jumped: the waiting frames are obsolete, and no later frame can refer
    /// to them.
    fn reset_stream(&mut self, now: Instant, stream: StreamIndex, seq: u32) {
        self.clear_stream(now, stream);
        if let Some(queue) = self.queue_mut(stream) {
            queue.mark_all_lost();
            queue.next_seq = seq;
        }
    }

    /// Puts a stand-in for a lost frame in its place.
    fn enqueue_lost(&mut self, now: Instant, stream: StreamIndex, frame: &Frame) {
        if self.queued(stream) >= WAITING_MAX {
            self.refuse(now, stream, *frame);
            return;
        }
        let at = stream.0 as usize;
        let (Some(queue), Some(ledger)) = (&mut self.queues[at], &mut self.ledgers[at]) else {
            return;
        };
        let mut taken = ArrivalSummary::into(queue, self.reserve);
        taken.put(queue, ledger, frame, Some(DropReason::Full), self.params.selection);
        self.restore_feasibility(now, stream, &taken);
    }

    /// Records the arrivals, and makes the waiting frames fit the link again.
    #[inline]
    fn restore_feasibility(&mut self, now: Instant, stream: StreamIndex, taken: &ArrivalSummary) {
        if taken.offered > Bytes(0) {
            self.offered.add(now, taken.offered);
        }
        self.inverted_until = self.inverted_until.max(taken.inverted_until);
        let (mut head, mut pressed) = (taken.head, None);
        if let Some(earliest) = taken.earliest {
            self.backlog += taken.kept;
            self.idle = false;
            // All earlier frames fit, by induction. With the new frames, the last to finish does so
            // at `fits_by` at most; a frame due after the first of them is due later still.
            let fits_by = self.all_sent(now);
            if let Some(grant) = &mut self.grant {
                grant.until = grant.until.min(earliest);
                if fits_by > grant.until {
                    self.grant = None;
                }
            }
            let presses = self.params.selection && taken.presses;
            if presses && fits_by > earliest {
                self.select(now);
                head = None;
            }
            pressed = presses.then_some(fits_by);
        }
        match head {
            // The head that `promote` would find, without reading back the data just written.
            Some(head) => {
                self.scheduler.enqueue_head(stream, head);
            }
            None if taken.first => self.enqueue_next_head(now, stream),
            None => {}
        }
        if let Some(fits_by) = pressed {
            self.anticipate(now, stream, fits_by);
        }
    }

    /// Drops a frame that finds no place to wait. The ledger counts it, not the scheduler, which is
    /// notified of frames in their order.
    fn refuse(&mut self, now: Instant, stream: StreamIndex, frame: Frame) {
        let Some(queue) = self.queue_mut(stream) else { return };
        queue.next_seq = frame.seq.wrapping_add(1);
        queue.group.push(frame.kind, frame.size);
        queue.mark_lost(frame.seq);
        let ledger = &mut self.ledgers[stream.0 as usize];
        if let Some(ledger) = ledger.as_mut() {
            ledger.offered(&frame);
        }
        let fate = Fate::Dropped(DropReason::Full);
        settle(&mut self.settled, ledger, stream, &frame, fate, now);
    }

    /// The newest frame of a stream has arrived; all waiting frames are sent by `fits_by`.
    /// Quadratic in the streams, and only where a quarter of the possible backlog waits.
    #[inline]
    fn anticipate(&mut self, now: Instant, stream: StreamIndex, fits_by: Instant) {
        let Some(queue) = &self.queues[stream.0 as usize] else { return };
        let Some(delay) = queue.contract.delay else { return };
        if fits_by.since(now) * 4 > delay && self.is_to_end(queue, self.expected * delay) {
            let Some(queue) = self.queue_mut(stream) else { return };
            let freed = drop_one(queue, queue.frames.len() - 1, DropReason::Sacrificed);
            self.backlog = self.backlog - freed;
            self.enqueue_next_head(now, stream);
        }
    }

    /// Whether to break off the group of this stream, whose newest frame waits, after that frame.
    #[cold]
    fn is_to_end(&self, queue: &StreamQueue, room: Bytes) -> bool {
        let Some(newest) = queue.frames.back().filter(|newest| newest.dropped.is_none()) else {
            return false;
        };
        let breaks = newest.frame.referenced && newest.frame.kind != Kind::Intra;
        let Some((frames, bytes)) = queue.group.rest().filter(|_| breaks) else { return false };
        if queue.contract.late != Late::Drop || !self.is_least(queue) {
            return false;
        }
        let end = queue.contract.period * frames;
        let others = || self.queues.iter().flatten();
        let next = others().filter_map(StreamQueue::next_end).filter(|&other| other > end).min();
        let Some(next) = next else { return false };
        let freed = Balance::from(newest.left.0 + bytes);
        let lacking = self.waiting_at(next) - Balance::from(room.0);
        freed <= lacking && freed <= self.waiting_at(end) && self.gains(queue)
    }

    /// Whether the bytes that the rest of this stream's group frees keep other groups alive for
    /// longer than it lasts: half as long again. Where most of the arriving bytes are too many, one
    /// group after another has to go, and this cannot save any.
    fn gains(&self, queue: &StreamQueue) -> bool {
        let second = Duration::from_secs(1);
        let rate = |queue: &StreamQueue| {
            queue.group.mean_size().saturating_mul(second.0) / queue.contract.period.0.max(1)
        };
        let all = self.queues.iter().flatten().map(rate).sum::<u64>();
        2 * rate(queue) > 3 * all.saturating_sub((self.expected * second).0)
    }

    /// Whether no other stream that may lose frames is of lower priority, or loses less worth with
    /// each byte.
    fn is_least(&self, queue: &StreamQueue) -> bool {
        let worth = |queue: &StreamQueue| queue.compared(queue.contract.weight.max(1).into());
        let mean = |queue: &StreamQueue| u128::from(queue.group.mean_size().max(1));
        let may_lose = |other: &&StreamQueue| other.contract.late == Late::Drop;
        self.queues.iter().flatten().filter(may_lose).all(|other| {
            let (ours, others) = (queue.contract.priority, other.contract.priority);
            ours < others
                || ours == others && worth(queue) * mean(other) <= worth(other) * mean(queue)
        })
    }

    /// The bytes that will wait after this time if nothing more is given up.
    fn waiting_at(&self, after: Duration) -> Balance {
        let come = |queue: &StreamQueue| Balance::from(queue.bytes_within(after).0);
        let all = self.queues.iter().flatten().map(come).sum::<Balance>();
        all + Balance::from(self.backlog.0) - Balance::from((self.expected * after).0)
    }
}

impl ArrivalSummary {
    fn into(queue: &StreamQueue, reserve: Duration) -> Self {
        Self {
            first: queue.frames.is_empty(),
            head: None,
            presses: !queue.only_orders(),
            offered: Bytes(0),
            kept: Bytes(0),
            earliest: None,
            reserve,
            last: queue.frames.back().map_or(Instant::ZERO, |last| last.deadline),
            inverted_until: Instant::ZERO,
        }
    }

    /// Puts a frame behind the others; a lost frame is put there to be dropped.
    #[inline]
    fn put(
        &mut self,
        queue: &mut StreamQueue,
        ledger: &mut Ledger,
        frame: &Frame,
        lost: Option<DropReason>,
        selection: bool,
    ) {
        queue.next_seq = frame.seq.wrapping_add(1);
        let group = queue.group.push(frame.kind, frame.size);
        let (deadline, reserve) = queue.deadline_of(frame, self.reserve);
        queue.keep(frame.seq);
        let hopeless = || selection && queue.lacks_reference(frame);
        let dropped = lost.or_else(|| hopeless().then_some(DropReason::ReferenceLost));
        let left = frame.size;
        if dropped.is_some() {
            queue.mark_lost(frame.seq);
        } else {
            if queue.frames.is_empty() {
                self.head = Some(queue.seen(frame, deadline));
            }
            self.kept += left;
            self.earliest = Some(self.earliest.map_or(deadline, |first| first.min(deadline)));
        }
        if deadline < self.last {
            self.inverted_until = self.inverted_until.max(deadline);
        }
        self.last = deadline;
        ledger.offered(frame);
        let frame = *frame;
        queue.frames.push_back(Pending {
            frame,
            deadline,
            reserve,
            left,
            packets_sent: 0,
            group,
            dropped,
        });
    }
}

/// The stand-in for a frame of which only the number is known.
fn lost_before_arrival(seq: u32, next: &Frame) -> Frame {
    Frame {
        seq,
        kind: Kind::Data,
        referenced: false,
        refs: References::NONE,
        packets: 0,
        size: Bytes(0),
        arrival: next.arrival,
        deadline: next.deadline,
        payload: PayloadSpan::default(),
    }
}
impl StreamQueue {
    /// When the next group ends that can be broken off; `None` as long as that is not known.
    fn next_end(&self) -> Option<Duration> {
        let (frames, _) = self.group.rest()?;
        let whole = if self.is_broken() { self.group.length() } else { 0 };
        Some(self.contract.period * (frames + whole))
    }

    /// The decodable bytes that are likely to arrive within this time.
    fn bytes_within(&self, after: Duration) -> Bytes {
        let dead =
            if self.is_broken() { self.group.rest().map_or(0, |(frames, _)| frames) } else { 0 };
        let frames = after.0 / self.contract.period.0.max(1);
        Bytes(self.group.coming(frames).saturating_sub(self.group.coming(dead.min(frames))))
    }

    /// Whether the newest referenced picture is lost: nothing more is sent of its group.
    fn is_broken(&self) -> bool {
        let newest = self.frames.iter().rev().find(|pending| pending.frame.referenced);
        newest.map_or(self.group.broken, |pending| pending.dropped.is_some())
    }
}

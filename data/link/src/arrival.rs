//! Frames on their way into a link: what is missing before them, whether they can be of use, and
//! what must go so that they fit.

use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::{Head, StreamIndex};
use selvedge_data_stream::{DropReason, Fate, Frame, Kind, Ledger, References};
use selvedge_units::{Bytes, Instant};

use super::queue::{Pending, StreamQueue};
use super::settled::settle;
use super::{Link, Settled, WAITING_MAX};

/// Frames that may be missing from a stream at once. A larger gap is a fresh start: what waits of
/// the stream is dropped as removed.
const GAP_MAX: u32 = 1024;

/// What frames that were put into one queue mean for the link.
struct ArrivalSummary {
    /// Whether the queue was empty before, and what is the first in it now if that is to be sent.
    first: bool,
    head: Option<Head>,
    /// Bytes that came, and those that are to be sent.
    offered: Bytes,
    kept: Bytes,
    /// The earliest deadline of these, if there are any.
    earliest: Option<Instant>,
    /// The deadline of the last that waits.
    last: Instant,
    /// Until then one of them may wait behind one that is due later.
    inverted_until: Instant,
}

impl Link {
    /// Takes a frame over from its stream's ring. Frames come in the order of their numbers;
    /// numbers left out were lost before they came here, and count as dropped for a full ring.
    pub fn handle_frame(&mut self, now: Instant, stream: StreamIndex, frame: Frame) {
        let mut frame = Some(frame);
        self.handle_frames(now, stream, || frame.take());
    }

    /// Takes over all frames that `next` gives, in their order; quicker than one by one.
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

    /// Puts frames into a stream's queue for as long as each is the one that is expected and finds
    /// a place; returns the first that is not, or does not.
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
        let mut taken = ArrivalSummary::into(queue);
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

    /// Takes a frame that is not the one expected, or finds no place.
    #[cold]
    #[inline(never)]
    fn handle_unexpected(&mut self, now: Instant, stream: StreamIndex, frame: &Frame) {
        let Some(queue) = self.queue_mut(stream) else {
            let fate = Fate::Dropped(DropReason::Removed);
            self.settled.push(Settled { stream, frame: *frame, fate });
            return;
        };
        let expected = queue.next_seq;
        let gap = frame.seq.wrapping_sub(expected);
        if gap > GAP_MAX {
            self.reset_stream(now, stream, frame.seq);
        } else {
            for seq in (0..gap).map(|n| expected.wrapping_add(n)) {
                self.enqueue_lost(now, stream, &lost_before_arrival(seq, frame));
            }
        }
        if self.queued(stream) >= WAITING_MAX {
            self.offered.add(now, frame.size);
            self.refuse(now, stream, *frame);
        } else {
            let mut frame = Some(*frame);
            self.enqueue_in_order(now, stream, &mut || frame.take());
        }
    }

    /// The stream's numbers jumped: what waits is of another time, and nothing that comes can
    /// refer to it.
    fn reset_stream(&mut self, now: Instant, stream: StreamIndex, seq: u32) {
        self.clear_stream(now, stream);
        if let Some(queue) = self.queue_mut(stream) {
            queue.mark_all_lost();
            queue.next_seq = seq;
        }
    }

    /// Puts what stands in for a lost frame where it would have been.
    fn enqueue_lost(&mut self, now: Instant, stream: StreamIndex, frame: &Frame) {
        if self.queued(stream) >= WAITING_MAX {
            self.refuse(now, stream, *frame);
            return;
        }
        let at = stream.0 as usize;
        let (Some(queue), Some(ledger)) = (&mut self.queues[at], &mut self.ledgers[at]) else {
            return;
        };
        let mut taken = ArrivalSummary::into(queue);
        taken.put(queue, ledger, frame, Some(DropReason::Full), self.params.selection);
        self.restore_feasibility(now, stream, &taken);
    }

    /// Takes note of what came, and makes what waits fit the link again.
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
            // All that was there fits, by induction. With what came the last to finish does so at
            // `fits_by` at most; who is due after the first of it is due later still.
            let fits_by = self.all_sent(now);
            if let Some(grant) = &mut self.grant {
                grant.until = grant.until.min(earliest);
                if fits_by > grant.until {
                    self.grant = None;
                }
            }
            if self.params.selection && fits_by > earliest {
                self.select(now);
                head = None;
            }
            pressed = self.params.selection.then_some(fits_by);
        }
        match head {
            // What `promote` would find, without reading back what was just written.
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

    /// Drops a frame that finds no place to wait. It is counted by the ledger, not by the
    /// scheduler, which hears of frames in their order.
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
}

impl ArrivalSummary {
    fn into(queue: &StreamQueue) -> Self {
        Self {
            first: queue.frames.is_empty(),
            head: None,
            offered: Bytes(0),
            kept: Bytes(0),
            earliest: None,
            last: queue.frames.back().map_or(Instant::ZERO, |last| last.deadline),
            inverted_until: Instant::ZERO,
        }
    }

    /// Puts a frame behind the others, unless it is lost to be dropped there.
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
        let deadline = queue.deadline_of(frame);
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
        queue.frames.push_back(Pending { frame, deadline, left, packets_sent: 0, group, dropped });
    }
}

/// What stands in for a frame of which only the number is known.
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

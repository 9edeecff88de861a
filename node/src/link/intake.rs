//! Frames on their way into a link: what is missing before them, whether they can be of use, and
//! what must go so that they fit.

use selvedge_sched::StreamIndex;
use selvedge_stream::{DropReason, Fate, Frame, Kind, PayloadSpan, References};
use selvedge_units::{Bytes, Instant};

use super::queue::Pending;
use super::{Link, Settled, WAITING_MAX, settle};

/// Frames that may be missing from a stream at once. A larger gap is a fresh start: what waits of
/// the stream is dropped as removed.
const GAP_MAX: u32 = 1024;
impl Link {
    /// Takes a frame over from its stream's ring. Frames come in the order of their numbers;
    /// numbers left out were lost before they came here, and count as dropped for a full ring.
    pub fn handle_frame(&mut self, now: Instant, stream: StreamIndex, frame: Frame) {
        let Some(expected) = self.queue_mut(stream).map(|q| q.next_seq) else {
            self.settled.push_back(Settled {
                stream,
                frame,
                fate: Fate::Dropped(DropReason::Removed),
            });
            return;
        };
        self.watch(now);
        let gap = frame.seq.wrapping_sub(expected);
        if gap > GAP_MAX {
            self.begin_afresh(now, stream);
        } else {
            for seq in (0..gap).map(|n| expected.wrapping_add(n)) {
                let lost = lost_before_arrival(seq, &frame);
                self.enqueue(now, stream, &lost, Some(DropReason::Full));
            }
        }
        self.offered.add(now, frame.size);
        self.enqueue(now, stream, &frame, None);
    }

    /// The stream's numbers jumped: what waits is of another time, and nothing that comes can
    /// refer to it.
    fn begin_afresh(&mut self, now: Instant, stream: StreamIndex) {
        self.clear_stream(now, stream);
        if let Some(queue) = self.queue_mut(stream) {
            queue.lost.fill();
        }
    }

    fn enqueue(
        &mut self,
        now: Instant,
        stream: StreamIndex,
        frame: &Frame,
        lost: Option<DropReason>,
    ) {
        if self.queued(stream) >= WAITING_MAX {
            self.refuse(now, stream, *frame);
            return;
        }
        let full = self.params.queue.is_some_and(|most| self.backlog + frame.size > most);
        let (selection, backlog) = (self.params.selection, self.backlog);
        let Some(queue) = self.queue_mut(stream) else { return };
        queue.next_seq = frame.seq.wrapping_add(1);
        let group = queue.group.push(frame.kind, frame.size);
        let before = queue.frames.back().map(|last| last.deadline);
        let deadline = queue.deadline_of(frame);
        queue.lost.clear(frame.seq);
        let hopeless = || selection && queue.misses_reference(frame);
        let given_up = lost
            .or_else(|| full.then_some(DropReason::Full))
            .or_else(|| hopeless().then_some(DropReason::ReferenceLost));
        let left = frame.size;
        if given_up.is_some() {
            queue.lost.insert(frame.seq);
        }
        let frame = *frame;
        queue.frames.push_back(Pending { frame, deadline, left, packets_sent: 0, group, given_up });
        let only = queue.frames.len() == 1;
        if let Some(ledger) = self.ledgers[stream.0 as usize].as_mut() {
            ledger.offered(&frame);
        }
        if before.is_some_and(|before| deadline < before) {
            self.inverted_until = self.inverted_until.max(deadline);
        }
        if given_up.is_none() {
            self.backlog = backlog + left;
            // All that was there fits, by induction. With the new frame the last to finish does
            // so at `fits_by` at most; who is due after the new frame is due later still.
            let fits_by = self.all_sent(now);
            if let Some(grant) = &mut self.grant {
                grant.until = grant.until.min(deadline);
                if fits_by > grant.until {
                    self.grant = None;
                }
            }
            if selection && fits_by > deadline {
                self.select(now);
            }
        }
        if only {
            self.promote(now, stream);
        }
    }

    /// Drops a frame that finds no place to wait. It is counted by the ledger, not by the
    /// scheduler, which hears of frames in their order.
    fn refuse(&mut self, now: Instant, stream: StreamIndex, frame: Frame) {
        let Some(queue) = self.queue_mut(stream) else { return };
        queue.next_seq = frame.seq.wrapping_add(1);
        queue.group.push(frame.kind, frame.size);
        queue.lost.insert(frame.seq);
        let ledger = &mut self.ledgers[stream.0 as usize];
        if let Some(ledger) = ledger.as_mut() {
            ledger.offered(&frame);
        }
        let fate = Fate::Dropped(DropReason::Full);
        settle(&mut self.settled, ledger, stream, &frame, fate, now);
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

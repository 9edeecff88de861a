//! Bursts over frames: which stream may continue with its next frames without another decision, so
//! that they leave in one system call.
//!
//! These methods of [`Link`] have a file of their own, since only links that grant bursts call them.

use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{Fate, Frame};
use selvedge_units::{Bytes, Instant};

use super::queue::Pending;
use super::{Link, Settled, Transmit};

/// A burst: a stream whose next frames may follow the last one without another decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    stream: StreamIndex,
    pub(super) left: Bytes,
    /// No head is due before this, and all waiting frames can be sent before it, in any order.
    pub(super) until: Instant,
}

impl Link {
    /// Whether the chosen stream may continue with its next frames for as long as the link's burst
    /// lasts. If all waiting frames can be sent before the first of all deadlines, in any order, no
    /// waiting frame misses a deadline that single decisions would keep (ShareStreams, section 4.3,
    /// makes a similar use of a block). A frame that arrives later may find an earlier one still
    /// waiting; only single decisions exclude that. Only under disciplines that go by deadline:
    /// others share by order.
    #[inline]
    pub(super) fn grant_to(&self, now: Instant, stream: StreamIndex) -> Option<Grant> {
        if !self.params.bursts() || now < self.inverted_until {
            return None;
        }
        let queue = self.queues[stream.0 as usize].as_ref()?;
        if queue.frames.len() < 2 || !queue.contract.work_conserving {
            return None;
        }
        let until = self.scheduler.first_deadline(now)?;
        (self.all_sent(now) <= until).then_some(Grant { stream, left: self.params.burst, until })
    }

    /// The next packet of the granted burst, if there is one.
    #[inline]
    pub(super) fn granted(&mut self, now: Instant) -> Option<Transmit> {
        let grant = self.grant.take_if(|grant| now < grant.until)?;
        let stream = grant.stream;
        let head = *self.queues[stream.0 as usize].as_ref()?.frames.front()?;
        let deadline = self.scheduler.head_deadline(stream)?;
        // A late caller may find that it is late: then a decision is needed.
        let late = deadline <= now || now + self.pacer.time(head.left) > deadline;
        if head.dropped.is_some() || head.left > grant.left || late {
            return None;
        }
        self.grant = Some(grant);
        let deadline = self.due_at_the_far_end(&head).unwrap_or(deadline);
        Some(Transmit { stream, frame: head.frame, packet: head.packets_sent, deadline })
    }

    /// How much may leave in one run with the packet last polled, if that is its frame's first: the
    /// frame, and those behind it within the granted burst and `packets`. Whole frames only; none
    /// if the first alone has more packets. The caller reports the run by
    /// [`sent_frames`](Self::sent_frames).
    #[must_use]
    #[inline]
    pub fn run(&self, now: Instant, packets: usize) -> Run {
        let none = Run::default();
        let Some(queue) = self.next.and_then(|s| self.queues[s.0 as usize].as_ref()) else {
            return none;
        };
        let Some(mut run) = queue.frames.front().and_then(|head| none.with(head, packets)) else {
            return none;
        };
        // The same test as when the burst was granted: then no waiting frame is late because of
        // another.
        let Some(grant) = self.grant.as_ref().filter(|grant| self.all_sent(now) <= grant.until)
        else {
            return run;
        };
        let stated = queue.contract.delay.is_some();
        for waiting in queue.frames.iter().skip(1) {
            let goes = waiting.dropped.is_none() && (stated || waiting.frame.deadline.is_some());
            match run.with(waiting, packets) {
                Some(next) if goes && next.size <= grant.left => run = next,
                _ => break,
            }
        }
        run
    }

    /// A frame of the run that was polled last, the first by 0: the frame and its deadline.
    #[must_use]
    pub fn frame_of_run(&self, n: usize) -> Option<(Frame, Instant)> {
        let queue = self.queues[self.next?.0 as usize].as_ref()?;
        queue.frames.get(n).map(|waiting| {
            (waiting.frame, self.due_at_the_far_end(waiting).unwrap_or(waiting.deadline))
        })
    }

    /// The first frames of a [`run`](Self::run) have been sent whole in one call; they took `size`
    /// on the wire. If there is only one, `packets` of it have been sent.
    #[inline]
    pub fn sent_frames(&mut self, now: Instant, frames: usize, packets: u16, size: Bytes) {
        if frames < 2 {
            self.sent_run(now, packets, size);
        } else if let Some(stream) = self.consume_credit(now, size)
            && !self.settle_together(now, stream, frames)
        {
            for _ in 0..frames {
                self.account_head_packets(now, stream, u16::MAX, Bytes(0));
            }
        }
    }

    /// Settles this number of frames at once as sent, which all stated their deadlines, if nothing
    /// else needs to be checked.
    fn settle_together(&mut self, now: Instant, stream: StreamIndex, frames: usize) -> bool {
        let at = stream.0 as usize;
        let (Some(queue), Some(ledger)) = (&mut self.queues[at], &mut self.ledgers[at]) else {
            return false;
        };
        let Some(last) = frames.checked_sub(1).and_then(|last| queue.frames.get(last)) else {
            return false;
        };
        let (next, last) = (queue.nth_head(frames), last.deadline);
        if !self.scheduler.dequeue_many(stream, frames as u32, last, next) {
            return false;
        }
        let (settled, backlog) = (&mut self.settled, &mut self.backlog);
        let sent = queue.frames.iter().take(frames).map(|sent| {
            let Pending { frame, deadline, left, .. } = sent;
            *backlog = *backlog - *left;
            let queueing = now.since(frame.arrival);
            let fate = Fate::Sent { on_time: now <= *deadline, queueing };
            settled.push(Settled { stream, frame: *frame, fate });
            (frame, fate)
        });
        ledger.settle_all(sent, now);
        queue.frames.drain(..frames);
        if next.is_some() {
            self.enqueue_next_head(now, stream);
        }
        true
    }
}

/// The packets that may leave in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Whole frames of one stream.
    pub frames: usize,
    /// Their packets.
    pub packets: usize,
    /// Their size on the wire.
    pub size: Bytes,
}

impl Run {
    /// With another frame, if that is whole and its packets are not too many.
    fn with(self, waiting: &Pending, packets: usize) -> Option<Self> {
        let with = Self {
            frames: self.frames + 1,
            packets: self.packets + usize::from(waiting.frame.packets),
            size: self.size + waiting.left,
        };
        (waiting.packets_sent == 0 && with.packets <= packets).then_some(with)
    }
}

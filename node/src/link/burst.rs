//! Bursts over frames: which stream may go on with its next frames without another decision, so
//! that they leave in one call of the kernel.

use selvedge_sched::StreamIndex;
use selvedge_units::{Bytes, Instant};

use super::{Link, Transmit};

/// A burst: a stream whose next frames may follow the last one without another decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    stream: StreamIndex,
    pub(super) left: Bytes,
    /// No head is due before this, and all that waits can be sent before it, in any order.
    pub(super) until: Instant,
}

impl Link {
    /// Whether the chosen stream may go on with its next frames for as long as the link's burst
    /// lasts: where all that waits can be sent before the first deadline of all, in any order, no
    /// deadline of what waits is broken that single decisions would keep (ShareStreams, section
    /// 4.3, makes a like use of a block). What comes later may find an earlier one still waiting;
    /// nothing but single decisions rules that out. Only under disciplines that go by deadline:
    /// others share by order.
    pub(super) fn grant_to(&self, now: Instant, stream: StreamIndex) -> Option<Grant> {
        let bursts = self.params.burst >= self.params.mtu + self.params.mtu;
        if !bursts || now < self.inverted_until {
            return None;
        }
        let queue = self.queues[stream.0 as usize].as_ref()?;
        if queue.frames.len() < 2 || !queue.contract.work_conserving {
            return None;
        }
        let until = self.scheduler.first_deadline(now)?;
        (self.all_sent(now) <= until).then_some(Grant { stream, left: self.params.burst, until })
    }

    /// The next packet of the burst that was granted, if there is one.
    pub(super) fn granted(&mut self, now: Instant) -> Option<Transmit> {
        let grant = self.grant.take_if(|grant| now < grant.until)?;
        let stream = grant.stream;
        let head = *self.queues[stream.0 as usize].as_ref()?.frames.front()?;
        let deadline = self.scheduler.head_deadline(stream)?;
        // A caller that comes late may find that it is: then it is for a decision to say.
        let late = deadline <= now || now + self.pacer.time(head.left) > deadline;
        if head.given_up.is_some() || head.left > grant.left || late {
            return None;
        }
        self.grant = Some(grant);
        Some(Transmit { stream, frame: head.frame, packet: head.packets_sent, deadline })
    }
}

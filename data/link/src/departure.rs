//! Packets and frames that have left a link, or could not.
//!
//! The engine reports which of the polled packets it has sent; the pacer, the scheduler and the
//! ledger are updated, and the stream's next frame becomes its head.

use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{DropReason, Fate};
use selvedge_units::{Bytes, Instant};

use super::Link;
use super::select::drop_one;
use super::settled::settle;

impl Link {
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
    pub(super) fn account_head_packets(
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
    pub(super) fn consume_credit(&mut self, now: Instant, size: Bytes) -> Option<StreamIndex> {
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
}

//! Ends of groups given up in advance. Breaking off a group costs least just before its end: little
//! of it is still to come. Waiting until a frame no longer fits may mean breaking off a group at
//! its beginning, with nothing to send until its stream's next intra picture.
//!
//! So on each arrival of a referenced picture, the link predicts how much will wait at the next end
//! of a group, of any stream. It derives this from sizes and lengths of the groups before,
//! including the intra pictures to come. If that is more than can wait, and this stream's group
//! ends before, the rest of the group is given up as soon as all of it is needed and the link has
//! enough to send until its end.

use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{DropReason, Kind, Late};
use selvedge_units::{Bytes, Duration, Instant};

use super::Link;
use super::queue::StreamQueue;
use super::select::drop_one;

/// Bytes; negative if there are too few.
type Balance = i128;

impl Link {
    /// The newest frame of a stream has arrived; all waiting frames are sent by `fits_by`.
    /// Quadratic in the streams, and only where a quarter of the possible backlog waits.
    #[inline]
    pub(super) fn anticipate(&mut self, now: Instant, stream: StreamIndex, fits_by: Instant) {
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

//! Frames that a link is done with, until they are reported.

use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{DropReason, Fate, Frame, Ledger};
use selvedge_units::Instant;

use super::Settled;
use super::queue::Pending;

/// Frames that are settled and not yet reported; all are reported before more come.
#[derive(Clone, Debug, Default)]
pub(super) struct SettledQueue {
    frames: Vec<Settled>,
    reported: usize,
}

impl SettledQueue {
    #[inline]
    pub(super) fn push(&mut self, settled: Settled) {
        self.frames.push(settled);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Settled> {
        let next = self.frames.get(self.reported).copied();
        if next.is_some() {
            self.reported += 1;
        } else {
            self.frames.clear();
            self.reported = 0;
        }
        next
    }
}

/// Reports a frame's end to the ledger, and queues it for the next poll.
pub(super) fn settle(
    settled: &mut SettledQueue,
    ledger: &mut Option<Ledger>,
    stream: StreamIndex,
    frame: &Frame,
    fate: Fate,
    now: Instant,
) {
    if let Some(ledger) = ledger.as_mut() {
        ledger.settle(frame, fate, now);
    }
    settled.push(Settled { stream, frame: *frame, fate });
}

/// Reports a waiting frame as dropped, for `reason` if none was known. Only its packets that were not sent
/// count as dropped bytes.
pub(super) fn settle_dropped(
    settled: &mut SettledQueue,
    ledger: &mut Option<Ledger>,
    stream: StreamIndex,
    pending: &Pending,
    reason: DropReason,
    now: Instant,
) {
    let fate = Fate::Dropped(pending.dropped.unwrap_or(reason));
    if let Some(ledger) = ledger.as_mut() {
        ledger.settle(&Frame { size: pending.left, ..pending.frame }, fate, now);
    }
    settled.push(Settled { stream, frame: pending.frame, fate });
}

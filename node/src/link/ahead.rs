//! Fetching what the next decisions will touch. A link of a thousand streams has some megabytes of
//! queues and ledgers, of which each frame touches a dozen lines in turn.

use selvedge_sched::{Scheduler, StreamIndex};
use selvedge_stream::Ledger;
use selvedge_stream::fetch::prefetch_whole;

use super::queue::StreamQueue;

/// So many decisions after a stream's own state was asked for, what that points to is.
const STEPS: usize = 8;

/// Streams that are likely to send soon.
#[derive(Debug, Default)]
pub(super) struct FetchAhead {
    asked: [StreamIndex; STEPS],
    turn: usize,
}

impl FetchAhead {
    /// Asks for the state of a stream that is likely to be chosen soon, and for the frame and the
    /// ledger's entry of one that was asked for before.
    pub(super) fn fetch(
        &mut self,
        scheduler: &Scheduler,
        queues: &[Option<StreamQueue>],
        ledgers: &[Option<Ledger>],
    ) {
        let Some(soon) = scheduler.likely_soon() else { return };
        let at = soon.0 as usize;
        // Only addresses are reckoned here: to look would be to wait.
        if let (Some(queue), Some(ledger)) = (queues.get(at), ledgers.get(at)) {
            prefetch_whole(queue);
            prefetch_whole(ledger);
        }
        self.turn = (self.turn + 1) % STEPS;
        let asked = core::mem::replace(&mut self.asked[self.turn], soon).0 as usize;
        let queue = queues.get(asked).and_then(Option::as_ref);
        if let Some(frame) = queue.and_then(|queue| queue.frames.front()) {
            prefetch_whole(frame);
        }
        if let Some(ledger) = ledgers.get(asked).and_then(Option::as_ref) {
            ledger.fetch_entries();
        }
    }
}

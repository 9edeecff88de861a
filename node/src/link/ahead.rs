//! Fetching what the next decisions will touch. A link of a thousand streams has some megabytes of
//! queues and ledgers, of which each frame touches a dozen lines in turn.

use selvedge_sched::{Scheduler, StreamIndex};
use selvedge_stream::Ledger;
use selvedge_stream::fetch::prefetch_whole;

use super::queue::StreamQueue;

/// So many decisions after a stream's own state was asked for, what that points to is.
const STEPS: usize = 8;

/// Streams that are likely to send soon.
#[derive(Clone, Debug, Default)]
pub(super) struct FetchAhead {
    asked: [StreamIndex; STEPS],
    turn: usize,
}

impl FetchAhead {
    /// Asks for all that a stream which was chosen needs, `frames` of its frames among it; for the
    /// state of a stream that is likely to be chosen soon, and for the first frame of one that was
    /// asked for before. Nothing where there are few streams.
    #[inline]
    pub(super) fn fetch(
        &mut self,
        scheduler: &Scheduler,
        chosen: StreamIndex,
        frames: usize,
        queues: &[Option<StreamQueue>],
        ledgers: &[Option<Ledger>],
    ) {
        let Some(soon) = scheduler.likely_soon() else { return };
        for stream in [chosen, soon] {
            let at = stream.0 as usize;
            // Only addresses are reckoned here: to look would be to wait.
            if let (Some(queue), Some(ledger)) = (queues.get(at), ledgers.get(at)) {
                prefetch_whole(queue);
                prefetch_whole(ledger);
            }
        }
        self.turn = (self.turn + 1) % STEPS;
        let asked = core::mem::replace(&mut self.asked[self.turn], soon);
        fetch_frames(asked, 1, queues, ledgers);
        fetch_frames(chosen, frames, queues, ledgers);
    }
}

/// Asks for a stream's first frames, and for their entries in the ledger.
fn fetch_frames(
    stream: StreamIndex,
    frames: usize,
    queues: &[Option<StreamQueue>],
    ledgers: &[Option<Ledger>],
) {
    let at = stream.0 as usize;
    if let Some(queue) = queues.get(at).and_then(Option::as_ref) {
        queue.frames.as_slices().0.iter().take(frames).for_each(prefetch_whole);
    }
    if let Some(ledger) = ledgers.get(at).and_then(Option::as_ref) {
        ledger.fetch_entries(frames);
    }
}

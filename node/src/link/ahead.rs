//! Fetching what the next decisions will touch. A link of a thousand streams has some megabytes of
//! queues and ledgers, of which each frame touches a dozen lines in turn.

use selvedge_sched::{Scheduler, StreamIndex};
use selvedge_stream::Ledger;
use selvedge_stream::fetch::prefetch_whole;

use super::queue::StreamQueue;

/// A stream that is likely to send soon.
#[derive(Clone, Debug, Default)]
pub(super) struct FetchAhead {
    soon: Option<StreamIndex>,
}

impl FetchAhead {
    /// Asks for all that a stream which was chosen needs, `frames` of its frames among it, and for
    /// the state of a stream that is likely to be chosen soon. Nothing where there are few streams.
    #[inline]
    pub(super) fn chosen(
        &mut self,
        scheduler: &Scheduler,
        chosen: StreamIndex,
        frames: usize,
        queues: &[Option<StreamQueue>],
        ledgers: &[Option<Ledger>],
    ) {
        self.soon = scheduler.likely_soon();
        let Some(soon) = self.soon else { return };
        for stream in [chosen, soon] {
            let at = stream.0 as usize;
            // Only addresses are reckoned here: to look would be to wait.
            if let (Some(queue), Some(ledger)) = (queues.get(at), ledgers.get(at)) {
                prefetch_whole(queue);
                prefetch_whole(ledger);
            }
        }
        fetch_frames(chosen, frames, queues, ledgers);
    }

    /// Asks for the first frame of the stream that is likely to be chosen soon, whose state should
    /// have come by now.
    #[inline]
    pub(super) fn sent(&self, queues: &[Option<StreamQueue>], ledgers: &[Option<Ledger>]) {
        if let Some(soon) = self.soon {
            fetch_frames(soon, 1, queues, ledgers);
        }
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

//! Fetching what the next decisions will touch. A link of a thousand streams has some megabytes of
//! queues and ledgers, of which each frame touches a dozen lines in turn.
//!
//! Streams are periodic: whoever followed a stream the last time is likely to follow it again. So
//! the order of the last decisions is kept, and looked up where the chosen stream stood in it.

use selvedge_sched::StreamIndex;
use selvedge_stream::Ledger;
use selvedge_stream::fetch::prefetch_whole;

use super::queue::StreamQueue;

/// With fewer streams all lies near.
const STREAMS_MIN: usize = 256;
/// So many decisions ahead a stream's state is asked for, and so many its first frame, which only
/// its state tells where to find.
const STATE_AHEAD: u32 = 8;
const FRAME_AHEAD: u32 = 4;

/// The order in which streams were chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct FetchAhead {
    /// A ring of at least two rounds of all streams, its length a power of two; empty where there
    /// are few.
    order: Vec<StreamIndex>,
    /// For each stream, how many had been chosen before it when it was chosen last.
    places: Vec<u32>,
    chosen: u32,
    /// Who should be next, what it needs having been asked for.
    foreseen: Option<StreamIndex>,
}

impl FetchAhead {
    /// Makes room for so many streams.
    pub(super) fn grow(&mut self, streams: usize) {
        if streams > self.places.len() && streams >= STREAMS_MIN {
            let most = streams.next_power_of_two();
            self.places.resize(most, 0);
            // What it held is of no use in another length, and does no harm.
            self.order.resize(2 * most, StreamIndex(0));
        }
    }

    /// Asks for all that a stream which was chosen needs, `frames` of its frames among it, and for
    /// the states of those that are likely to be chosen next. Nothing where there are few streams.
    #[inline]
    pub(super) fn chosen(
        &mut self,
        stream: StreamIndex,
        frames: usize,
        queues: &[Option<StreamQueue>],
        ledgers: &[Option<Ledger>],
    ) {
        let Some(place) = self.places.get_mut(stream.0 as usize) else { return };
        let before = core::mem::replace(place, self.chosen);
        let known = self.chosen.wrapping_sub(before);
        let follower = |ahead: u32| {
            let is_known = known > ahead && (known as usize) < self.order.len();
            let at = before.wrapping_add(ahead) as usize & (self.order.len() - 1);
            self.order.get(at).copied().filter(|_| is_known)
        };
        if self.foreseen != Some(stream) {
            fetch_state(stream, queues, ledgers);
            fetch_frames(stream, frames, queues, ledgers);
        }
        if let Some(next) = follower(STATE_AHEAD) {
            fetch_state(next, queues, ledgers);
        }
        if let Some(next) = follower(FRAME_AHEAD) {
            fetch_frames(next, frames, queues, ledgers);
        }
        self.foreseen = follower(1);
        let at = self.chosen as usize & (self.order.len() - 1);
        if let Some(last) = self.order.get_mut(at) {
            *last = stream;
        }
        self.chosen = self.chosen.wrapping_add(1);
    }
}

/// Asks for a stream's state.
fn fetch_state(stream: StreamIndex, queues: &[Option<StreamQueue>], ledgers: &[Option<Ledger>]) {
    let at = stream.0 as usize;
    if let (Some(queue), Some(ledger)) = (queues.get(at), ledgers.get(at)) {
        StreamQueue::fetch(queue);
        Ledger::fetch(ledger);
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

//! Fetching what the next decisions will touch. A link of a thousand streams has some megabytes of
//! queues and ledgers, of which each frame touches a dozen lines in turn.
//!
//! Streams are periodic: whoever followed a stream the last time is likely to follow it again. So
//! the order of the last decisions is kept, and looked up where the chosen stream stood in it.

use selvedge_data_memory::fetch::prefetch_whole;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::Ledger;

use super::queue::StreamQueue;

/// With fewer streams all lies near.
const STREAMS_MIN: usize = 256;
/// So many decisions ahead a stream's state is asked for, and so many its first frame, which only
/// its state tells where to find.
const STATE_AHEAD: u32 = 8;
const FRAME_AHEAD: u32 = 4;

/// No stream.
const NOBODY: u32 = u32::MAX;

/// The order in which streams were chosen.
#[derive(Clone, Debug)]
pub(super) struct FetchAhead {
    /// A ring of at least two rounds of all streams, its length a power of two; empty where there
    /// are few.
    order: Vec<u32>,
    /// For each stream, how many had been chosen before it when it was chosen last.
    places: Vec<u32>,
    chosen: u32,
    /// Who should be next, what it needs having been asked for.
    predicted: u32,
}

impl Default for FetchAhead {
    fn default() -> Self {
        Self { order: Vec::new(), places: Vec::new(), chosen: 0, predicted: NOBODY }
    }
}

impl FetchAhead {
    /// Makes room for so many streams.
    pub(super) fn grow(&mut self, streams: usize) {
        if streams > self.places.len() && streams >= STREAMS_MIN {
            let most = streams.next_power_of_two();
            self.places.resize(most, 0);
            // What it held is of no use in another length, and does no harm.
            self.order.resize(2 * most, 0);
        }
    }

    /// Asks for all that a stream which was chosen needs, `frames` of its frames among it, and for
    /// the states of those that are likely to be chosen next. Nothing where there are few streams.
    #[inline(always)]
    pub(super) fn prefetch_chosen(
        &mut self,
        stream: StreamIndex,
        frames: usize,
        queues: &[Option<StreamQueue>],
        ledgers: &[Option<Ledger>],
    ) {
        if let Some(place) = self.places.get_mut(stream.0 as usize) {
            let before = core::mem::replace(place, self.chosen);
            self.learn_successor(stream.0, before, frames, queues, ledgers);
        }
    }

    /// `before` had been chosen when this stream was chosen last.
    #[inline(never)]
    fn learn_successor(
        &mut self,
        stream: u32,
        before: u32,
        frames: usize,
        queues: &[Option<StreamQueue>],
        ledgers: &[Option<Ledger>],
    ) {
        let mask = self.order.len().wrapping_sub(1);
        let Some(last) = self.order.get_mut(self.chosen as usize & mask) else { return };
        *last = stream;
        let known = self.chosen.wrapping_sub(before);
        self.chosen = self.chosen.wrapping_add(1);
        if self.predicted != stream {
            fetch_state(stream, queues, ledgers);
            fetch_frames(stream, frames, queues, ledgers);
        }
        self.predicted = NOBODY;
        // Who comes again so soon has all at hand, and so have those between.
        if known > STATE_AHEAD && known as usize <= mask {
            let order = &self.order;
            let follower = |ahead: u32| order.get(before.wrapping_add(ahead) as usize & mask);
            if let (Some(&state), Some(&frame), Some(&next)) =
                (follower(STATE_AHEAD), follower(FRAME_AHEAD), follower(1))
            {
                fetch_state(state, queues, ledgers);
                fetch_frames(frame, frames, queues, ledgers);
                self.predicted = next;
            }
        }
    }
}

/// Asks for a stream's state, if there is such a stream.
#[inline(always)]
fn fetch_state(stream: u32, queues: &[Option<StreamQueue>], ledgers: &[Option<Ledger>]) {
    StreamQueue::fetch(queues.as_ptr().wrapping_add(stream as usize));
    Ledger::fetch(ledgers.as_ptr().wrapping_add(stream as usize));
}

/// Asks for a stream's first frames, and for their entries in the ledger.
#[inline(always)]
fn fetch_frames(
    stream: u32,
    frames: usize,
    queues: &[Option<StreamQueue>],
    ledgers: &[Option<Ledger>],
) {
    let at = stream as usize;
    let (Some(Some(queue)), Some(Some(ledger))) = (queues.get(at), ledgers.get(at)) else { return };
    if let Some(first) = queue.frames.front() {
        prefetch_whole(first);
    }
    if frames > 1 {
        queue.frames.as_slices().0.iter().take(frames).skip(1).for_each(prefetch_whole);
    }
    ledger.fetch_entries(frames);
}

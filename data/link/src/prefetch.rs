//! Prefetches the data that the next decisions will touch. A link of a thousand streams has some
//! megabytes of queues and ledgers, of which each frame touches a dozen lines in turn.
//!
//! Streams are periodic: the stream that followed another the last time is likely to follow it
//! again. So the order of the last decisions is kept, and the chosen stream's last place in it is
//! looked up.

use selvedge_data_memory::fetch::prefetch_whole;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::Ledger;

use super::queue::StreamQueue;

/// With fewer streams everything is in near caches.
const STREAMS_MIN: usize = 256;
/// A stream's state is prefetched this number of decisions ahead, and its first frame this number,
/// as only the state contains its address.
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
    /// The stream that should be next; its data have been prefetched.
    predicted: u32,
}

impl Default for FetchAhead {
    fn default() -> Self {
        Self { order: Vec::new(), places: Vec::new(), chosen: 0, predicted: NOBODY }
    }
}

impl FetchAhead {
    /// Makes room for this number of streams.
    pub(super) fn grow(&mut self, streams: usize) {
        if streams > self.places.len() && streams >= STREAMS_MIN {
            let most = streams.next_power_of_two();
            self.places.resize(most, 0);
            // The old content is useless in another length, and does no harm.
            self.order.resize(2 * most, 0);
        }
    }

    /// Prefetches everything that a chosen stream needs, including `frames` of its frames, and the
    /// states of the streams that are likely to be chosen next. Does nothing where there are few
    /// streams.
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
        // A stream that returns so soon is still in the cache, and so are those between.
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

/// Prefetches a stream's state, if there is such a stream.
#[inline(always)]
fn fetch_state(stream: u32, queues: &[Option<StreamQueue>], ledgers: &[Option<Ledger>]) {
    StreamQueue::fetch(queues.as_ptr().wrapping_add(stream as usize));
    Ledger::fetch(ledgers.as_ptr().wrapping_add(stream as usize));
}

/// Prefetches a stream's first frames and their entries in the ledger.
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

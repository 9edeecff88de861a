//! `drr`: deficit round robin (Shreedhar and Varghese, IEEE/ACM Transactions on Networking 4(3),
//! 1996), byte by byte, a stream's weight being its quantum in bytes.
//!
//! In each round every stream that waits has one turn, in the order in which the streams began to wait. In
//! its turn a stream may send its weight in bytes, and the remainder from earlier turns. If its next frame is
//! larger, it keeps the remainder; if it has no frame, it loses the remainder and leaves the round. A stream
//! that begins to wait has its turn at the end of the present round. The paper's list puts it before the
//! stream whose turn it is; the order of turns differs, their number does not.
//!
//! No list is walked. A head's rank is the round in which its stream's quanta will cover it, found by
//! division, then the stream's place in the round, an increasing number. So quanta may be smaller than frames
//! at no cost: a decision is O(log N) with any weights, where the list takes `size / quantum` rounds.
//!
//! Guarantee: for two streams that wait all the time, the bytes sent, each divided by its weight, differ by
//! at most `1 + size1 / weight1 + size2 / weight2` over every interval. Here `size` is the largest frame (the
//! paper states `3 Max` for equal quanta of `Max`). Not guaranteed: any bound on delay better than one round,
//! the sum of all quanta; a new stream waits for one (Stiliadis and Varma, IEEE/ACM Transactions on
//! Networking 6(5), 1998). Places wrap after 2^48 begun waits, which misplaces one stream once, by less than
//! a round.

use alloc::vec::Vec;

use selvedge_data_stream::Contract;
use selvedge_units::{Bytes, Instant};

use super::{HeadState, Rule, tag};

const PLACE: u64 = (1 << 48) - 1;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    quantum: u64,
    /// The remainder after the last turn in which it sent.
    deficit: u64,
    /// The round of that turn; before the first send, the round before the one in which it began to wait.
    round: u64,
    /// Its place in each round.
    place: u64,
    /// The head's size.
    size: u64,
    /// The round in which the head goes.
    due: u64,
    /// Whether it has turns.
    listed: bool,
}

/// Rank: the round in which the head goes, 64 bits, and the place in it, 48.
#[derive(Clone, Debug)]
pub(crate) struct Drr {
    streams: Vec<Stream>,
    /// The turn in which the last frame went: round and place.
    turn: (u64, u64),
    /// Whether that turn is over because its stream's next frame is too large.
    over: bool,
    /// The last place that was given.
    places: u64,
    /// The stream that sent last or lost its head, until its next head is known or it has none.
    pending: Option<u32>,
}

impl Default for Drr {
    fn default() -> Self {
        let (streams, turn) = (Vec::new(), (1, 0));
        Self { streams, turn, over: true, places: 0, pending: None }
    }
}

impl Drr {
    /// Ends the turns of the stream of the last frame, which has no other frame.
    fn charge_last(&mut self) {
        if let Some(stream) = self.pending.take() {
            let stream = &mut self.streams[stream as usize];
            (stream.listed, stream.deficit) = (false, 0);
        }
    }
}

impl Stream {
    /// The number of further turns in which its quanta cover the head.
    fn turns(&self) -> u64 {
        self.size.saturating_sub(self.deficit).div_ceil(self.quantum)
    }

    /// The number of its turns after the last in which it sent, up to `turn`.
    fn turns_before(&self, turn: (u64, u64)) -> u64 {
        turn.0.saturating_sub(self.round).saturating_sub(u64::from(self.place > turn.1))
    }
}

impl Rule for Drr {
    const OBSERVES: bool = true;

    fn grow(&mut self, streams: usize) {
        self.streams.resize(streams.max(self.streams.len()), Stream::default());
    }

    fn reset(&mut self, stream: u32, _: &Contract) {
        self.pending = self.pending.filter(|&pending| pending != stream);
        self.streams[stream as usize] = Stream::default();
    }

    fn observe_head(&mut self, head: &HeadState, size: Bytes, fresh: bool) {
        let follows = !fresh && self.pending == Some(head.stream);
        if follows {
            self.pending = None;
        } else {
            self.charge_last();
        }
        let turn = self.turn;
        let mut stream = self.streams[head.stream as usize];
        stream.size = tag::counted(size);
        stream.quantum = u64::from(head.weight.max(1));
        if !stream.listed {
            self.places = (self.places + 1) & PLACE;
            let (place, round) = (self.places, turn.0 - 1);
            stream = Stream { listed: true, deficit: 0, round, place, ..stream };
            stream.due = round.saturating_add(stream.turns().max(1));
        } else if (stream.round, stream.place) == turn && !self.over {
            // It is still its turn, unless the head is too large.
            let turns = stream.turns();
            self.over = turns > 0;
            stream.due = turn.0.saturating_add(turns);
        } else {
            // Its last head was lost during other turns; it keeps the quanta of its own turns.
            let had = stream.turns_before(turn);
            let more = stream.turns().max(had.saturating_add(1));
            stream.due = stream.round.saturating_add(more);
        }
        self.streams[head.stream as usize] = stream;
    }

    fn rank(&self, head: &HeadState) -> u128 {
        let stream = &self.streams[head.stream as usize];
        u128::from(stream.due) << 48 | u128::from(stream.place)
    }

    /// The turn in 31 bits and the place in 32, as long as they fit.
    fn key(&self, head: &HeadState, _: Instant) -> u64 {
        const TURNS: u64 = (1 << 31) - 1;
        let stream = &self.streams[head.stream as usize];
        let place = stream.place.min(u32::MAX.into());
        if stream.due < TURNS { stream.due << 32 | place } else { TURNS << 32 }
    }

    fn observe_dequeued(&mut self, head: &HeadState) {
        self.charge_last();
        let stream = &mut self.streams[head.stream as usize];
        let quanta = (stream.due - stream.round).saturating_mul(stream.quantum);
        stream.deficit = stream.deficit.saturating_add(quanta).saturating_sub(stream.size);
        stream.round = stream.due;
        self.turn = self.turn.max((stream.due, stream.place));
        self.over = false;
        self.pending = Some(head.stream);
    }

    fn observe_dropped(&mut self, head: &HeadState) {
        self.charge_last();
        self.pending = Some(head.stream);
    }
}

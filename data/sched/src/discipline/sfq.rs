//! `sfq`: start-time fair queueing (Goyal, Vin and Cheng, IEEE/ACM Transactions on Networking
//! 5(5), 1997).
//!
//! A frame that becomes head gets the start tag `S = max(V, F)` and the finish tag `S + size / weight`. `F`
//! is the finish tag of the last frame that its stream sent; the lowest start tag goes first. `V` is the
//! start tag of the frame last sent; once nothing waits, the highest finish tag of all sent. A lost frame is
//! not charged.
//!
//! Guarantee: over every interval in which two streams wait, their sent bytes, each divided by its weight,
//! differ by at most `size1 / weight1 + size2 / weight2` (the largest of each), whatever the link's rate
//! does. Not guaranteed: the delay of `wfq`; a frame may wait for one of every other stream. A decision costs
//! as much as the tree, O(log N); a tag O(1).

use alloc::vec::Vec;

use selvedge_data_stream::Contract;
use selvedge_units::Bytes;

use super::tag::{self, Tag};
use super::{HeadState, Rule};

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The start tag of the head.
    start: Tag,
    end: Tag,
    /// The finish tag of the last frame sent.
    finish: Tag,
}

/// Rank: the start tag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sfq {
    now: Tag,
    /// The highest finish tag of a frame sent.
    last: Tag,
    waiting: u32,
    streams: Vec<Stream>,
}

impl Sfq {
    pub(crate) fn start(&self, stream: u32) -> Tag {
        self.streams[stream as usize].start
    }
}

impl Rule for Sfq {
    const OBSERVES: bool = true;

    fn grow(&mut self, streams: usize) {
        self.streams.resize(streams.max(self.streams.len()), Stream::default());
    }

    fn reset(&mut self, stream: u32, _: &Contract) {
        self.streams[stream as usize] = Stream::default();
    }

    fn observe_head(&mut self, head: &HeadState, size: Bytes, fresh: bool) {
        if self.waiting == 0 && fresh {
            self.now = self.last;
        }
        self.waiting += 1;
        let stream = &mut self.streams[head.stream as usize];
        stream.start = self.now.max(stream.finish);
        stream.end = tag::after(stream.start, tag::span(size, head.weight));
    }

    fn rank(&self, head: &HeadState) -> u128 {
        self.start(head.stream)
    }

    fn observe_dequeued(&mut self, head: &HeadState) {
        self.waiting -= 1;
        let stream = &mut self.streams[head.stream as usize];
        stream.finish = stream.end;
        // A caller may serve another stream than the chosen one; that does not move time back.
        self.now = self.now.max(stream.start);
        self.last = self.last.max(stream.end);
    }

    fn observe_dropped(&mut self, _: &HeadState) {
        self.waiting -= 1;
    }
}

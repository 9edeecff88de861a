//! What a node lets the program of a camera see of its stream: words of the segment that only the node writes.

use std::sync::Arc;

use selvedge_os::memory::Memfd;
use selvedge_units::Bitrate;

use crate::segment::{COUNTS_AT, Segment};

/// What became of a camera's frames, and what the node would like next. All counts are since the stream began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that the node took out of the memory.
    pub taken: u64,
    /// Frames that the link sent.
    pub sent: u64,
    /// Frames that the link gave up.
    pub dropped: u64,
    /// Frames that were sent by their deadlines, and all that they refer to as well.
    pub decodable: u64,
    /// The rate to encode at; 0: the node asks for none.
    pub aim: Bitrate,
    /// How often the node asked for a key picture.
    pub key_requests: u64,
}

/// The words of a connection in which [`Counts`] stand.
#[derive(Clone, Debug)]
pub struct Board(Arc<Memfd>);

impl Board {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self(Arc::clone(segment.memory()))
    }

    /// Writes all of them. A reader may see some of them older than others.
    pub fn write(&self, counts: &Counts) {
        let Counts { taken, sent, dropped, decodable, aim, key_requests } = *counts;
        let words = [taken, sent, dropped, decodable, aim.0, key_requests];
        for (n, word) in words.into_iter().enumerate() {
            self.0.put(COUNTS_AT + 8 * n, word);
        }
    }

    /// Reads each of them once.
    #[must_use]
    pub fn read(&self) -> Counts {
        let word = |n: usize| self.0.word(COUNTS_AT + 8 * n);
        Counts {
            taken: word(0),
            sent: word(1),
            dropped: word(2),
            decodable: word(3),
            aim: Bitrate(word(4)),
            key_requests: word(5),
        }
    }
}

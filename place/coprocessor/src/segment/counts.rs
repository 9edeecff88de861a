//! A coprocessor's counts of a stream, at the end of its segment. When the coprocessor dies, a process that
//! shares the segment reads there its counts up to its last turn, and its successor reads the number of the
//! next packet.
//!
//! Two copies are written in turn, and then the number of the newest, so that a copy that was being written
//! when its writer died is never read. A process that may write the segment may write invalid values here;
//! only the producer of the segment reads them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use selvedge_data_stream::{Counters, Counts, DropReason, Totals};
use selvedge_os::memory::Memfd;
use selvedge_units::Bytes;

/// The number of the newest copy and that of the next packet, then two copies.
pub(super) const COUNTS_LEN: usize = 128 + 2 * COPY;
const COPY: usize = 256;
const WORDS: usize = 13 + DropReason::COUNT;
const _: () = assert!(WORDS * 8 <= COPY, "a copy holds all");

/// The location of a stream's counts.
#[derive(Clone)]
pub struct CountsBoard {
    pub(super) mapping: Arc<Memfd>,
    pub(super) at: usize,
}

impl CountsBoard {
    /// Writes the newest counts. One writer at a time.
    pub fn write(&self, counts: &Counts) {
        let newest = self.mapping.atomic(self.at);
        // Never 0 again, which means none.
        let next = newest.load(Ordering::Relaxed).wrapping_add(1).max(1);
        let place = self.copy(next);
        for (n, word) in words(counts).into_iter().enumerate() {
            self.mapping.atomic(place + 8 * n).store(word, Ordering::Relaxed);
        }
        newest.store(next, Ordering::Release);
    }

    /// The newest counts, which are removed; `None` if there are none. To be called only while nothing
    /// writes.
    #[must_use]
    pub fn take(&self) -> Option<Counts> {
        let newest = self.mapping.atomic(self.at).swap(0, Ordering::Acquire);
        let place = self.copy(newest);
        let word = |n: usize| self.mapping.atomic(place + 8 * n).load(Ordering::Relaxed);
        (newest > 0).then(|| counts(word))
    }

    /// The RTP sequence number of the next packet of a frame that is not settled.
    pub(crate) fn next_packet(&self) -> u16 {
        // Its low 16 bits, whatever another process has written.
        self.mapping.atomic(self.at + 8).load(Ordering::Acquire) as u16
    }

    pub(crate) fn set_next_packet(&self, number: u16) {
        self.mapping.atomic(self.at + 8).store(number.into(), Ordering::Release);
    }

    const fn copy(&self, number: u64) -> usize {
        self.at + 128 + (number % 2) as usize * COPY
    }
}

impl fmt::Debug for CountsBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountsBoard").field("at", &self.at).finish_non_exhaustive()
    }
}

fn words(counts: &Counts) -> [u64; WORDS] {
    let Counts { totals, counters, sent_bytes, send_errors } = counts;
    let Totals { frames, sent, on_time, decodable, unknown, dropped, dropped_bytes } = totals;
    let mut words = [0; WORDS];
    words[..5].copy_from_slice(&[*frames, *sent, *on_time, *decodable, *unknown]);
    words[5..10].copy_from_slice(&counters.values());
    words[10..13].copy_from_slice(&[sent_bytes.0, *send_errors, dropped_bytes.0]);
    words[13..].copy_from_slice(dropped);
    words
}

fn counts(word: impl Fn(usize) -> u64) -> Counts {
    Counts {
        totals: Totals {
            frames: word(0),
            sent: word(1),
            on_time: word(2),
            decodable: word(3),
            unknown: word(4),
            dropped: std::array::from_fn(|n| word(13 + n)),
            dropped_bytes: Bytes(word(12)),
        },
        counters: Counters::new(std::array::from_fn(|n| word(5 + n))),
        sent_bytes: Bytes(word(10)),
        send_errors: word(11),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::StreamSegment;

    #[test]
    fn the_newest_complete_copy_is_read_once() {
        let segment = StreamSegment::create("counts", 4, Bytes(1024)).unwrap();
        let theirs = StreamSegment::open(segment.file().try_clone().unwrap()).unwrap();
        assert_eq!(theirs.counts().take(), None);
        let board = segment.counts();
        let of = |n: u64| {
            let word = |at: usize| n * 100 + at as u64;
            counts(word)
        };
        for n in 1..5 {
            board.write(&of(n));
        }
        // A writer that dies while writing the next copy: its number is not there yet.
        board.mapping.atomic(board.copy(5)).store(999, Ordering::Relaxed);
        assert_eq!(theirs.counts().take(), Some(of(4)));
        assert_eq!(theirs.counts().take(), None);
        board.write(&of(7));
        assert_eq!(theirs.counts().take(), Some(of(7)));
        // Whatever a producer writes there, the reader does not panic.
        board.mapping.atomic(board.at).store(u64::MAX - 1, Ordering::Relaxed);
        board.write(&of(8));
        board.mapping.atomic(board.at).store(u64::MAX, Ordering::Relaxed);
        board.write(&of(9));
        assert_eq!(theirs.counts().take(), Some(of(9)));
    }
}

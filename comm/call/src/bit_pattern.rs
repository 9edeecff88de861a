//! The bit pattern: a bit for each entry of the data part marks new content (Q-Fabric, 3.2.3). The
//! writer uses the next free entry, or an entry whose number is a priority or a type; then unread
//! content is replaced. Entries are read lowest first.
//!
//! | offset from the body | what | written by |
//! |---|---|---|
//! | 0 | u64 for each 64 entries: bits | writer sets, reader clears |
//! | then, at a multiple of 8 | entries: u32 length, u32 turn (odd during a write), u64 tag, data | writer |
//!
//! The reader clears a bit, copies the entry, and checks its turn again. An entry that changed
//! meanwhile is skipped, since its bit will be set again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use selvedge_data_memory::Bell;
use selvedge_os::memory::Memfd;

/// The offset of the body, and of the bell before it.
pub(crate) const BODY: usize = 512;
const BELL: usize = 384;

/// The number of entries, and their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitPatternSpec {
    pub(crate) entries: u32,
    /// Bytes of an entry's data, a multiple of 8.
    pub(crate) size: u32,
}

impl BitPatternSpec {
    pub(crate) const fn words(self) -> usize {
        (self.entries as usize).div_ceil(64)
    }

    const fn entry_stride(self) -> usize {
        16 + self.size as usize
    }

    /// The total size of the memory, in bytes.
    pub(crate) const fn len(self) -> usize {
        BODY + self.words() * 8 + self.entries as usize * self.entry_stride()
    }

    const fn entry(self, entry: u32) -> usize {
        BODY + self.words() * 8 + entry as usize * self.entry_stride()
    }
}

/// Why an entry was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitPatternError {
    /// All entries have unread content.
    Full,
    /// The content is too long, or there is no such entry.
    Outside,
}

#[derive(Debug)]
pub(crate) struct BitPatternWriter {
    memory: Arc<Memfd>,
    shape: BitPatternSpec,
    /// The turn of each entry; the reader's view of them is not trusted.
    versions: Vec<u32>,
}

impl BitPatternWriter {
    pub(crate) fn new(memory: Arc<Memfd>, shape: BitPatternSpec) -> Self {
        let versions = vec![0; shape.entries as usize];
        Self { memory, shape, versions }
    }

    /// Writes an entry (the first free one, if none is named) and sets its bit.
    pub(crate) fn put(
        &mut self,
        entry: Option<u32>,
        tag: u64,
        bytes: &[u8],
    ) -> Result<(), BitPatternError> {
        if bytes.len() > self.shape.size as usize {
            return Err(BitPatternError::Outside);
        }
        let entry = match entry {
            Some(entry) if entry < self.shape.entries => entry,
            Some(_) => return Err(BitPatternError::Outside),
            None => self.first_free().ok_or(BitPatternError::Full)?,
        };
        let at = self.shape.entry(entry);
        let turn = &mut self.versions[entry as usize];
        let head = |turn: u32| bytes.len() as u64 | u64::from(turn) << 32;
        *turn = turn.wrapping_add(1) | 1;
        self.memory.atomic(at).store(head(*turn), Ordering::Relaxed);
        // A reader that sees any of the following writes sees the odd turn when it checks again.
        fence(Ordering::Release);
        self.memory.atomic(at + 8).store(tag, Ordering::Relaxed);
        self.memory.write(at + 16, bytes);
        *turn = turn.wrapping_add(1);
        self.memory.put(at, head(*turn));
        self.bits(entry).fetch_or(1 << (entry % 64), Ordering::Release);
        Ok(())
    }

    fn bits(&self, entry: u32) -> &AtomicU64 {
        self.memory.atomic(BODY + entry as usize / 64 * 8)
    }

    fn first_free(&self) -> Option<u32> {
        (0..self.shape.words() as u32).find_map(|word| {
            let bits = self.bits(word * 64).load(Ordering::Acquire);
            let entry = word * 64 + bits.trailing_ones();
            (bits != u64::MAX && entry < self.shape.entries).then_some(entry)
        })
    }

    /// Returns true if the reader sleeps: then this caller must wake it.
    #[must_use = "the reader waits for the call"]
    pub(crate) fn flush(&self) -> bool {
        self.bell().notify_sleeper()
    }

    pub(crate) fn bell(&self) -> &Bell {
        self.memory.bell(BELL)
    }
}

#[derive(Debug)]
pub(crate) struct BitPatternReader {
    memory: Arc<Memfd>,
    shape: BitPatternSpec,
    /// The turn of each entry when it was last taken.
    versions: Vec<u32>,
    buffer: Vec<u8>,
}

impl BitPatternReader {
    pub(crate) fn new(memory: Arc<Memfd>, shape: BitPatternSpec) -> Self {
        let versions = vec![0; shape.entries as usize];
        Self { memory, shape, versions, buffer: Vec::with_capacity(shape.size as usize) }
    }

    /// Takes the lowest entry with new content; returns its number and tag. Its content is
    /// [`bytes`](Self::bytes).
    pub(crate) fn take(&mut self) -> Option<(u32, u64)> {
        for word in 0..self.shape.words() {
            let place = BODY + word * 8;
            let mut bits = self.memory.atomic(place).load(Ordering::Relaxed);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                self.memory.atomic(place).fetch_and(!(1 << bit), Ordering::AcqRel);
                let entry = word as u32 * 64 + bit;
                if entry < self.shape.entries
                    && let Some(tag) = self.copy(entry)
                {
                    return Some((entry, tag));
                }
            }
        }
        None
    }

    /// Copies an entry, unless it is being written or was taken before.
    fn copy(&mut self, entry: u32) -> Option<u64> {
        let at = self.shape.entry(entry);
        let head = self.memory.atomic(at).load(Ordering::Acquire);
        let (len, turn) = (head as u32, (head >> 32) as u32);
        let last = &mut self.versions[entry as usize];
        if turn % 2 == 1 || turn == *last || len > self.shape.size {
            return None;
        }
        let tag = self.memory.atomic(at + 8).load(Ordering::Relaxed);
        self.buffer.resize(len as usize, 0);
        self.memory.read(at + 16, &mut self.buffer);
        fence(Ordering::Acquire);
        if self.memory.atomic(at).load(Ordering::Relaxed) != head {
            return None;
        }
        *last = turn;
        Some(tag)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    pub(crate) fn has_message(&self) -> bool {
        let word = |n| self.memory.atomic(BODY + n * 8).load(Ordering::Acquire);
        (0..self.shape.words()).any(|n| word(n) != 0)
    }

    pub(crate) fn prepare_sleep(&self) -> bool {
        self.bell().prepare_sleep_unless(|| self.has_message())
    }

    pub(crate) fn finish_sleep(&self) {
        self.bell().wake();
    }

    pub(crate) fn bell(&self) -> &Bell {
        self.memory.bell(BELL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(entries: u32, size: u32) -> (Arc<Memfd>, BitPatternWriter, BitPatternReader) {
        let shape = BitPatternSpec { entries, size };
        let memory = Arc::new(Memfd::create("board", shape.len()).unwrap());
        let writer = BitPatternWriter::new(Arc::clone(&memory), shape);
        (Arc::clone(&memory), writer, BitPatternReader::new(memory, shape))
    }

    #[test]
    fn entries_are_taken_by_their_place_and_the_newest_of_each() {
        let (_memory, mut writer, mut reader) = board(70, 16);
        assert_eq!(reader.take(), None);
        for (entry, bytes) in [(69, &b"last"[..]), (3, b"old"), (3, b"three"), (0, b"")] {
            writer.put(Some(entry), entry.into(), bytes).unwrap();
        }
        for (entry, bytes) in [(0, &b""[..]), (3, b"three"), (69, b"last")] {
            assert_eq!(reader.take(), Some((entry, entry.into())));
            assert_eq!(reader.bytes(), bytes);
        }
        assert_eq!(reader.take(), None);
        assert_eq!(writer.put(Some(70), 0, b""), Err(BitPatternError::Outside));
        assert_eq!(writer.put(None, 0, &[0; 17]), Err(BitPatternError::Outside));
    }

    #[test]
    fn the_next_free_entry_is_found_until_all_are_full() {
        let (_memory, mut writer, mut reader) = board(65, 8);
        for n in 0..65_u64 {
            writer.put(None, n, &n.to_ne_bytes()).unwrap();
        }
        assert_eq!(writer.put(None, 65, b""), Err(BitPatternError::Full));
        assert_eq!(reader.take(), Some((0, 0)));
        writer.put(None, 65, b"").unwrap();
        assert_eq!(reader.take(), Some((0, 65)));
        assert_eq!(reader.take(), Some((1, 1)));
    }

    #[test]
    fn a_sleeper_is_called_once() {
        let (_memory, mut writer, reader) = board(1, 8);
        assert!(reader.prepare_sleep());
        writer.put(None, 0, b"").unwrap();
        assert!(writer.flush() && !writer.flush());
        assert!(!reader.prepare_sleep(), "there is something");
    }

    #[test]
    fn threads_hand_over_whole_entries() {
        let (_memory, mut writer, mut reader) = board(4, 64);
        const LAST: u64 = 50_000;
        let thread = std::thread::spawn(move || {
            for n in 1..=LAST {
                writer.put(Some(n as u32 % 3), n, &[n as u8; 64]).unwrap();
            }
            writer
        });
        let mut newest = [0; 3];
        let end = std::time::Instant::now() + selvedge_units::Duration::from_secs(60).into();
        while newest[LAST as usize % 3] != LAST {
            let Some((entry, tag)) = reader.take() else {
                assert!(std::time::Instant::now() < end, "the last of {newest:?} does not come");
                std::thread::yield_now();
                continue;
            };
            assert!(tag > newest[entry as usize], "in order");
            assert!(reader.bytes().iter().all(|byte| *byte == tag as u8), "whole");
            newest[entry as usize] = tag;
        }
        drop(thread.join().unwrap());
    }

    #[test]
    fn nothing_that_a_writer_scribbles_harms_the_reader() {
        let (memory, mut writer, mut reader) = board(3, 8);
        memory.put(BODY, u64::MAX);
        assert_eq!(reader.take(), None, "bits without entries");
        writer.put(Some(1), 7, b"a").unwrap();
        memory.put(BitPatternSpec { entries: 3, size: 8 }.entry(1), u64::from(u32::MAX) | 4 << 32);
        assert_eq!(reader.take(), None, "of 4 GB");
        writer.put(Some(1), 8, b"b").unwrap();
        assert_eq!((reader.take(), reader.bytes()), (Some((1, 8)), &b"b"[..]));
    }
}

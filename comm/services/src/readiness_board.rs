//! The memory of the I/O event module, as both sides see it: `struct shared` of
//! `bpf/readiness.bpf.c`, and how bits are taken out of it.
//!
//! Arbitrary content costs at most a scan of the whole memory, and yields only valid descriptor numbers.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use selvedge_os::memory::Mapping;

/// The number of descriptors that can be watched: all below it.
pub const DESCRIPTORS: usize = 65536;
const WORDS: usize = DESCRIPTORS / 64;

const FD_LIST: usize = 8;
const UPDATED: usize = FD_LIST + WORDS * 8;
const READY: usize = UPDATED + WORDS * 8;
const SLEEPING: usize = READY + 4;
const SIGNALLED: usize = READY + 8;
const SUMMARY: usize = READY + 16;
const FD_ACTIVE: usize = SUMMARY + WORDS / 8;
const GENERATION: usize = FD_ACTIVE + WORDS * 8;
/// The size of `struct shared`.
pub(crate) const SIZE: usize = GENERATION + DESCRIPTORS * 4;

/// Interest and readiness of descriptors.
#[derive(Debug)]
pub(crate) struct ReadinessBoard(Mapping);

const fn bit(descriptor: usize) -> u64 {
    1 << (descriptor % 64)
}

impl ReadinessBoard {
    pub(crate) fn new(memory: Mapping) -> Self {
        assert!(memory.size() >= SIZE, "the whole of it is mapped");
        Self(memory)
    }

    fn interest_word(&self, descriptor: usize) -> &AtomicU64 {
        self.0.atomic(FD_LIST + descriptor / 64 * 8)
    }

    fn changed_word(&self, descriptor: usize) -> &AtomicU64 {
        self.0.atomic(UPDATED + descriptor / 64 * 8)
    }

    fn active(&self, word: usize) -> &AtomicU64 {
        self.0.atomic(FD_ACTIVE + word * 8)
    }

    fn summary(&self, at: usize) -> &AtomicU64 {
        self.0.atomic(SUMMARY + at * 8)
    }

    fn count(&self) -> &AtomicU32 {
        self.0.atomic_u32(READY)
    }

    pub(crate) fn generation(&self, descriptor: usize) -> &AtomicU32 {
        self.0.atomic_u32(GENERATION + descriptor * 4)
    }

    /// Records that a descriptor is of interest, or no longer is.
    pub(crate) fn set_interest(&self, descriptor: usize, wanted: bool) {
        if wanted {
            self.interest_word(descriptor).fetch_or(bit(descriptor), Ordering::SeqCst);
        } else {
            self.interest_word(descriptor).fetch_and(!bit(descriptor), Ordering::SeqCst);
        }
    }

    /// Notes that a descriptor's interest has changed.
    pub(crate) fn change(&self, descriptor: usize) {
        self.changed_word(descriptor).fetch_or(bit(descriptor), Ordering::SeqCst);
        self.0.atomic_u32(0).fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that one change has been applied.
    pub(crate) fn changed(&self, descriptor: usize) {
        self.changed_word(descriptor).fetch_and(!bit(descriptor), Ordering::SeqCst);
    }

    /// Takes the changes: each descriptor, and whether it is of interest now.
    pub(crate) fn changes(&self, mut each: impl FnMut(usize, bool)) {
        for word in 0..WORDS {
            let changed = self.0.atomic(UPDATED + word * 8);
            if changed.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let changed = changed.swap(0, Ordering::SeqCst);
            for at in bits(changed) {
                let descriptor = word * 64 + at;
                let wanted =
                    self.interest_word(descriptor).load(Ordering::SeqCst) & bit(descriptor) != 0;
                each(descriptor, wanted);
            }
        }
    }

    /// Marks a descriptor as ready, in the kernel's order.
    pub(crate) fn mark(&self, descriptor: usize) {
        let word = descriptor / 64;
        if self.active(word).fetch_or(bit(descriptor), Ordering::SeqCst) & bit(descriptor) == 0 {
            self.count().fetch_add(1, Ordering::SeqCst);
            self.summary(word / 64).fetch_or(bit(word), Ordering::SeqCst);
        }
    }

    /// Clears a descriptor's mark.
    pub(crate) fn clear(&self, descriptor: usize) {
        let before = self.active(descriptor / 64).fetch_and(!bit(descriptor), Ordering::SeqCst);
        if before & bit(descriptor) != 0 {
            self.count().fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Takes all ready descriptors, lowest first.
    #[inline]
    pub(crate) fn take(&self, mut each: impl FnMut(RawFd)) {
        for at in 0..WORDS / 64 {
            // The summary bit is cleared before the word: a mark that comes in between sets it again.
            if self.summary(at).load(Ordering::Relaxed) == 0 {
                continue;
            }
            for index in bits(self.summary(at).swap(0, Ordering::SeqCst)) {
                let word = at * 64 + index;
                let ready = self.active(word).swap(0, Ordering::SeqCst);
                if ready == 0 {
                    continue;
                }
                self.count().fetch_sub(ready.count_ones(), Ordering::SeqCst);
                for at in bits(ready) {
                    each((word * 64 + at) as RawFd);
                }
            }
        }
    }

    /// Whether any descriptor may be ready.
    pub(crate) fn any(&self) -> bool {
        (0..WORDS / 64).any(|at| self.summary(at).load(Ordering::SeqCst) != 0)
    }

    /// The number of ready descriptors, as in the section's `flag`; only a hint.
    pub(crate) fn ready(&self) -> u32 {
        self.count().load(Ordering::Relaxed)
    }

    /// Counts one more sleeper; from now on the kernel wakes. The sleeper must look once more.
    pub(crate) fn prepare_sleep(&self) {
        self.0.atomic_u32(SLEEPING).fetch_add(1, Ordering::SeqCst);
    }

    /// Counts one sleeper less.
    pub(crate) fn finish_sleep(&self) {
        self.0.atomic_u32(SLEEPING).fetch_sub(1, Ordering::SeqCst);
    }

    /// Re-arms after a wake-up: the next mark gives another one. The caller must look afterwards.
    pub(crate) fn rearm(&self) {
        self.0.atomic_u32(SIGNALLED).store(0, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub(crate) fn signal(&self) -> bool {
        self.0.atomic_u32(SLEEPING).load(Ordering::SeqCst) != 0
            && self.0.atomic_u32(SIGNALLED).swap(1, Ordering::SeqCst) == 0
    }

    #[cfg(test)]
    pub(crate) fn scribble(&self, bytes: &[u8]) {
        self.0.write(0, bytes);
    }
}

/// The positions of the set bits, lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (at < 64).then_some(at)
    })
}

#[cfg(all(test, not(miri)))]
mod header;
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use selvedge_units::Duration;
    use std::collections::BTreeSet;
    use std::time::Instant;

    fn board() -> ReadinessBoard {
        ReadinessBoard::new(Mapping::private(SIZE).unwrap())
    }

    fn taken(board: &ReadinessBoard) -> Vec<RawFd> {
        let mut all = Vec::new();
        board.take(|descriptor| all.push(descriptor));
        all
    }

    #[test]
    fn marks_are_taken_once_in_order() {
        let board = board();
        for descriptor in [70, 3, 65_535, 3, 4096] {
            board.mark(descriptor);
        }
        assert_eq!((board.ready(), board.any()), (4, true));
        board.clear(70);
        assert_eq!(taken(&board), [3, 4096, 65_535]);
        assert_eq!((board.ready(), board.any()), (0, false));
        assert!(taken(&board).is_empty());
    }

    #[test]
    fn changes_are_seen_once() {
        let board = board();
        board.set_interest(9, true);
        board.change(9);
        board.change(64);
        let mut seen = Vec::new();
        board.changes(|descriptor, wanted| seen.push((descriptor, wanted)));
        assert_eq!(seen, [(9, true), (64, false)]);
        board.changes(|_, _| panic!("nothing has changed"));
    }

    /// No sleeper is forgotten: a marker finds the sleeper, or the sleeper's last look finds the mark.
    #[test]
    fn no_mark_is_slept_over() {
        const MARKS: usize = if cfg!(miri) { 60 } else { 20_000 };
        let board = board();
        let (wake, woken) = std::sync::mpsc::channel();
        // Each side stops at a time limit, so that a lost mark is reported and does not hang the test.
        let end = Instant::now() + Duration::from_secs(if cfg!(miri) { 600 } else { 60 }).into();
        std::thread::scope(|scope| {
            let marker = &board;
            scope.spawn(move || {
                for number in 0..MARKS {
                    marker.mark(number % 500);
                    if marker.signal() {
                        wake.send(()).unwrap();
                    }
                    while marker.ready() > 100 {
                        assert!(Instant::now() < end, "nobody takes what is marked");
                        std::thread::yield_now();
                    }
                }
            });
            let mut seen = 0;
            let mut last = Vec::new();
            loop {
                board.take(|descriptor| {
                    last.push(descriptor);
                    seen += 1;
                });
                board.prepare_sleep();
                if board.any() {
                    board.finish_sleep();
                    continue;
                }
                // The marker's end is also a wake-up; all of its marks are visible then.
                use std::sync::mpsc::RecvTimeoutError;
                let left = end.saturating_duration_since(Instant::now());
                let more = match woken.recv_timeout(left) {
                    Ok(()) => true,
                    Err(RecvTimeoutError::Disconnected) => false,
                    Err(RecvTimeoutError::Timeout) => panic!("a mark is slept over"),
                };
                board.finish_sleep();
                board.rearm();
                if !more && !board.any() {
                    break;
                }
            }
            assert!(seen > 0 && seen <= MARKS);
            assert!(last.contains(&(((MARKS - 1) % 500) as RawFd)));
        });
        assert!(!board.any());
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in proptest::collection::vec((0..DESCRIPTORS, 0..4_u8), 0..200)) {
            let board = board();
            let mut model = BTreeSet::new();
            for (descriptor, what) in steps {
                match what {
                    0 | 1 => {
                        board.mark(descriptor);
                        model.insert(descriptor as RawFd);
                    }
                    2 => {
                        board.clear(descriptor);
                        model.remove(&(descriptor as RawFd));
                    }
                    _ => {
                        let all: Vec<_> = std::mem::take(&mut model).into_iter().collect();
                        prop_assert_eq!(taken(&board), all);
                    }
                }
                prop_assert_eq!(board.ready() as usize, model.len());
            }
        }

        /// Whatever a process writes into the memory: only descriptors come out, each once.
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let board = board();
            let size = if bytes.is_empty() { 0 } else { SIZE };
            let all: Vec<u8> = bytes.iter().copied().cycle().take(size).collect();
            board.scribble(&all);
            let found = taken(&board);
            prop_assert!(found.is_sorted_by(|a, b| a < b));
            prop_assert!(found.iter().all(|descriptor| (0..DESCRIPTORS as RawFd).contains(descriptor)));
            board.changes(|descriptor, _| assert!(descriptor < DESCRIPTORS));
            // A set bit without its summary bit may stay hidden; after clearing, all is as at first.
            board.scribble(&vec![0; SIZE]);
            board.mark(77);
            prop_assert_eq!(taken(&board), [77]);
        }
    }
}

//! The fate of each frame of one stream, and which of them can be decoded on time.
//!
//! A sender opens an entry for each frame it takes and settles it when the frame is sent or
//! dropped; a receiver does the same for frames that it learns of. Entries come from the link and
//! go, as totals and shares, to statistics.
//!
//! A frame is *decodable* when it was on time and all that it refers to is decodable. That is final
//! only when all before it is settled, so frames are evaluated in the order of their numbers: each
//! once it and all before it are settled, or, settled or not, when it is older than the ledger's
//! window. Frames not settled by then count as lost, as do references to frames beyond the window,
//! to frames never offered, and unknown references.
//!
//! A missing number holds evaluation up until it is offered, declared lost
//! ([`Ledger::record_unknown`]), or falls out of the window: it may still arrive late.

mod entry;
mod evaluate;
mod recent;

use alloc::boxed::Box;
use alloc::vec;
use core::mem::offset_of;
use core::ops::Range;

use selvedge_units::{Bytes, Duration, Instant};

use self::entry::{Entry, State};
pub use self::recent::Recent;
use self::recent::{Queueing, Second, Seconds, Sum};
use crate::{DropReason, Frame};
use selvedge_data_memory::fetch::{prefetch, prefetch_lines};

/// How a frame ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was sent, or arrived, whole.
    Sent {
        /// Whether that was by its deadline.
        on_time: bool,
        /// Time from its arrival to the last of its packets sent.
        queueing: Duration,
    },
    /// It was not sent.
    Dropped(DropReason),
}

impl Fate {
    /// Whether the frame was lost to its deadline, or was sent after it.
    #[must_use]
    pub const fn is_miss(self) -> bool {
        matches!(
            self,
            Self::Dropped(DropReason::Expired | DropReason::TooLate)
                | Self::Sent { on_time: false, .. }
        )
    }
}

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Totals {
    /// Frames offered, including the unknown ones.
    pub frames: u64,
    /// Frames sent whole.
    pub sent: u64,
    /// Frames sent whole by their deadline.
    pub on_time: u64,
    /// Frames on time whose references were all on time too; counted when evaluated.
    pub decodable: u64,
    /// Frames dropped, by the number of the [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
    /// Frames that are only known to be lost, or whose fate was never reported.
    pub unknown: u64,
    /// Bytes of dropped frames, as they were settled with.
    pub dropped_bytes: Bytes,
}

/// The ledger of one stream: 24 bytes for each frame of its window, and a third of a kilobyte. The
/// fields that every frame touches lie together: two lines here, one or two of `entries`.
///
/// Sequence numbers may wrap: each is taken as the one nearest to the newest frame, so that up to
/// 2^31 may be left out. Any clock that does not go back will do.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Ledger {
    seconds: Seconds,
    /// Its length is a power of two, so that finding a place takes no division.
    entries: Box<[Entry]>,
    window: u32,
    /// Frames that are settled, and not evaluated.
    unevaluated: u32,
    /// Number of the frame after the newest. Numbers are sequence numbers that do not wrap.
    end: u64,
    /// All frames before this one are evaluated, and it is not settled.
    cursor: u64,
    /// All from this one on were offered, one after another: those without an entry wait. Beyond
    /// all numbers as long as nothing was offered.
    contiguous_from: u64,
    /// Whether the 64 before `cursor` are decodable, the last in the lowest bit.
    history: u64,
    now: Instant,
    totals: Totals,
    /// Number of the first frame.
    first: u64,
}

/// The lines that every frame touches.
const HOT: Range<usize> = 2..4;
const _: () = {
    assert!(offset_of!(Ledger, seconds.newest) >= HOT.start * 64);
    assert!(offset_of!(Ledger, totals.dropped) <= HOT.end * 64);
    assert!(size_of::<Option<Ledger>>() == size_of::<Ledger>());
};

/// Numbers begin here, so that frames older than the first have numbers too.
const BASE: u64 = 1 << 32;

impl Default for Ledger {
    fn default() -> Self {
        Self::new(Self::WINDOW)
    }
}

impl Ledger {
    /// The default number of frames that are remembered.
    pub const WINDOW: usize = 4096;

    /// A ledger that remembers the last `window` sequence numbers, 1 to 65536. Nothing is
    /// allocated afterwards.
    #[must_use]
    pub fn new(window: usize) -> Self {
        let window = window.clamp(1, 65_536);
        let places = window.next_power_of_two();
        Self {
            seconds: Seconds::default(),
            entries: vec![Entry::ABSENT; places].into(),
            window: window as u32,
            unevaluated: 0,
            end: BASE,
            cursor: BASE,
            contiguous_from: u64::MAX,
            history: 0,
            now: Instant::ZERO,
            totals: Totals::default(),
            first: BASE,
        }
    }

    /// Records a frame. Frames may be offered out of order. `false`, and without effect, for a
    /// frame that was offered before, is older than the first, or older than the window. Constant
    /// time for successive numbers, linear in the window at most.
    #[inline]
    pub fn offered(&mut self, frame: &Frame) -> bool {
        self.now = self.now.max(frame.arrival);
        // The expected number, and no open frame falls out of the window for it: nothing is written
        // about it before it is settled.
        let number = self.end;
        let within = number - self.cursor < u64::from(self.window);
        if number as u32 == frame.seq && number >= self.contiguous_from && within {
            self.end += 1;
            self.totals.frames += 1;
            return true;
        }
        self.open(frame.seq)
    }

    /// Records and settles a lost frame of which only the number is known: one missing between
    /// those that arrived. Otherwise as [`offered`](Self::offered).
    pub fn record_unknown(&mut self, seq: u32, now: Instant) -> bool {
        self.now = self.now.max(now);
        let opened = self.open(seq);
        if opened {
            let number = self.number(seq);
            self.mark_lost(number);
            self.evaluate_settled();
        }
        opened
    }

    /// Settles a frame, once, in any order. The size of a dropped frame counts as not sent. `false`, and without effect, for one that was not
    /// offered, is settled already, or is older than the window. Constant time, plus constant time
    /// for each frame that can now be evaluated.
    #[inline]
    pub fn settle(&mut self, frame: &Frame, fate: Fate, now: Instant) -> bool {
        self.settle_all([(frame, fate)], now) == 1
    }

    /// [`settle`](Self::settle) of several frames at one instant; returns how many had an effect.
    #[inline]
    pub fn settle_all<'a>(
        &mut self,
        frames: impl IntoIterator<Item = (&'a Frame, Fate)>,
        now: Instant,
    ) -> usize {
        self.now = self.now.max(now);
        let second = Second::of(self.now);
        let mut sum = Sum::default();
        for (frame, fate) in frames {
            let (on_time, queueing) = match fate {
                Fate::Sent { on_time, queueing } => (on_time, Queueing::of(queueing)),
                Fate::Dropped(_) => (false, Queueing::NOT_SENT),
            };
            let Some((number, first)) = self.waiting(frame.seq) else { continue };
            let state = if first {
                self.first_state(frame.refs, on_time)
            } else {
                self.unevaluated += 1;
                if on_time { State::OnTime } else { State::Lost }
            };
            match fate {
                Fate::Sent { .. } => sum.sent += 1,
                Fate::Dropped(reason) => {
                    self.totals.dropped[reason as usize] += 1;
                    self.totals.dropped_bytes += frame.size;
                }
            }
            sum.frames += 1;
            sum.on_time += u32::from(on_time);
            sum.decodable += u32::from(state == State::Decodable);
            *self.entry_mut(number) =
                Entry::settled(frame.seq, frame.refs, state, second, queueing);
            if first {
                self.pass_entry(state);
            }
        }
        if sum.frames > 0 {
            self.totals.sent += u64::from(sum.sent);
            self.totals.on_time += u64::from(sum.on_time);
            self.totals.decodable += u64::from(sum.decodable);
            if let Some(counts) = self.seconds.of(second) {
                counts.add(&sum);
            }
            if self.unevaluated > 0 {
                self.evaluate_settled();
            }
        }
        sum.frames as usize
    }

    /// The number of a waiting frame, and whether it is the first to be evaluated.
    #[inline(always)]
    fn waiting(&self, seq: u32) -> Option<(u64, bool)> {
        let open = self.contiguous_from <= self.cursor && self.cursor < self.end;
        if seq == self.cursor as u32 && open && self.unevaluated == 0 {
            return Some((self.cursor, true));
        }
        self.find_unsettled(seq)
    }

    #[cold]
    #[inline(never)]
    fn find_unsettled(&self, seq: u32) -> Option<(u64, bool)> {
        let number = self.number(seq);
        let waits = self.state(number) == Some(State::Waiting);
        waits.then_some((number, number == self.cursor))
    }

    /// Whether a frame is decodable on time; `None` while that is not final, for a frame never
    /// offered, and beyond the window.
    #[must_use]
    pub fn is_decodable(&self, seq: u32) -> Option<bool> {
        match self.state(self.number(seq))? {
            State::Decodable => Some(true),
            State::Undecodable => Some(false),
            _ => None,
        }
    }

    /// The first sequence number that is not evaluated: all before it is final. `None` before the
    /// first frame.
    #[must_use]
    pub fn evaluated_before(&self) -> Option<u32> {
        self.began().then_some(self.cursor as u32)
    }

    /// Prefetches the lines that every frame touches of the ledger that may lie here, without its
    /// entries. Testing whether there is one would wait for the memory.
    #[inline(always)]
    pub fn fetch(ledger: *const Option<Self>) {
        prefetch_lines(ledger, HOT);
    }

    /// Prefetches the entries of this number of the oldest open frames; the ledger itself should
    /// have been prefetched before.
    #[inline]
    pub fn fetch_entries(&self, frames: usize) {
        const TO_A_LINE: u64 = 64 / size_of::<Entry>() as u64;
        let mut ahead = 0;
        while let Some(entry) = self.entries.get(self.entry_index(self.cursor + ahead)) {
            prefetch(entry);
            ahead += TO_A_LINE;
            if ahead >= frames as u64 {
                break;
            }
        }
    }

    /// The memory of its window, the large part of the ledger.
    #[must_use]
    pub fn memory(&self) -> Range<*const u8> {
        let Range { start, end } = self.entries.as_ptr_range();
        start.cast()..end.cast()
    }

    /// Counts since the start.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Counts of the frames settled in the second of `now` and the nine before it. A frame counts
    /// as decodable in the second in which it was settled, once it is evaluated. Delays are those of
    /// the frames in the window. Linear in the frames of ten seconds, at most the window.
    #[must_use]
    pub fn recent(&self, now: Instant) -> Recent {
        let last = Second::of(now);
        let mut recent = self.seconds.total(last);
        let mut left = recent.frames;
        for number in (self.oldest()..self.end).rev() {
            if left == 0 {
                break;
            }
            let entry = &self.entries[self.entry_index(number)];
            let settled = entry.number == number as u32
                && !matches!(entry.state(), State::Absent | State::Waiting);
            if settled && entry.second().is_recent(last) {
                left -= 1;
                if let Some(queueing) = entry.queueing.span() {
                    recent.queueing.record(queueing);
                }
            }
        }
        recent
    }

    /// The number that a sequence number stands for: the one nearest to the newest frame's.
    fn number(&self, seq: u32) -> u64 {
        let ahead = seq.wrapping_sub(self.end as u32).cast_signed();
        self.end.wrapping_add_signed(ahead.into())
    }

    const fn began(&self) -> bool {
        self.contiguous_from != u64::MAX
    }

    /// The oldest number in the window.
    fn oldest(&self) -> u64 {
        self.end.saturating_sub(self.window.into()).max(self.first)
    }

    fn entry_index(&self, number: u64) -> usize {
        number as usize & (self.entries.len() - 1)
    }

    fn entry_mut(&mut self, number: u64) -> &mut Entry {
        let place = self.entry_index(number);
        &mut self.entries[place]
    }

    /// The state of a frame, absent or not; `None` if it is not in the window.
    fn state(&self, number: u64) -> Option<State> {
        if !(self.oldest()..self.end).contains(&number) {
            return None;
        }
        let entry = &self.entries[self.entry_index(number)];
        Some(match entry.state() {
            state if entry.number == number as u32 && state != State::Absent => state,
            _ if self.contiguous_from <= number => State::Waiting,
            _ => State::Absent,
        })
    }
}

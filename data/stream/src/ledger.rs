//! What became of each frame of one stream, and which of them can be decoded on time.
//!
//! A sender opens an entry for each frame it takes and settles it when the frame is sent or
//! dropped; a receiver does the same for frames that it learns of. Entries come from the link and
//! go, as totals and shares, to statistics.
//!
//! A frame is *decodable* when it was on time and all that it refers to is decodable. That is
//! final only when all before it is settled, so frames are evaluated in the order of their
//! numbers: each once it and all before it are settled, or, settled or not, when it is older than
//! the ledger's window. What is not settled by then counts as lost, as do references to frames
//! beyond the window, to frames never offered, and unknown references.
//!
//! A number that is left out holds evaluation up until it is offered, declared lost
//! ([`Ledger::offered_unknown`]), or falls out of the window: it may just come late.

mod entry;
mod recent;

use alloc::boxed::Box;
use alloc::vec;
use core::mem::offset_of;
use core::ops::Range;

use selvedge_units::{Instant, Span};

use self::entry::{Entry, State};
pub use self::recent::Recent;
use self::recent::{Queueing, Second, Seconds, Sum};
use crate::fetch::{prefetch, prefetch_lines};
use crate::{DropReason, Frame, References};

/// How a frame ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was sent, or arrived, whole.
    Sent {
        /// Whether that was by its deadline.
        on_time: bool,
        /// Time from its arrival to the last of its packets sent.
        queueing: Span,
    },
    /// It was not.
    Dropped(DropReason),
}

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Totals {
    /// Frames offered, the unknown among them.
    pub frames: u64,
    /// Frames sent whole.
    pub sent: u64,
    /// Frames sent whole by their deadline.
    pub on_time: u64,
    /// Frames on time whose references all were too; counted when evaluated.
    pub decodable: u64,
    /// Frames dropped, by the number of the [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
    /// Frames of which nothing is known but that they were lost, or whose fate never came.
    pub unknown: u64,
}

/// The ledger of one stream: 16 bytes for each frame of its window, and a third of a kilobyte.
/// What every frame touches lies together: two lines here, one of `entries`.
///
/// Sequence numbers may wrap: each is taken as the one nearest to the newest frame, so that
/// up to 2^31 may be left out. Time may be any clock that does not go back.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Ledger {
    seconds: Seconds,
    /// A power of two, so that finding a place takes no division.
    entries: Box<[Entry]>,
    window: u64,
    /// Number of the first frame, and of the frame after the newest. Numbers are sequence numbers
    /// that do not wrap. Equal: nothing was offered yet.
    first: u64,
    end: u64,
    /// All before this one is evaluated.
    cursor: u64,
    now: Instant,
    totals: Totals,
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
    /// How many frames are remembered if nothing else is said.
    pub const WINDOW: usize = 4096;

    /// A ledger that remembers the last `window` sequence numbers, 1 to 65536. Nothing is
    /// allocated afterwards.
    #[must_use]
    pub fn new(window: usize) -> Self {
        let window = window.clamp(1, 65_536);
        let places = window.next_power_of_two();
        Self {
            seconds: Seconds::default(),
            entries: vec![Entry::new(0, References::NONE, State::Absent); places].into(),
            window: window as u64,
            first: BASE,
            end: BASE,
            cursor: BASE,
            now: Instant::ZERO,
            totals: Totals::default(),
        }
    }

    /// Opens an entry for a frame. Frames may be offered out of order. `false`, and without
    /// effect, for a frame that was offered before, is older than the first, or older than the
    /// window. Constant time for successive numbers, linear in the window at most.
    #[inline]
    pub fn offered(&mut self, frame: &Frame) -> bool {
        self.now = self.now.max(frame.arrival);
        // The number that is expected, and nothing open falls out of the window for it.
        let number = self.end;
        if number as u32 == frame.seq && number > self.first && number - self.cursor < self.window {
            self.end += 1;
            *self.entry_mut(number) = Entry::new(frame.seq, frame.refs, State::Waiting);
            self.totals.frames += 1;
            return true;
        }
        self.open(frame.seq, frame.refs)
    }

    /// Opens and settles an entry for a frame that existed, of which nothing else is known, and
    /// which is lost: a number missing between those that came. Otherwise as
    /// [`offered`](Self::offered).
    pub fn offered_unknown(&mut self, seq: u32, now: Instant) -> bool {
        self.now = self.now.max(now);
        let opened = self.open(seq, References::UNKNOWN);
        if opened {
            let number = self.number(seq);
            self.lose(number);
            self.evaluate_settled();
        }
        opened
    }

    /// Settles a frame, once, in any order. `false`, and without effect, for one that was not
    /// offered, is settled already, or is older than the window. Constant time, and that again for
    /// each frame that can now be evaluated.
    pub fn settle(&mut self, seq: u32, fate: Fate, now: Instant) -> bool {
        self.settle_all([(seq, fate)], now) == 1
    }

    /// [`settle`](Self::settle) of several frames at one moment; how many had an effect.
    #[inline]
    pub fn settle_all(
        &mut self,
        frames: impl IntoIterator<Item = (u32, Fate)>,
        now: Instant,
    ) -> usize {
        self.now = self.now.max(now);
        let second = Second::of(self.now);
        let mut sum = Sum::default();
        for (seq, fate) in frames {
            let (on_time, queueing) = match fate {
                Fate::Sent { on_time, queueing } => (on_time, Queueing::of(queueing)),
                Fate::Dropped(_) => (false, Queueing::NOT_SENT),
            };
            let Some(state) = self.settled_state(seq, on_time) else { continue };
            match fate {
                Fate::Sent { .. } => sum.sent += 1,
                Fate::Dropped(reason) => self.totals.dropped[reason as usize] += 1,
            }
            sum.frames += 1;
            sum.on_time += u32::from(on_time);
            sum.decodable += u32::from(state == State::Decodable);
            let number = self.number(seq);
            let entry = self.entry_mut(number);
            entry.set(state, second);
            entry.queueing = queueing;
            self.cursor += u64::from(number == self.cursor);
        }
        if sum.frames > 0 {
            self.totals.sent += u64::from(sum.sent);
            self.totals.on_time += u64::from(sum.on_time);
            self.totals.decodable += u64::from(sum.decodable);
            if let Some(counts) = self.seconds.of(second) {
                counts.add(&sum);
            }
            self.evaluate_settled();
        }
        sum.frames as usize
    }

    /// What a frame is once it is settled; `None` if it can't be. The first that is open is
    /// evaluated with that.
    #[inline(always)]
    fn settled_state(&self, seq: u32, on_time: bool) -> Option<State> {
        let first = seq == self.cursor as u32 && self.cursor < self.end;
        let number = if first { self.cursor } else { self.number(seq) };
        let entry = self.entries[self.place(number)];
        if entry.number != seq || entry.state() != State::Waiting {
            return None;
        }
        if first {
            let decodable = on_time && self.has_all(number, entry.refs);
            return Some(if decodable { State::Decodable } else { State::Undecodable });
        }
        let within = (self.oldest()..self.end).contains(&number);
        within.then_some(if on_time { State::OnTime } else { State::Lost })
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
        (self.end > self.first).then_some(self.cursor as u32)
    }

    /// Asks for what every frame touches of the one that may lie here, but its entries. To see
    /// whether there is one would be to wait for it.
    #[inline(always)]
    pub fn fetch(ledger: &Option<Self>) {
        prefetch_lines(ledger, HOT);
    }

    /// Asks for the entries of the oldest frames that are open, so many of them, and of as many
    /// that are to come; the ledger itself should have been asked for before.
    #[inline]
    pub fn fetch_entries(&self, frames: usize) {
        const TO_A_LINE: usize = 64 / size_of::<Entry>();
        for ahead in (0..frames as u64).step_by(TO_A_LINE) {
            for number in [self.cursor + ahead, self.end + ahead] {
                if let Some(entry) = self.entries.get(self.place(number)) {
                    prefetch(entry);
                }
            }
        }
    }

    /// Where its window lies: the part of it that is large.
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
            let entry = &self.entries[self.place(number)];
            let settled = entry.number == number as u32
                && !matches!(entry.state(), State::Absent | State::Waiting);
            if settled && entry.settled().is_recent(last) {
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

    /// The oldest number in the window.
    fn oldest(&self) -> u64 {
        self.end.saturating_sub(self.window).max(self.first)
    }

    fn place(&self, number: u64) -> usize {
        number as usize & (self.entries.len() - 1)
    }

    fn entry_mut(&mut self, number: u64) -> &mut Entry {
        let place = self.place(number);
        &mut self.entries[place]
    }

    /// What is known of a frame, absent or not; `None` if it is not in the window.
    fn state(&self, number: u64) -> Option<State> {
        if !(self.oldest()..self.end).contains(&number) {
            return None;
        }
        let entry = &self.entries[self.place(number)];
        Some(if entry.number == number as u32 { entry.state() } else { State::Absent })
    }

    fn open(&mut self, seq: u32, refs: References) -> bool {
        if self.end == self.first {
            self.first = BASE + u64::from(seq);
            (self.end, self.cursor) = (self.first, self.first);
        }
        let number = self.number(seq);
        if number >= self.end {
            self.make_room(number);
        } else if self.state(number) != Some(State::Absent) {
            return false;
        }
        *self.entry_mut(number) = Entry::new(number as u32, refs, State::Waiting);
        self.totals.frames += 1;
        true
    }

    /// Moves the window so that `number` is its newest. What falls out is evaluated first.
    fn make_room(&mut self, number: u64) {
        let oldest = (number + 1).saturating_sub(self.window);
        while self.cursor < oldest.min(self.end) {
            match self.state(self.cursor) {
                Some(State::Waiting) => {
                    self.lose(self.cursor);
                    self.evaluate(self.cursor, false);
                }
                Some(State::OnTime) => self.evaluate(self.cursor, true),
                Some(State::Lost) => self.evaluate(self.cursor, false),
                _ => {}
            }
            self.cursor += 1;
        }
        self.cursor = self.cursor.max(oldest);
        self.end = number + 1;
        self.evaluate_settled();
    }

    /// Settles a waiting frame whose fate will not be known.
    fn lose(&mut self, number: u64) {
        let second = Second::of(self.now);
        if let Some(counts) = self.seconds.of(second) {
            counts.frames += 1;
        }
        self.totals.unknown += 1;
        self.entry_mut(number).set(State::Lost, second);
    }

    /// Evaluates on from the first frame that is not, which is in the window if there is one.
    #[inline]
    fn evaluate_settled(&mut self) {
        while self.cursor < self.end {
            let entry = *self.entry_mut(self.cursor);
            let on_time = match entry.state() {
                State::OnTime => true,
                State::Lost => false,
                _ => break,
            };
            if entry.number != self.cursor as u32 {
                break;
            }
            self.evaluate(self.cursor, on_time);
            self.cursor += 1;
        }
    }

    /// Makes a settled frame's decodability final.
    #[inline(never)]
    fn evaluate(&mut self, number: u64, on_time: bool) {
        let entry = *self.entry_mut(number);
        let (refs, settled) = (entry.refs, entry.settled());
        let decodable = on_time && self.has_all(number, refs);
        if decodable {
            self.totals.decodable += 1;
            if let Some(counts) = self.seconds.of(settled) {
                counts.decodable += 1;
            }
        }
        let state = if decodable { State::Decodable } else { State::Undecodable };
        self.entry_mut(number).set(state, settled);
    }

    /// Whether all that a frame refers to is decodable.
    #[inline(always)]
    fn has_all(&self, number: u64, refs: References) -> bool {
        let decodable = |back| self.state(number - u64::from(back)) == Some(State::Decodable);
        refs == References::NONE
            || refs.is_known()
                && [refs.near, refs.far].into_iter().all(|back| back == 0 || decodable(back))
    }
}

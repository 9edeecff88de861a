//! How the window of a [`Ledger`] advances, and which frames become final on the way: each once it
//! and all before it are settled, or fall out of the window.

use super::entry::{Entry, State};
use super::recent::{Queueing, Second};
use super::{BASE, Ledger};
use crate::References;

impl Ledger {
    /// The state of the first frame that is not evaluated once it is settled.
    #[inline(always)]
    pub(super) fn first_state(&self, refs: References, on_time: bool) -> State {
        let decodable = on_time && self.has_all(refs);
        if decodable { State::Decodable } else { State::Undecodable }
    }

    /// Advances past the first frame that was not evaluated, and now is.
    #[inline(always)]
    pub(super) fn pass_entry(&mut self, state: State) {
        self.history = self.history << 1 | u64::from(state == State::Decodable);
        self.cursor += 1;
    }

    #[cold]
    #[inline(never)]
    pub(super) fn open(&mut self, seq: u32) -> bool {
        if !self.began() {
            self.first = BASE + u64::from(seq);
            (self.end, self.cursor, self.contiguous_from) = (self.first, self.first, self.first);
        }
        let number = self.number(seq);
        if number > self.end {
            self.mark_skipped_waiting(number);
        }
        if number >= self.end {
            self.make_room(number);
        } else if self.state(number) == Some(State::Absent) {
            *self.entry_mut(number) = Entry::waiting(seq);
        } else {
            return false;
        }
        self.totals.frames += 1;
        true
    }

    /// Marks the waiting frames as waiting, since some of the following are not.
    fn mark_skipped_waiting(&mut self, number: u64) {
        for waiting in self.contiguous_from.max(self.cursor)..self.end {
            if self.state(waiting) == Some(State::Waiting) {
                *self.entry_mut(waiting) = Entry::waiting(waiting as u32);
            }
        }
        self.contiguous_from = number;
    }

    /// Moves the window so that `number` is its newest. Frames that fall out are evaluated first.
    fn make_room(&mut self, number: u64) {
        let oldest = (number + 1).saturating_sub(self.window.into());
        while self.cursor < oldest.min(self.end) {
            let on_time = match self.state(self.cursor) {
                Some(State::Waiting) => {
                    self.mark_lost(self.cursor);
                    Some(false)
                }
                Some(State::OnTime) => Some(true),
                Some(State::Lost) => Some(false),
                _ => None,
            };
            let state = on_time.map_or(State::Absent, |on_time| self.evaluate(on_time));
            self.pass_entry(state);
        }
        let passed = oldest.saturating_sub(self.cursor);
        self.history = if passed < 64 { self.history << passed } else { 0 };
        self.cursor += passed;
        self.end = number + 1;
        self.evaluate_settled();
    }

    /// Settles a waiting frame whose fate will not be known.
    pub(super) fn mark_lost(&mut self, number: u64) {
        let second = Second::of(self.now);
        if let Some(counts) = self.seconds.of(second) {
            counts.frames += 1;
        }
        self.totals.unknown += 1;
        self.unevaluated += 1;
        let (seq, refs) = (number as u32, References::UNKNOWN);
        *self.entry_mut(number) =
            Entry::settled(seq, refs, State::Lost, second, Queueing::NOT_SENT);
    }

    /// Continues evaluation from the first frame that is not evaluated, which is in the window if
    /// there is one.
    #[cold]
    #[inline(never)]
    pub(super) fn evaluate_settled(&mut self) {
        while self.unevaluated > 0 && self.cursor < self.end {
            let on_time = match self.state(self.cursor) {
                Some(State::OnTime) => true,
                Some(State::Lost) => false,
                _ => break,
            };
            let state = self.evaluate(on_time);
            self.pass_entry(state);
        }
    }

    /// Makes the decodability of the first frame that is not evaluated final; it is settled.
    #[inline(never)]
    fn evaluate(&mut self, on_time: bool) -> State {
        let entry = *self.entry_mut(self.cursor);
        let state = self.first_state(entry.refs, on_time);
        if state == State::Decodable {
            self.totals.decodable += 1;
            if let Some(counts) = self.seconds.of(entry.second()) {
                counts.decodable += 1;
            }
        }
        self.unevaluated -= 1;
        self.entry_mut(self.cursor).evaluated(state);
        state
    }

    /// Whether all references of the first frame that is not evaluated are decodable.
    #[inline(always)]
    fn has_all(&self, refs: References) -> bool {
        refs == References::NONE
            || refs.are_met(self.history & self.within_window(), |back| {
                self.state(self.cursor - u64::from(back)) == Some(State::Decodable)
            })
    }

    /// Which of the 64 frames before `cursor` lie within the window, the last in the lowest bit.
    #[inline(always)]
    fn within_window(&self) -> u64 {
        match u64::from(self.window).saturating_sub(self.end - self.cursor) {
            64.. => u64::MAX,
            frames => (1 << frames) - 1,
        }
    }
}

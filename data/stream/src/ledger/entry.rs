//! A ledger's record of one frame, in 24 bytes.

use super::recent::{Queueing, Second};
use crate::References;

/// The state of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Never offered.
    #[default]
    Absent,
    Waiting,
    OnTime,
    Lost,
    /// Evaluated.
    Decodable,
    /// Evaluated.
    Undecodable,
}

/// A place of the ring. It holds the frame whose number ends in these 32 bits, if that is not older
/// than the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) number: u32,
    pub(super) refs: References,
    /// The second in which it was settled, and below that its state.
    status: u32,
    pub(super) queueing: Queueing,
}

impl Entry {
    const STATE_BITS: u32 = u32::BITS - Second::BITS;

    pub(super) const ABSENT: Self = Self::new(0, State::Absent);

    const fn new(number: u32, state: State) -> Self {
        let (refs, status) = (References::NONE, state as u32);
        Self { number, refs, status, queueing: Queueing::NOT_SENT }
    }

    pub(super) const fn waiting(number: u32) -> Self {
        Self::new(number, State::Waiting)
    }

    pub(super) const fn settled(
        number: u32,
        refs: References,
        state: State,
        second: Second,
        queueing: Queueing,
    ) -> Self {
        let status = second.0 << Self::STATE_BITS | state as u32;
        Self { number, refs, status, queueing }
    }

    pub(super) fn state(&self) -> State {
        match self.status & ((1 << Self::STATE_BITS) - 1) {
            1 => State::Waiting,
            2 => State::OnTime,
            3 => State::Lost,
            4 => State::Decodable,
            5 => State::Undecodable,
            _ => State::Absent,
        }
    }

    /// The second in which it was settled.
    pub(super) const fn second(&self) -> Second {
        Second(self.status >> Self::STATE_BITS)
    }

    pub(super) const fn evaluated(&mut self, state: State) {
        self.status = self.second().0 << Self::STATE_BITS | state as u32;
    }
}

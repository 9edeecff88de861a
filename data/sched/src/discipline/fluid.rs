//! The fluid reference of weighted fair queueing (GPS), tracked from head frames alone.
//!
//! Every backlogged member is served at once, each in proportion to its weight, and all of them
//! together as fast as frames leave here: the virtual time `V` moves by `work / sum of weights`.
//! A member is backlogged if a frame of it waits, or if what it was sent lies ahead of `V`. So the
//! reference has always given out exactly the work that was sent, and `V` is the mean of the
//! members' tags by weight. A member whose last frame went out later than in the reference gives
//! back what the reference gave it beyond that frame; one that takes another weight stays as many
//! bytes ahead or behind.
//!
//! `V` moves in whole units of a tag; work short of a unit is carried over.

use super::heap::{NONE, PairingHeaps};
use super::tag::{LAST, Tag};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Neither waits nor lies ahead.
    #[default]
    Out,
    /// A frame of it waits.
    Waiting,
    /// Its frame has just gone; whether another follows is not known yet.
    Pending,
    /// Nothing waits, and it was sent more than the reference gave it.
    Ahead,
}

/// A member's tags.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// Where its next frame starts.
    pub(crate) start: Tag,
    /// Where it ends, if one waits.
    pub(crate) finish: Tag,
    pub(crate) weight: u32,
    pub(crate) phase: Phase,
}

impl Share {
    /// The frame that waits has been sent, or is lost: the next starts where it ends, or where
    /// it would have started. Returns its work as the tags count it: what rounding left out is
    /// not to be given out either.
    pub(crate) fn charge(&mut self, span: Tag) -> u128 {
        let end = super::tag::after(self.start, span);
        let work = (end - self.start).saturating_mul(u128::from(self.weight));
        self.start = end;
        work
    }

    /// Takes another weight: how far it is ahead or behind in bytes stays the same, rounded up.
    /// Returns the work that the rounding made.
    fn set_weight(&mut self, now: Tag, weight: u32) -> u128 {
        let [old, new] = [self.weight, weight].map(u128::from);
        let bytes = self.start.abs_diff(now).saturating_mul(old);
        if self.start >= now {
            self.start = super::tag::after(now, bytes.div_ceil(new));
            (bytes.div_ceil(new) * new).saturating_sub(bytes)
        } else {
            self.start = now.saturating_sub(bytes / new);
            bytes % new
        }
    }
}

/// One reference: a link's, or an inner node's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fluid {
    now: Tag,
    /// Work, in bytes and units, that has not moved `now` yet.
    carry: u128,
    /// Work that was given out to members since taken out.
    debt: u128,
    /// Of those that are backlogged.
    weights: u64,
    /// The heap of those ahead, by where they lie.
    ahead: u32,
}

impl Default for Fluid {
    fn default() -> Self {
        Self { now: 0, carry: 0, debt: 0, weights: 0, ahead: NONE }
    }
}

/// Where members lie, and then their numbers.
fn nearer(shares: &[Share]) -> impl Fn(u32, u32) -> bool + '_ {
    |a, b| (shares[a as usize].start, a) < (shares[b as usize].start, b)
}

impl Fluid {
    /// A member begins to wait, or waits on with its next frame: it starts at `V`, or where its
    /// last frame ended, if it was backlogged all along.
    pub(crate) fn join(
        &mut self,
        shares: &mut [Share],
        heaps: &mut PairingHeaps,
        id: u32,
        weight: u32,
    ) {
        match shares[id as usize].phase {
            Phase::Out => shares[id as usize].start = self.now,
            Phase::Ahead => self.ahead = heaps.remove(self.ahead, id, &nearer(shares)),
            Phase::Pending | Phase::Waiting => {}
        }
        let share = &mut shares[id as usize];
        if share.phase != Phase::Out {
            self.weights -= u64::from(share.weight);
            if weight != share.weight {
                let rounded = share.set_weight(self.now, weight);
                self.give(rounded);
            }
        }
        self.weights += u64::from(weight);
        share.weight = weight;
        share.phase = Phase::Waiting;
    }

    /// A member whose frame has gone has no other.
    pub(crate) fn part(&mut self, shares: &mut [Share], heaps: &mut PairingHeaps, id: u32) {
        let share = &mut shares[id as usize];
        if share.start > self.now {
            share.phase = Phase::Ahead;
            self.ahead = heaps.insert(self.ahead, id, &nearer(shares));
        } else {
            share.phase = Phase::Out;
            self.weights -= u64::from(share.weight);
            let beyond = self.now - share.start;
            let weight = share.weight;
            self.give(beyond.saturating_mul(u128::from(weight)));
        }
    }

    /// A member is taken out, whatever its phase. What it was sent ahead is not given out again.
    pub(crate) fn forget(&mut self, shares: &mut [Share], heaps: &mut PairingHeaps, id: u32) {
        let Share { phase, weight, start, .. } = shares[id as usize];
        if phase == Phase::Ahead {
            self.ahead = heaps.remove(self.ahead, id, &nearer(shares));
            self.debt += (start - self.now).saturating_mul(u128::from(weight));
        }
        if phase != Phase::Out {
            self.weights -= u64::from(weight);
        }
        shares[id as usize] = Share::default();
    }

    /// Work was done, in bytes and units; it is given out by the next `advance`.
    pub(crate) fn give(&mut self, work: u128) {
        let owed = self.debt.min(work);
        self.debt -= owed;
        self.carry = self.carry.saturating_add(work - owed);
    }

    /// Gives out what work was done: O(1), and O(log N) for each member that it catches up with.
    pub(crate) fn advance(&mut self, shares: &mut [Share], heaps: &mut PairingHeaps) {
        while self.weights > 0 {
            let weights = u128::from(self.weights);
            let nearest = self.ahead;
            if nearest != NONE {
                let until = shares[nearest as usize].start - self.now;
                // What does not fit is more than there is.
                if let Some(rest) =
                    until.checked_mul(weights).and_then(|need| self.carry.checked_sub(need))
                {
                    self.now += until;
                    self.carry = rest;
                    self.ahead = heaps.remove(nearest, nearest, &nearer(shares));
                    let share = &mut shares[nearest as usize];
                    share.phase = Phase::Out;
                    self.weights -= u64::from(share.weight);
                    continue;
                }
            }
            self.now = self.now.saturating_add(self.carry / weights).min(LAST);
            self.carry %= weights;
            return;
        }
        (self.carry, self.debt) = (0, 0);
    }
}

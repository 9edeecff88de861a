//! The fluid reference of weighted fair queueing (GPS), tracked from head frames alone.
//!
//! Every backlogged member is served at once, each in proportion to its weight, and all of them together as
//! fast as frames leave here: the virtual time `V` advances by `work / sum of weights`. A member is
//! backlogged if a frame of it waits, or if its sent frames lie ahead of `V`. So the reference has always
//! given out exactly the work that was sent, and `V` is the mean of the members' tags by weight. A member
//! whose last frame was sent later than in the reference returns the work that the reference gave it beyond
//! that frame. A member that takes another weight stays the same number of bytes ahead or behind.
//!
//! `V` advances in whole units of a tag; work short of a unit is carried over.

use super::heap::{NONE, PairingHeaps};
use super::tag::{LAST, Tag};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No frame waits, and the member is not ahead.
    #[default]
    Out,
    /// A frame of the member waits.
    Waiting,
    /// The member's frame has just gone; whether another follows is not known yet.
    Pending,
    /// Nothing waits, and the member was sent more than the reference gave it.
    Ahead,
}

/// A member's tags.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// Where the member's next frame starts.
    pub(crate) start: Tag,
    /// Where that frame ends, if one waits.
    pub(crate) finish: Tag,
    pub(crate) weight: u32,
    pub(crate) phase: Phase,
}

impl Share {
    /// Settles the waiting frame as sent or lost: the next starts where it ends, or where it would have
    /// started. Returns its work as the tags count it, so that work lost in rounding is not given out either.
    pub(crate) fn charge(&mut self, span: Tag) -> u128 {
        let end = super::tag::after(self.start, span);
        let work = (end - self.start).saturating_mul(u128::from(self.weight));
        self.start = end;
        work
    }

    /// Takes another weight: the distance ahead or behind in bytes stays the same, rounded up. Returns the
    /// work that the rounding made.
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
    /// Work, in bytes and units, that has not advanced `now` yet.
    carry: u128,
    /// Work that was given out to members removed since.
    debt: u128,
    /// The sum of the backlogged members' weights.
    weights: u64,
    /// The heap of the members that are ahead, by their position.
    ahead: u32,
}

impl Default for Fluid {
    fn default() -> Self {
        Self { now: 0, carry: 0, debt: 0, weights: 0, ahead: NONE }
    }
}

/// Orders members by position, then by number.
fn nearer(shares: &[Share]) -> impl Fn(u32, u32) -> bool + '_ {
    |a, b| (shares[a as usize].start, a) < (shares[b as usize].start, b)
}

impl Fluid {
    /// Adds a member that begins to wait, or waits on with its next frame: it starts at `V`, or where its
    /// last frame ended if it was backlogged all along.
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

    /// Notes that a member whose frame has gone has no other frame.
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

    /// Removes a member in any phase. Work that it was sent ahead is not given out again.
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

    /// Adds work that was done, in bytes and units; the next `advance` gives it out.
    pub(crate) fn give(&mut self, work: u128) {
        let owed = self.debt.min(work);
        self.debt -= owed;
        self.carry = self.carry.saturating_add(work - owed);
    }

    /// Gives out the work that was done: O(1), and O(log N) for each member that it catches up with.
    pub(crate) fn advance(&mut self, shares: &mut [Share], heaps: &mut PairingHeaps) {
        while self.weights > 0 {
            let weights = u128::from(self.weights);
            let nearest = self.ahead;
            if nearest != NONE {
                let until = shares[nearest as usize].start - self.now;
                // If the product does not fit, it exceeds the work that there is.
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

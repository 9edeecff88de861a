//! A member of a channel on another host, and what is kept of one that is gone.

use std::sync::Arc;

use selvedge_units::Instant;

use super::told::Right;
use super::view::MemberView;
use crate::filter::SinkState;
use crate::format::{Format, FormatId};
use crate::link::{Learner, Teller};
use crate::reliable::{Owed, Taken};
use crate::transmit::HostId;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) host: HostId,
    pub(super) heard: Instant,
    /// Whether it has sinks.
    pub(super) wants: bool,
    pub(super) teller: Teller,
    pub(super) learner: Learner,
    /// What it was asked to describe, so that it is asked once in a while.
    pub(super) asked: Option<(FormatId, Instant)>,
    pub(super) state: SinkState,
    pub(super) owed: Owed,
    pub(super) taken: Taken,
    /// How many of its events could not be given to sinks here that block.
    pub(super) refused: u64,
    pub(super) received: u64,
    /// How many events the transport had no room for.
    pub(super) lost: u64,
    /// What it was refused already.
    told: [bool; 2],
}

/// What is kept of a member that is gone.
#[derive(Debug)]
pub(super) struct Parted {
    pub(super) host: HostId,
    pub(super) since: Instant,
    pub(super) wants: bool,
    pub(super) owed: Owed,
    taken: Taken,
}

impl Member {
    /// One that was heard now; `back` if it was there before.
    pub(super) fn new(
        now: Instant,
        host: HostId,
        wants: bool,
        format: &Format,
        back: Option<Parted>,
    ) -> Self {
        let (mut owed, taken) = back.map_or_else(Default::default, |back| (back.owed, back.taken));
        owed.rewind(now);
        Self {
            host,
            heard: now,
            wants,
            teller: Teller::new(),
            learner: Learner::new(Arc::new(format.clone())),
            asked: None,
            state: SinkState::default(),
            owed,
            taken,
            refused: 0,
            received: 0,
            lost: 0,
            told: [false; 2],
        }
    }

    /// It is gone without a word.
    pub(super) fn part(self, since: Instant) -> Parted {
        let Self { host, wants, owed, taken, .. } = self;
        Parted { host, since, wants, owed, taken }
    }

    /// It has not this right: true the first time.
    pub(super) fn refuse(&mut self, right: Right) -> bool {
        !std::mem::replace(&mut self.told[right as usize], true)
    }

    pub(super) fn view(&self) -> MemberView {
        MemberView {
            host: self.host,
            wants: self.wants,
            sent: self.state.delivered,
            lost: self.lost,
            received: self.received,
            refused: self.refused,
            owed: self.owed.len() as u64,
            dropped: self.owed.dropped(),
        }
    }
}

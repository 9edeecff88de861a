//! A member of a channel on another host, and what is kept of one that is gone.

use std::sync::Arc;

use selvedge_units::Instant;

use super::notice::Right;
use super::view::MemberView;
use crate::filter::SinkState;
use crate::format::{Format, FormatId};
use crate::formats::{FormatReceiver, FormatSender};
use crate::reliable::{ReceiveWindow, SendWindow};
use crate::transmit::HostId;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) host: HostId,
    pub(super) last_heard: Instant,
    /// Whether it has sinks.
    pub(super) has_sinks: bool,
    pub(super) format_sender: FormatSender,
    pub(super) format_receiver: FormatReceiver,
    /// What it was asked to describe, so that it is asked once in a while.
    pub(super) requested: Option<(FormatId, Instant)>,
    pub(super) state: SinkState,
    pub(super) backlog: SendWindow,
    pub(super) taken: ReceiveWindow,
    /// How many of its events could not be given to sinks here that block.
    pub(super) refused: u64,
    pub(super) received: u64,
    /// How many events the transport had no room for.
    pub(super) lost: u64,
    /// What it was refused already.
    refused_notices: [bool; 2],
}

/// What is kept of a member that is gone.
#[derive(Debug)]
pub(super) struct DepartedMember {
    pub(super) host: HostId,
    pub(super) since: Instant,
    pub(super) has_sinks: bool,
    pub(super) backlog: SendWindow,
    taken: ReceiveWindow,
}

impl Member {
    /// One that was heard now; `back` if it was there before.
    pub(super) fn new(
        now: Instant,
        host: HostId,
        wants: bool,
        format: &Format,
        back: Option<DepartedMember>,
    ) -> Self {
        let (mut owed, taken) =
            back.map_or_else(Default::default, |back| (back.backlog, back.taken));
        owed.retransmit_all(now);
        Self {
            host,
            last_heard: now,
            has_sinks: wants,
            format_sender: FormatSender::new(),
            format_receiver: FormatReceiver::new(Arc::new(format.clone())),
            requested: None,
            state: SinkState::default(),
            backlog: owed,
            taken,
            refused: 0,
            received: 0,
            lost: 0,
            refused_notices: [false; 2],
        }
    }

    /// It is gone without a word.
    pub(super) fn part(self, since: Instant) -> DepartedMember {
        let Self { host, has_sinks: wants, backlog: owed, taken, .. } = self;
        DepartedMember { host, since, has_sinks: wants, backlog: owed, taken }
    }

    /// It has not this right: true the first time.
    pub(super) fn refuse_for_credit(&mut self, right: Right) -> bool {
        !std::mem::replace(&mut self.refused_notices[right as usize], true)
    }

    pub(super) fn view(&self) -> MemberView {
        MemberView {
            host: self.host,
            wants: self.has_sinks,
            sent: self.state.delivered,
            lost: self.lost,
            received: self.received,
            refused: self.refused,
            owed: self.backlog.len() as u64,
            dropped: self.backlog.dropped(),
        }
    }
}

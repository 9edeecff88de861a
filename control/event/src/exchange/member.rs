//! A member of a channel on another host, and the state of a departed one.

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
    /// Whether the member has sinks.
    pub(super) has_sinks: bool,
    pub(super) format_sender: FormatSender,
    pub(super) format_receiver: FormatReceiver,
    /// The format that the member was requested to describe, and when, to limit the rate of requests.
    pub(super) requested: Option<(FormatId, Instant)>,
    pub(super) state: SinkState,
    pub(super) backlog: SendWindow,
    pub(super) taken: ReceiveWindow,
    /// The number of its events that found a blocking sink here full.
    pub(super) refused: u64,
    pub(super) received: u64,
    /// The number of events that the transport had no room for.
    pub(super) lost: u64,
    /// The rights whose refusal was already reported.
    refused_notices: [bool; 2],
}

/// The state of a departed member.
#[derive(Debug)]
pub(super) struct DepartedMember {
    pub(super) host: HostId,
    pub(super) since: Instant,
    pub(super) has_sinks: bool,
    pub(super) backlog: SendWindow,
    taken: ReceiveWindow,
}

impl Member {
    /// A member that has just announced itself; `back` is its earlier state, if it was here before.
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
            format_sender: FormatSender::default(),
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

    /// The state that is kept, since the member departed without leaving.
    pub(super) fn part(self, since: Instant) -> DepartedMember {
        let Self { host, has_sinks: wants, backlog: owed, taken, .. } = self;
        DepartedMember { host, since, has_sinks: wants, backlog: owed, taken }
    }

    /// Notes that the member lacks this right; true the first time.
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

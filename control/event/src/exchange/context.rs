//! What the channels of one exchange share: what goes out, what is due, and the filters' memory.

use std::collections::VecDeque;

use selvedge_units::Instant;

use super::notice::{NOTICES_MAX, Notice, NoticeKind, Permit, Right};
use crate::event::{ChannelId, Event};
use crate::filter::SharedBlocks;
use crate::format::{Format, FormatId};
use crate::formats::FormatSender;
use crate::frame::Frame;
use crate::message::Message;
use crate::transmit::{HostId, Outbox};

/// Reliable events that a member is to have, as soon as the transport can take them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) channel: ChannelId,
    pub(super) host: HostId,
    /// How many are sent again, whatever the member's room is; `None` for as many as it has room for.
    pub(super) again: Option<usize>,
}

#[derive(Default)]
pub(super) struct Context {
    pub(super) outbox: Outbox,
    /// Encoded only when the transport takes them, since they may be many and long.
    pub(super) bursts: VecDeque<Burst>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) blocks: SharedBlocks,
    pub(super) permit: Option<Permit>,
    /// When something has to be sent again, acknowledged or let go.
    pub(super) timer: Option<Instant>,
    pub(super) malformed: u64,
    pub(super) from_strangers: u64,
    /// Memory for the message inside a frame.
    message: Vec<u8>,
}

impl Context {
    /// Something is due at a time.
    pub(super) fn due(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
        }
    }

    /// Notifies the host; the oldest notice goes if too many wait.
    pub(super) fn push_notice(&mut self, channel: ChannelId, host: HostId, what: NoticeKind) {
        if self.notices.len() >= NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(Notice { channel, host, kind: what });
    }

    pub(super) fn permits(&self, host: HostId, channel: &str, right: Right) -> bool {
        self.permit.as_ref().is_none_or(|permit| permit(host, channel, right))
    }

    /// Schedules a burst; one of its kind that waits already is enough.
    pub(super) fn burst(&mut self, burst: Burst) {
        let is_same = |one: &Burst| {
            (one.channel, one.host) == (burst.channel, burst.host)
                && one.again.is_some() == burst.again.is_some()
        };
        match self.bursts.iter_mut().find(|one| is_same(one)) {
            Some(waiting) => waiting.again = burst.again,
            None => self.bursts.push_back(burst),
        }
    }

    /// An event as a message.
    pub(super) fn event(
        &mut self,
        now: Instant,
        format: FormatId,
        event: Event<'_>,
        sequence: u64,
    ) -> Option<(&[u8], &mut Outbox)> {
        let Event { deadline, attributes, record } = event;
        let left = deadline.map(|deadline| deadline.since(now));
        // A record of a format that was checked fits, with all attributes.
        self.message(&Message::Event { format, sequence, left, attributes, record })
    }

    /// A message, and where the frame goes that carries it.
    pub(super) fn message(&mut self, message: &Message<'_>) -> Option<(&[u8], &mut Outbox)> {
        self.message.clear();
        message.encode(&mut self.message).ok()?;
        Some((&self.message, &mut self.outbox))
    }

    /// The description of a format, if the peer has not had it.
    pub(super) fn description(
        &mut self,
        format_sender: &mut FormatSender,
        format: &Format,
    ) -> Option<(&[u8], &mut Outbox)> {
        self.message.clear();
        let is_new = format_sender.describe(format, &mut self.message) == Ok(true);
        is_new.then_some((&self.message[..], &mut self.outbox))
    }

    /// A frame of the exchange's own for one host.
    pub(super) fn send(&mut self, to: HostId, frame: &Frame<'_>) {
        self.outbox.send(to, crate::transmit::Class::Control, frame);
    }
}

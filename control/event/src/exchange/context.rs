//! The state that the channels of one exchange share: outgoing frames, timers, and the filters' memory.

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

/// Reliable events that are owed to a member, to be sent as soon as the transport can take them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) channel: ChannelId,
    pub(super) host: HostId,
    /// The number to be retransmitted, whatever the member's room is; `None` for as many as it has room for.
    pub(super) again: Option<usize>,
}

#[derive(Default)]
pub(super) struct Context {
    pub(super) outbox: Outbox,
    /// Encoded only when the transport takes them, since the events may be many and long.
    pub(super) bursts: VecDeque<Burst>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) blocks: SharedBlocks,
    pub(super) permit: Option<Permit>,
    /// When the next retransmission, acknowledgement or held-back event is due.
    pub(super) timer: Option<Instant>,
    pub(super) malformed: u64,
    pub(super) from_strangers: u64,
    /// Memory for the message inside of a frame.
    message: Vec<u8>,
}

impl Context {
    /// Sets the timer to `at`, if that is earlier.
    pub(super) fn due(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
        }
    }

    /// Adds a notice for the host; the oldest is dropped if too many wait.
    pub(super) fn push_notice(&mut self, channel: ChannelId, host: HostId, what: NoticeKind) {
        if self.notices.len() >= NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(Notice { channel, host, kind: what });
    }

    pub(super) fn permits(&self, host: HostId, channel: &str, right: Right) -> bool {
        self.permit.as_ref().is_none_or(|permit| permit(host, channel, right))
    }

    /// Schedules a burst; it replaces a waiting one of its kind.
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

    /// Encodes an event as a message.
    pub(super) fn event(
        &mut self,
        now: Instant,
        format: FormatId,
        event: Event<'_>,
        sequence: u64,
    ) -> Option<(&[u8], &mut Outbox)> {
        let Event { deadline, attributes, record } = event;
        let left = deadline.map(|deadline| deadline.since(now));
        // A record of a checked format fits, with all attributes.
        self.message(&Message::Event { format, sequence, left, attributes, record })
    }

    /// Encodes a message; returns it with the outbox for the frame that carries it.
    pub(super) fn message(&mut self, message: &Message<'_>) -> Option<(&[u8], &mut Outbox)> {
        self.message.clear();
        message.encode(&mut self.message).ok()?;
        Some((&self.message, &mut self.outbox))
    }

    /// Encodes the description of a format, if the peer has not had it.
    pub(super) fn description(
        &mut self,
        format_sender: &mut FormatSender,
        format: &Format,
    ) -> Option<(&[u8], &mut Outbox)> {
        self.message.clear();
        let is_new = format_sender.describe(format, &mut self.message) == Ok(true);
        is_new.then_some((&self.message[..], &mut self.outbox))
    }

    /// Sends a frame of the exchange's own to one host.
    pub(super) fn send(&mut self, to: HostId, frame: &Frame<'_>) {
        self.outbox.send(to, crate::transmit::Class::Control, frame);
    }
}

//! What comes from other hosts. Nothing of it is believed: bytes are a frame or counted, rights are
//! asked for, numbers only compared.

use selvedge_units::{Instant, Span};

use super::{CONTROL_MAX, CONTROL_OF_ONE_MAX, ChannelId, Exchange, Open, Right, What, note};
use crate::channel::{Event, PublishError};
use crate::frame::Frame;
use crate::link::ReadError;
use crate::message::Message;
use crate::reliable::Turn;
use crate::transport::{HostId, Transport};

/// How long until a peer is asked again for the same description.
const ASK_AGAIN: Span = Span::from_millis(100);

impl Exchange {
    pub(super) fn receive(
        &mut self,
        now: Instant,
        from: HostId,
        bytes: &[u8],
        transport: &mut dyn Transport,
    ) {
        let Some(frame) = Frame::decode(bytes) else {
            self.malformed += 1;
            return;
        };
        if let Frame::Control { bytes } = frame {
            let of_this = self.controls.iter().filter(|(host, _)| *host == from).count();
            if self.controls.len() < CONTROL_MAX && of_this < CONTROL_OF_ONE_MAX {
                self.controls.push_back((from, bytes.to_vec()));
            }
            return;
        }
        // A channel that is not open here is no affair of ours.
        let Some(at) = frame.channel().and_then(|channel| self.named(channel)) else { return };
        self.with(ChannelId(at), |this, open| {
            this.receive_on(now, at, open, from, frame, transport);
        });
    }

    fn receive_on(
        &mut self,
        now: Instant,
        at: usize,
        open: &mut Open,
        from: HostId,
        frame: Frame<'_>,
        transport: &mut dyn Transport,
    ) {
        match frame {
            Frame::Here { wants, answer, .. } => {
                let is_new = open.heard(now, from, wants);
                if is_new {
                    note(&mut self.notices, at, from, What::Joined);
                }
                if wants && !self.may(at, open, from, Right::Subscribe) {
                    open.heard(now, from, false);
                }
                if answer || is_new {
                    self.here(open, false);
                    transport.send(now, from, &self.buffer);
                }
                if is_new {
                    let retry_at = open.members.last().and_then(|member| member.owed.retry_at());
                    self.due(retry_at);
                }
            }
            Frame::Left { .. } => {
                if open.left(from) {
                    note(&mut self.notices, at, from, What::Left);
                }
            }
            Frame::Carry { message, .. } => {
                if let Some(place) = self.member(now, open, from) {
                    self.carried(now, at, open, place, message, transport);
                }
            }
            Frame::Sure { number, before, message, .. } => {
                if let Some(place) = self.member(now, open, from) {
                    self.sure(now, at, open, place, (number, before, message), transport);
                }
            }
            Frame::Credit { through, room, again, .. } => {
                if let Some(place) = self.member(now, open, from) {
                    self.credited(now, open, place, (through, room, again), transport);
                }
            }
            Frame::Skip { to, dropped, .. } => {
                if let Some(place) = self.member(now, open, from) {
                    let missed = open.members[place].taken.skip(now, to, dropped);
                    if missed > 0 {
                        note(&mut self.notices, at, from, What::Missed(missed));
                    }
                    self.due(Some(now));
                }
            }
            Frame::Control { .. } => {}
        }
    }

    /// The place of a member that was heard; strangers are counted.
    fn member(&mut self, now: Instant, open: &mut Open, from: HostId) -> Option<usize> {
        let place = open.members.iter().position(|member| member.host == from);
        match place {
            Some(place) => open.members[place].heard = now,
            None => self.strange += 1,
        }
        place
    }

    fn carried(
        &mut self,
        now: Instant,
        at: usize,
        open: &mut Open,
        place: usize,
        bytes: &[u8],
        transport: &mut dyn Transport,
    ) {
        let Ok(message) = Message::decode(bytes) else {
            self.malformed += 1;
            return;
        };
        let from = open.members[place].host;
        match message {
            Message::Describe { format, name, text } => {
                let member = &mut open.members[place];
                if let Err(why) = member.learner.learn(format, name, text) {
                    note(&mut self.notices, at, from, What::Unreadable(why));
                }
                open.members[place].asked = None;
            }
            Message::Ask { format } => open.members[place].teller.forget(format),
            Message::Event { .. } => {
                if self.may(at, open, from, Right::Publish)
                    && self.event(now, at, open, place, message, transport) == Some(false)
                {
                    // A sink that blocks holds sources on its own host only.
                    open.members[place].refused += 1;
                }
            }
        }
    }

    /// Gives an event to the sinks here: whether they had room; `None` if it can't be read yet.
    fn event(
        &mut self,
        now: Instant,
        at: usize,
        open: &mut Open,
        place: usize,
        message: Message<'_>,
        transport: &mut dyn Transport,
    ) -> Option<bool> {
        let Message::Event { format, left, attributes, record, .. } = message else {
            return Some(true);
        };
        let member = &mut open.members[place];
        match member.learner.read(format, record, &mut open.record) {
            Ok(()) => {
                member.received += 1;
                open.suppress(attributes);
                let deadline = left.map(|left| now + left);
                let event = Event { deadline, attributes, record: &open.record };
                let taken = open.channel.publish(now, event, &mut self.blocks);
                return Some(!matches!(taken, Err(PublishError::Blocked(_))));
            }
            Err(ReadError::Unknown(_)) => {
                let is_asked = |(asked, when)| asked == format && now < when + ASK_AGAIN;
                if !member.asked.is_some_and(is_asked) {
                    member.asked = Some((format, now));
                    self.message.clear();
                    if (Message::Ask { format }).encode(&mut self.message).is_ok() {
                        self.buffer.clear();
                        let (channel, message) = (open.channel.name(), &*self.message);
                        Frame::Carry { channel, message }.encode(&mut self.buffer);
                        transport.send(now, member.host, &self.buffer);
                    }
                }
                return None;
            }
            // Told when the format was learnt.
            Err(ReadError::Mismatch(_)) => {}
            Err(why) => note(&mut self.notices, at, member.host, What::Unreadable(why)),
        }
        Some(true)
    }

    /// A reliable event: taken in its turn, or asked for again.
    fn sure(
        &mut self,
        now: Instant,
        at: usize,
        open: &mut Open,
        place: usize,
        (number, before, bytes): (u64, u64, &[u8]),
        transport: &mut dyn Transport,
    ) {
        let Ok(message @ Message::Event { .. }) = Message::decode(bytes) else {
            self.malformed += 1;
            return;
        };
        let from = open.members[place].host;
        match open.members[place].taken.judge(number, before) {
            Turn::Next => {
                let may = self.may(at, open, from, Right::Publish);
                let given = if may {
                    self.event(now, at, open, place, message, transport)
                } else {
                    // It would be sent again for ever.
                    Some(true)
                };
                let room = open.room();
                match given {
                    Some(true) => open.members[place].taken.take(now, number, room),
                    Some(false) => open.members[place].taken.refuse(now),
                    None => self.say_credit(now, open, place, true, transport),
                }
            }
            Turn::Again => self.say_credit(now, open, place, false, transport),
            Turn::Early => {
                if open.members[place].taken.ask(now) {
                    self.say_credit(now, open, place, true, transport);
                }
            }
        }
        let say_at = open.members[place].taken.say_at();
        self.due(say_at);
    }

    /// Tells a source up to where all was taken, and for how many there is room.
    pub(super) fn say_credit(
        &mut self,
        now: Instant,
        open: &mut Open,
        place: usize,
        again: bool,
        transport: &mut dyn Transport,
    ) {
        let room = open.room();
        let member = &mut open.members[place];
        let again = again || (member.taken.is_starved() && room > 0);
        let through = member.taken.say(room);
        self.buffer.clear();
        let channel = open.channel.name();
        Frame::Credit { channel, through, room, again }.encode(&mut self.buffer);
        transport.send(now, member.host, &self.buffer);
    }

    /// A member has taken events and has room for more.
    fn credited(
        &mut self,
        now: Instant,
        open: &mut Open,
        place: usize,
        credit: (u64, u64, bool),
        transport: &mut dyn Transport,
    ) {
        let Open { members, held, channel, .. } = &mut *open;
        let member = &mut members[place];
        if member.owed.credit(now, credit, |number| held.settle(number)) {
            let (to, dropped) = member.owed.skip();
            self.buffer.clear();
            Frame::Skip { channel: channel.name(), to, dropped }.encode(&mut self.buffer);
            transport.send(now, member.host, &self.buffer);
        }
        while self.send_owed(now, open, place, false, transport) {}
        let retry_at = open.members[place].owed.retry_at();
        self.due(retry_at);
    }

    /// Sinks have taken events of a channel: sources that wait for room hear of it, soon.
    pub fn taken(&mut self, now: Instant, channel: ChannelId) {
        let open = self.channels.get_mut(channel.0).and_then(Option::as_mut);
        let say_at = open.and_then(|open| open.freed(now));
        self.due(say_at);
    }
}

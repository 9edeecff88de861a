//! Events on their way to other hosts: filtered, held back, kept until they are taken.

use selvedge_units::{Instant, Span};

use super::member::{Member, until};
use super::{ChannelId, Exchange, Open, What, note};
use crate::attribute::{Attributes, Value};
use crate::channel::{Event, PublishError};
use crate::filter::{Choice, Question, SharedBlocks, SinkState};
use crate::frame::Frame;
use crate::message::Message;
use crate::reliable::HELD_MAX;
use crate::transport::{HostId, Transport};

/// The attribute, a number, that names what an event answers. While an OUT filter holds such an event
/// back, another host's answer to the same suppresses it: of many that could answer, the one whose
/// filter waits least does. Let the filter wait longer the busier its host is, and the least loaded
/// answers.
pub const ANSWERS: &str = "answers";
/// The longest that an event is held back.
pub const HOLD_MAX: Span = Span::from_secs(10);
/// The most events of a channel that are held back.
const HELD_BACK_MAX: usize = 64;

/// An event that an OUT filter holds back.
#[derive(Debug)]
pub(super) struct HeldBack {
    at: Instant,
    answers: Option<i64>,
    chosen: u128,
    sequence: u64,
    deadline: Option<Instant>,
    attributes: Vec<u8>,
    record: Vec<u8>,
}

impl Exchange {
    /// Sends an event to the sinks here and to the hosts that the OUT filter chooses; the number of
    /// sinks here and of hosts. An event whose deadline has passed goes to no other host, and one
    /// that the filter holds back to none now.
    ///
    /// # Errors
    /// If the sinks here can't have it; then nobody gets it.
    pub fn publish(
        &mut self,
        now: Instant,
        channel: ChannelId,
        event: Event<'_>,
        transport: &mut dyn Transport,
    ) -> Result<(usize, usize), PublishError> {
        let sent = self.with(channel, |this, open| this.publish_on(now, open, event, transport));
        sent.unwrap_or(Ok((0, 0)))
    }

    fn publish_on(
        &mut self,
        now: Instant,
        open: &mut Open,
        event: Event<'_>,
        transport: &mut dyn Transport,
    ) -> Result<(usize, usize), PublishError> {
        let here = open.channel.publish(now, event, &mut self.blocks)?;
        let sequence = open.sequence;
        open.sequence += 1;
        if event.deadline.is_some_and(|deadline| deadline < now) {
            return Ok((here, 0));
        }
        let Choice { sinks, hold } = open.choose(now, event, sequence, &mut self.blocks);
        if hold > Span(0) && sinks != 0 {
            let at = open.hold_back(until(now, hold, HOLD_MAX), event, sinks, sequence);
            self.due(at);
            return Ok((here, 0));
        }
        Ok((here, self.send_event(now, open, event, (sinks, sequence), transport)))
    }

    /// Sends an event as [`publish`](Self::publish) does, and keeps it until each member that it is for
    /// has taken it, or [`RESUME`](crate::RESUME) after it was lost. What is kept is bounded, by
    /// [`HELD_MAX`](crate::HELD_MAX) events of a channel: beyond, the oldest is dropped for those who
    /// have not taken it, which both ends are told. A deadline counts all the same; an OUT filter's
    /// `hold` does not. Back comes the number of sinks here and of hosts that are owed it.
    ///
    /// # Errors
    /// If the sinks here can't have it; then nobody gets it.
    pub fn publish_reliably(
        &mut self,
        now: Instant,
        channel: ChannelId,
        event: Event<'_>,
        transport: &mut dyn Transport,
    ) -> Result<(usize, usize), PublishError> {
        let sent =
            self.with(channel, |this, open| this.promise(now, channel.0, open, event, transport));
        sent.unwrap_or(Ok((0, 0)))
    }

    /// Sends an event as [`publish_reliably`](Self::publish_reliably) does, at the pace of all: not while
    /// [a member is behind](Self::is_behind). So nothing is dropped for those that are there.
    ///
    /// # Errors
    /// [`PublishError::Behind`], or if the sinks here can't have it; then nobody gets it.
    pub fn publish_in_turn(
        &mut self,
        now: Instant,
        channel: ChannelId,
        event: Event<'_>,
        transport: &mut dyn Transport,
    ) -> Result<(usize, usize), PublishError> {
        if self.is_behind(channel) {
            return Err(PublishError::Behind);
        }
        self.publish_reliably(now, channel, event, transport)
    }

    /// Whether a member has not taken half of the reliable events that can be kept for it. One that is lost
    /// does not count: it may never come back.
    pub fn is_behind(&self, channel: ChannelId) -> bool {
        self.owes(channel, HELD_MAX / 2)
    }

    /// Whether no member [is behind](Self::is_behind), nor will be after a few events more.
    pub fn is_caught_up(&self, channel: ChannelId) -> bool {
        !self.owes(channel, HELD_MAX / 4)
    }

    fn owes(&self, channel: ChannelId, most: usize) -> bool {
        let Some(Some(open)) = self.channels.get(channel.0) else { return false };
        let mut members = open.members.iter().map(|member| &member.owed);
        members.any(|owed| owed.len() >= most || open.held.is_pressed_by(owed.oldest()))
    }

    fn promise(
        &mut self,
        now: Instant,
        at: usize,
        open: &mut Open,
        event: Event<'_>,
        transport: &mut dyn Transport,
    ) -> Result<(usize, usize), PublishError> {
        let here = open.channel.publish(now, event, &mut self.blocks)?;
        let sequence = open.sequence;
        open.sequence += 1;
        let Choice { sinks, .. } = open.choose(now, event, sequence, &mut self.blocks);
        let for_all = open.out.is_none();
        let wanting = open.members.iter().filter(|member| member.wants).count();
        let is_chosen = |number: usize, member: &Member| member.wants && sinks >> number & 1 == 1;
        let chosen = open.members.iter().enumerate().filter(|(n, m)| is_chosen(*n, m)).count();
        let parted = open.parted.iter().filter(|parted| for_all && parted.wants).count();
        if chosen + parted == 0 {
            return Ok((here, 0));
        }
        let number = open.held.push(event, chosen + parted);
        for parted in open.parted.iter_mut().filter(|parted| for_all && parted.wants) {
            parted.owed.push(now, number);
        }
        // Those that can have it now, and whether all wait for the same one.
        let (mut ready, mut alike, mut due) = (0_u128, None, None);
        for (place, member) in open.members.iter_mut().enumerate() {
            if !is_chosen(place, member) {
                continue;
            }
            member.state.delivered += 1;
            if let Some(before) = member.owed.push(now, number) {
                ready |= 1 << place;
                alike = Some(alike.map_or((before, true), |(b, same)| (b, same && b == before)));
            }
            due = due.into_iter().chain(member.owed.retry_at()).min();
        }
        self.due(due);
        let is_most = ready.count_ones() as usize * 2 > wanting && ready.count_ones() > 1;
        if let (Some((before, true)), true, true) = (alike, is_most, chosen == wanting) {
            self.describe(now, open, ready, transport);
            if self.encode_sure(now, open, number, before) {
                transport.send_events(now, open.channel.name(), &self.hosts, &self.buffer);
            }
        } else {
            for place in (0..open.members.len()).filter(|place| ready >> place & 1 == 1) {
                // It was counted as sent.
                let before = open.members[place].owed.before_last();
                self.send_sure(now, open, place, number, before, transport);
            }
        }
        while let Some(oldest) = open.held.overflow() {
            for member in &mut open.members {
                if member.owed.drop_oldest(oldest) {
                    member.state.dropped += 1;
                    note(&mut self.notices, at, member.host, What::Undelivered(1));
                }
            }
            for parted in &mut open.parted {
                if parted.owed.drop_oldest(oldest) {
                    note(&mut self.notices, at, parted.host, What::Undelivered(1));
                }
            }
        }
        Ok((here, chosen + parted))
    }

    /// Sends a member the next event that it is owed, if it may have it: true if so.
    pub(super) fn send_owed(
        &mut self,
        now: Instant,
        open: &mut Open,
        place: usize,
        again: bool,
        transport: &mut dyn Transport,
    ) -> bool {
        let owed = &mut open.members[place].owed;
        let next = if again { owed.next_again() } else { owed.next() };
        let Some((number, before)) = next else { return false };
        self.send_sure(now, open, place, number, before, transport);
        true
    }

    fn send_sure(
        &mut self,
        now: Instant,
        open: &mut Open,
        place: usize,
        number: u64,
        before: u64,
        transport: &mut dyn Transport,
    ) {
        self.describe(now, open, 1 << place, transport);
        if self.encode_sure(now, open, number, before) {
            transport.send_event(now, open.members[place].host, &self.buffer);
        }
    }

    /// Puts a kept event into the buffer.
    fn encode_sure(&mut self, now: Instant, open: &Open, number: u64, before: u64) -> bool {
        let Some(event) = open.held.get(number) else { return false };
        if !self.encode(now, open, event, number) {
            return false;
        }
        let channel = open.channel.name();
        self.buffer.clear();
        Frame::Sure { channel, number, before, message: &self.message }.encode(&mut self.buffer);
        true
    }

    /// Puts an event into `message`.
    fn encode(&mut self, now: Instant, open: &Open, event: Event<'_>, sequence: u64) -> bool {
        let Event { deadline, attributes, record } = event;
        let left = deadline.map(|deadline| deadline.since(now));
        let format = open.channel.format().id();
        self.message.clear();
        let message = Message::Event { format, sequence, left, attributes, record };
        // A record of a format that was checked fits, with all attributes.
        message.encode(&mut self.message).is_ok()
    }

    /// Tells the format to those of the members that have not heard it, and puts them all into
    /// `hosts`.
    fn describe(
        &mut self,
        now: Instant,
        open: &mut Open,
        members: u128,
        transport: &mut dyn Transport,
    ) {
        self.hosts.clear();
        let Open { channel, members: all, .. } = open;
        for (place, member) in all.iter_mut().enumerate() {
            if members >> place & 1 == 0 {
                continue;
            }
            self.hosts.push(member.host);
            self.message.clear();
            if member.teller.tell(channel.format(), &mut self.message) == Ok(true) {
                self.buffer.clear();
                let message = &self.message;
                Frame::Carry { channel: channel.name(), message }.encode(&mut self.buffer);
                transport.send(now, member.host, &self.buffer);
            }
        }
    }

    /// Sends an event to the chosen members; how many they are.
    fn send_event(
        &mut self,
        now: Instant,
        open: &mut Open,
        event: Event<'_>,
        (sinks, sequence): (u128, u64),
        transport: &mut dyn Transport,
    ) -> usize {
        let mut chosen = 0_u128;
        for (place, member) in open.members.iter_mut().enumerate() {
            if member.wants && sinks >> place & 1 == 1 {
                chosen |= 1 << place;
                member.state.delivered += 1;
            }
        }
        if chosen == 0 {
            return 0;
        }
        self.describe(now, open, chosen, transport);
        if !self.encode(now, open, event, sequence) {
            return 0;
        }
        let channel = open.channel.name();
        self.buffer.clear();
        Frame::Carry { channel, message: &self.message }.encode(&mut self.buffer);
        let wanting = open.members.iter().filter(|member| member.wants).count();
        if wanting == self.hosts.len() && wanting > 1 {
            transport.send_events(now, channel, &self.hosts, &self.buffer);
            open.lose(transport.without_room());
        } else {
            for host in &self.hosts {
                transport.send_event(now, *host, &self.buffer);
                open.lose(transport.without_room());
            }
        }
        self.hosts.len()
    }

    /// Sends what was held back long enough.
    pub(super) fn let_held_go(
        &mut self,
        now: Instant,
        open: &mut Open,
        transport: &mut dyn Transport,
    ) {
        while let Some(at) = open.held_back.iter().position(|held| held.at <= now) {
            let held = open.held_back.swap_remove(at);
            if held.deadline.is_some_and(|deadline| deadline < now) {
                continue;
            }
            let attributes = Attributes::parse(&held.attributes).unwrap_or_default();
            let event = Event { deadline: held.deadline, attributes, record: &held.record };
            let chosen = (held.chosen, held.sequence);
            self.send_event(now, open, event, chosen, transport);
        }
        let next = open.held_back.iter().map(|held| held.at).min();
        self.due(next);
    }
}

impl Open {
    /// These members do not get an event that was sent to them.
    fn lose(&mut self, without_room: &[HostId]) {
        for host in without_room {
            if let Some(member) = self.members.iter_mut().find(|member| member.host == *host) {
                member.lost += 1;
            }
        }
    }

    /// What the OUT filter chooses.
    fn choose(
        &mut self,
        now: Instant,
        event: Event<'_>,
        sequence: u64,
        blocks: &mut SharedBlocks,
    ) -> Choice {
        let Some(filter) = &mut self.out else { return Choice::ALL };
        let mut states = [SinkState::default(); crate::SINKS_MAX];
        for (state, member) in states.iter_mut().zip(&self.members) {
            *state = SinkState { waiting: member.owed.len() as u64, ..member.state };
        }
        let sinks = &states[..self.members.len()];
        let left = event.deadline.map(|deadline| deadline.since(now).0);
        let Event { record, attributes, .. } = event;
        let question = Question { record, attributes, left, sequence, sent: sequence, sinks };
        filter.ask(&question, blocks).ok().flatten().unwrap_or(Choice::NONE)
    }

    /// Holds an event back until a time; when there are too many, the one that would go next goes
    /// unsent. Back comes when there is something to do.
    fn hold_back(
        &mut self,
        at: Instant,
        event: Event<'_>,
        chosen: u128,
        sequence: u64,
    ) -> Option<Instant> {
        if self.held_back.len() >= HELD_BACK_MAX {
            let first = (0..self.held_back.len()).min_by_key(|place| self.held_back[*place].at);
            self.held_back.swap_remove(first?);
            self.suppressed += 1;
        }
        self.held_back.push(HeldBack {
            at,
            answers: answers(event.attributes),
            chosen,
            sequence,
            deadline: event.deadline,
            attributes: event.attributes.bytes().to_vec(),
            record: event.record.to_vec(),
        });
        Some(at)
    }

    /// Another host has answered.
    pub(super) fn suppress(&mut self, attributes: Attributes<'_>) {
        if self.held_back.is_empty() {
            return;
        }
        if let Some(answered) = answers(attributes) {
            let before = self.held_back.len();
            self.held_back.retain(|held| held.answers != Some(answered));
            self.suppressed += (before - self.held_back.len()) as u64;
        }
    }
}

fn answers(attributes: Attributes<'_>) -> Option<i64> {
    match attributes.get(ANSWERS) {
        Some(Value::Long(number)) => Some(number),
        _ => None,
    }
}

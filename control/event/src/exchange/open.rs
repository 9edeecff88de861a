//! A channel that is open here, with its members on other hosts: who comes and goes, what goes to them, and
//! what comes from them. Nothing of what comes is believed: bytes are a frame or counted, rights are
//! asked for, numbers only compared.

use selvedge_units::{Duration, Instant};

use super::MEMBERS_MAX;
use super::context::{Burst, Context};
use super::holds::Holds;
use super::member::{Member, Parted};
use super::told::{Right, What};
use super::view::View;
use crate::channel::{Channel, PublishError, Wake};
use crate::event::{ChannelId, Event};
use crate::filter::{Choice, Filter, Question, SharedBlocks, SinkState};
use crate::format::Format;
use crate::frame::Frame;
use crate::link::ReadError;
use crate::message::Message;
use crate::reliable::{Held, Owed, RESUME, Turn, WINDOW};
use crate::transmit::{Class, HostId};

/// The most members that are gone and whose events are kept.
const PARTED_MAX: usize = 64;
/// How long until a peer is asked again for the same description.
const ASK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Open {
    id: ChannelId,
    pub(super) channel: Channel,
    pub(super) members: Vec<Member>,
    /// Members that are gone and may come back.
    parted: Vec<Parted>,
    pub(super) out: Option<Filter>,
    /// Counts the events that were published here.
    sequence: u64,
    held: Held,
    holds: Holds,
    /// A record in our own format, on its way in.
    record: Vec<u8>,
}

impl Open {
    pub(super) fn new(
        now: Instant,
        id: ChannelId,
        name: &str,
        format: &Format,
        wake: Wake,
    ) -> Self {
        Self {
            id,
            channel: Channel::new(name, format.clone(), wake),
            members: Vec::new(),
            parted: Vec::new(),
            out: None,
            sequence: 0,
            held: Held::new(now),
            holds: Holds::default(),
            record: vec![0; format.size()],
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        let (events, turned_away) = self.channel.sent();
        View {
            name: self.channel.name(),
            format: self.channel.format(),
            sinks: self.channel.sinks().collect(),
            members: self.members.iter().map(Member::view).collect(),
            published: self.sequence,
            events,
            turned_away,
            suppressed: self.holds.suppressed(),
            held: self.held.len(),
            faults: [self.channel.filter_faults(), self.out.as_ref().map(Filter::faults)],
        }
    }

    pub(super) fn member(&mut self, host: HostId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.host == host)
    }

    /// That the channel is open here, with sinks or without.
    pub(super) fn here(&self, answer: bool) -> Frame<'_> {
        Frame::Here { channel: self.channel.name(), wants: self.channel.has_sinks(), answer }
    }

    /// Sends a frame to each member.
    pub(super) fn send_to_members(&self, context: &mut Context, frame: &Frame<'_>) {
        if !self.members.is_empty() {
            let hosts = self.members.iter().map(|member| member.host);
            context.outbox.send_all(hosts, Class::Control, frame, None);
        }
    }

    /// A member was heard: true if it is new. Beyond the most, none is taken.
    fn heard(&mut self, now: Instant, host: HostId, wants: bool) -> bool {
        if let Some(member) = self.member(host) {
            (member.heard, member.wants) = (now, wants);
            return false;
        }
        if self.members.len() >= MEMBERS_MAX {
            return false;
        }
        let back = self.parted.iter().position(|parted| parted.host == host);
        let back = back.map(|at| self.parted.swap_remove(at));
        self.members.push(Member::new(now, host, wants, self.channel.format(), back));
        true
    }

    /// Members that were silent for so long are gone.
    pub(super) fn part_silent(&mut self, now: Instant, lease: Duration, context: &mut Context) {
        let is_silent = |member: &Member| now.since(member.heard) > lease;
        while let Some(gone) = self.members.iter().position(is_silent) {
            self.part(now, gone, context);
        }
    }

    /// A host is gone.
    pub(super) fn lost(&mut self, now: Instant, host: HostId, context: &mut Context) {
        if let Some(gone) = self.members.iter().position(|member| member.host == host) {
            self.part(now, gone, context);
        }
    }

    /// A member is gone without a word: what it was promised is kept for a while.
    fn part(&mut self, now: Instant, at: usize, context: &mut Context) {
        let member = self.members.remove(at);
        context.note(self.id, member.host, What::Lost);
        if self.parted.len() >= PARTED_MAX {
            let mut oldest = self.parted.remove(0);
            self.let_go(&mut oldest.owed);
        }
        self.parted.push(member.part(now));
    }

    /// Forgets those that have been gone for too long.
    pub(super) fn forget_parted(&mut self, now: Instant, context: &mut Context) {
        while let Some(gone) = self.parted.iter().position(|p| now.since(p.since) > RESUME) {
            let mut parted = self.parted.swap_remove(gone);
            let undelivered = self.let_go(&mut parted.owed);
            if undelivered > 0 {
                context.note(self.id, parted.host, What::Undelivered(undelivered));
            }
        }
    }

    /// A member has left, and is owed nothing: false if it was none.
    fn left(&mut self, host: HostId) -> bool {
        if let Some(at) = self.parted.iter().position(|parted| parted.host == host) {
            let mut parted = self.parted.swap_remove(at);
            self.let_go(&mut parted.owed);
        }
        let Some(at) = self.members.iter().position(|member| member.host == host) else {
            return false;
        };
        let mut member = self.members.remove(at);
        self.let_go(&mut member.owed);
        true
    }

    /// Nobody waits for what was owed; how many events they are.
    fn let_go(&mut self, owed: &mut Owed) -> u64 {
        let mut count = 0;
        for number in owed.drain() {
            self.held.settle(number);
            count += 1;
        }
        count
    }

    /// For how many more events there is room here.
    fn room(&self) -> u64 {
        self.channel.room().map_or(WINDOW, |room| WINDOW.min(room as u64))
    }

    /// Lets sources know of room that sinks have made, soon.
    pub(super) fn freed(&mut self, now: Instant, context: &mut Context) {
        let room = self.room();
        for member in &mut self.members {
            member.taken.freed(now, room);
            context.due(member.taken.say_at());
        }
    }

    /// Whether a host has a right; that it has not is reported once.
    fn may(&mut self, host: HostId, right: Right, context: &mut Context) -> bool {
        if context.permits(host, self.channel.name(), right) {
            return true;
        }
        if self.member(host).is_some_and(|member| member.refuse(right)) {
            context.note(self.id, host, What::Refused(right));
        }
        false
    }

    /// Whether a member has not taken so many reliable events, or holds much memory.
    pub(super) fn owes(&self, most: usize) -> bool {
        let mut owed = self.members.iter().map(|member| &member.owed);
        owed.any(|owed| owed.len() >= most || self.held.is_pressed_by(owed.oldest()))
    }

    /// Publishes an event; how many sinks here and how many hosts get it.
    pub(super) fn publish(
        &mut self,
        now: Instant,
        event: Event<'_>,
        context: &mut Context,
    ) -> Result<(usize, usize), PublishError> {
        let here = self.channel.publish(now, event, &mut context.blocks)?;
        let sequence = self.sequence;
        self.sequence += 1;
        if event.deadline.is_some_and(|deadline| deadline < now) {
            return Ok((here, 0));
        }
        let Choice { sinks, hold } = self.choose(now, event, sequence, &mut context.blocks);
        if hold > Duration(0) && sinks != 0 {
            self.holds.push(now, hold, event, (sinks, sequence));
            context.due(self.holds.next_at());
            return Ok((here, 0));
        }
        Ok((here, self.send_event(now, event, (sinks, sequence), context)))
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

    /// Sends an event to the chosen members; how many they are.
    fn send_event(
        &mut self,
        now: Instant,
        event: Event<'_>,
        (sinks, sequence): (u128, u64),
        context: &mut Context,
    ) -> usize {
        let (mut chosen, mut count, mut wanting) = (0_u128, 0, 0);
        for (place, member) in self.members.iter_mut().enumerate().filter(|(_, m)| m.wants) {
            wanting += 1;
            if sinks >> place & 1 == 1 {
                chosen |= 1 << place;
                count += 1;
                member.state.delivered += 1;
            }
        }
        if chosen == 0 {
            return 0;
        }
        self.describe(chosen, context);
        let format = self.channel.format().id();
        let Some((message, outbox)) = context.event(now, format, event, sequence) else { return 0 };
        let frame = Frame::Carry { channel: self.channel.name(), message };
        let is_for_all = (count == wanting && count > 1).then_some(self.channel.shared_name());
        outbox.send_all(hosts(&self.members, chosen), Class::Event(self.id), &frame, is_for_all);
        count
    }

    /// Sends the format to those of the members that have not had it.
    fn describe(&mut self, members: u128, context: &mut Context) {
        for (place, member) in self.members.iter_mut().enumerate() {
            if members >> place & 1 == 0 {
                continue;
            }
            let description = context.description(&mut member.teller, self.channel.format());
            if let Some((message, outbox)) = description {
                let frame = Frame::Carry { channel: self.channel.name(), message };
                outbox.send(member.host, Class::Control, &frame);
            }
        }
    }

    /// Publishes an event and keeps it until each member has taken it; how many sinks here get it, and
    /// how many hosts are owed it.
    pub(super) fn promise(
        &mut self,
        now: Instant,
        event: Event<'_>,
        context: &mut Context,
    ) -> Result<(usize, usize), PublishError> {
        let here = self.channel.publish(now, event, &mut context.blocks)?;
        let sequence = self.sequence;
        self.sequence += 1;
        let Choice { sinks, .. } = self.choose(now, event, sequence, &mut context.blocks);
        let for_all = self.out.is_none();
        let wanting = self.members.iter().filter(|member| member.wants).count();
        let is_chosen = |number: usize, member: &Member| member.wants && sinks >> number & 1 == 1;
        let chosen = self.members.iter().enumerate().filter(|(n, m)| is_chosen(*n, m)).count();
        let parted = self.parted.iter().filter(|parted| for_all && parted.wants).count();
        if chosen + parted == 0 {
            return Ok((here, 0));
        }
        let number = self.held.push(event, chosen + parted);
        for parted in self.parted.iter_mut().filter(|parted| for_all && parted.wants) {
            parted.owed.push(now, number);
        }
        // Those that can have it now, and whether all wait for the same one.
        let (mut ready, mut alike) = (0_u128, None);
        for (place, member) in self.members.iter_mut().enumerate() {
            if !is_chosen(place, member) {
                continue;
            }
            member.state.delivered += 1;
            if let Some(before) = member.owed.push(now, number) {
                ready |= 1 << place;
                alike = Some(alike.map_or((before, true), |(b, same)| (b, same && b == before)));
            }
            context.due(member.owed.retry_at());
        }
        let is_most = ready.count_ones() as usize * 2 > wanting && ready.count_ones() > 1;
        if let (Some((before, true)), true, true) = (alike, is_most, chosen == wanting) {
            self.send_sure(now, ready, (number, before), true, context);
        } else {
            for place in (0..self.members.len()).filter(|place| ready >> place & 1 == 1) {
                // It was counted as sent.
                let before = self.members[place].owed.before_last();
                self.send_sure(now, 1 << place, (number, before), false, context);
            }
        }
        self.drop_oldest(context);
        Ok((here, chosen + parted))
    }

    /// Drops the oldest kept events if there are too many.
    fn drop_oldest(&mut self, context: &mut Context) {
        while let Some(oldest) = self.held.overflow() {
            for member in &mut self.members {
                if member.owed.drop_oldest(oldest) {
                    member.state.dropped += 1;
                    context.note(self.id, member.host, What::Undelivered(1));
                }
            }
            for parted in &mut self.parted {
                if parted.owed.drop_oldest(oldest) {
                    context.note(self.id, parted.host, What::Undelivered(1));
                }
            }
        }
    }

    /// Sends a kept event to members, with the number of the one before it.
    fn send_sure(
        &mut self,
        now: Instant,
        members: u128,
        (number, before): (u64, u64),
        is_for_all: bool,
        context: &mut Context,
    ) {
        self.describe(members, context);
        let Some(event) = self.held.get(number) else { return };
        let format = self.channel.format().id();
        let Some((message, outbox)) = context.event(now, format, event, number) else { return };
        let frame = Frame::Sure { channel: self.channel.name(), number, before, message };
        let channel = is_for_all.then_some(self.channel.shared_name());
        outbox.send_all(hosts(&self.members, members), Class::Reliable, &frame, channel);
    }

    /// Sends a member the next event that it is owed, if it may have it: true if so.
    pub(super) fn send_owed(
        &mut self,
        now: Instant,
        host: HostId,
        again: bool,
        context: &mut Context,
    ) -> bool {
        let place = self.members.iter().position(|member| member.host == host);
        let Some(place) = place else { return false };
        let owed = &mut self.members[place].owed;
        let next = if again { owed.next_again() } else { owed.next() };
        let Some(next) = next else { return false };
        self.send_sure(now, 1 << place, next, false, context);
        true
    }

    /// Sends again what was not acknowledged, acknowledges, sends what was held back long enough.
    pub(super) fn in_time(&mut self, now: Instant, context: &mut Context) {
        while let Some(held) = self.holds.pop(now) {
            self.send_event(now, held.event(), held.chosen, context);
        }
        context.due(self.holds.next_at());
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            let again = member.owed.expire(now);
            if again > 0 {
                let host = member.host;
                context.burst(Burst { channel: self.id, host, again: Some(again) });
            }
            context.due(member.owed.retry_at());
            if member.taken.say_at().is_some_and(|say_at| say_at <= now) {
                self.say_credit(place, false, context);
            }
            context.due(self.members[place].taken.say_at());
        }
    }

    /// A frame has come.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        from: HostId,
        frame: Frame<'_>,
        context: &mut Context,
    ) {
        match frame {
            Frame::Here { wants, answer, .. } => {
                return self.greeted(now, from, (wants, answer), context);
            }
            Frame::Left { .. } => {
                if self.left(from) {
                    context.note(self.id, from, What::Left);
                }
                return;
            }
            Frame::Control { .. } => return,
            Frame::Carry { .. }
            | Frame::Sure { .. }
            | Frame::Credit { .. }
            | Frame::Skip { .. } => {}
        }
        let Some(place) = self.members.iter().position(|member| member.host == from) else {
            context.strange += 1;
            return;
        };
        self.members[place].heard = now;
        match frame {
            Frame::Carry { message, .. } => self.carried(now, place, message, context),
            Frame::Sure { number, before, message, .. } => {
                self.sure(now, place, (number, before, message), context);
            }
            Frame::Credit { through, room, again, .. } => {
                self.credited(now, place, (through, room, again), context);
            }
            Frame::Skip { to, dropped, .. } => {
                let missed = self.members[place].taken.skip(now, to, dropped);
                if missed > 0 {
                    context.note(self.id, from, What::Missed(missed));
                }
                context.due(Some(now));
            }
            Frame::Here { .. } | Frame::Left { .. } | Frame::Control { .. } => {}
        }
    }

    /// A host has the channel open, and may want its events and an answer.
    fn greeted(
        &mut self,
        now: Instant,
        from: HostId,
        (wants, answer): (bool, bool),
        context: &mut Context,
    ) {
        let is_new = self.heard(now, from, wants);
        if is_new {
            context.note(self.id, from, What::Joined);
        }
        if wants && !self.may(from, Right::Subscribe, context) {
            self.heard(now, from, false);
        }
        if answer || is_new {
            context.send(from, &self.here(false));
        }
        if is_new {
            context.due(self.members.last().and_then(|member| member.owed.retry_at()));
        }
    }

    fn carried(&mut self, now: Instant, place: usize, bytes: &[u8], context: &mut Context) {
        let Ok(message) = Message::decode(bytes) else {
            context.malformed += 1;
            return;
        };
        let member = &mut self.members[place];
        let from = member.host;
        match message {
            Message::Describe { format, name, text } => {
                if let Err(why) = member.learner.learn(format, name, text) {
                    context.note(self.id, from, What::Unreadable(why));
                }
                member.asked = None;
            }
            Message::Ask { format } => member.teller.forget(format),
            Message::Event { .. } => {
                if self.may(from, Right::Publish, context)
                    && self.event(now, place, message, context) == Some(false)
                {
                    // A sink that blocks holds sources on its own host only.
                    self.members[place].refused += 1;
                }
            }
        }
    }

    /// Gives an event to the sinks here: whether they had room; `None` if it can't be read yet.
    fn event(
        &mut self,
        now: Instant,
        place: usize,
        message: Message<'_>,
        context: &mut Context,
    ) -> Option<bool> {
        let Message::Event { format, left, attributes, record, .. } = message else {
            return Some(true);
        };
        let member = &mut self.members[place];
        match member.learner.read(format, record, &mut self.record) {
            Ok(()) => {
                member.received += 1;
                self.holds.suppress(attributes);
                let deadline = left.map(|left| now + left);
                let event = Event { deadline, attributes, record: &self.record };
                let taken = self.channel.publish(now, event, &mut context.blocks);
                return Some(!matches!(taken, Err(PublishError::Blocked(_))));
            }
            Err(ReadError::Unknown(_)) => {
                let is_asked = |(asked, when)| asked == format && now < when + ASK_AGAIN;
                if !member.asked.is_some_and(is_asked) {
                    member.asked = Some((format, now));
                    if let Some((message, outbox)) = context.message(&Message::Ask { format }) {
                        let frame = Frame::Carry { channel: self.channel.name(), message };
                        outbox.send(member.host, Class::Control, &frame);
                    }
                }
                return None;
            }
            // Reported when the format was learnt.
            Err(ReadError::Mismatch(_)) => {}
            Err(why) => context.note(self.id, member.host, What::Unreadable(why)),
        }
        Some(true)
    }

    /// A reliable event: taken in its turn, or asked for again.
    fn sure(
        &mut self,
        now: Instant,
        place: usize,
        (number, before, bytes): (u64, u64, &[u8]),
        context: &mut Context,
    ) {
        let Ok(message @ Message::Event { .. }) = Message::decode(bytes) else {
            context.malformed += 1;
            return;
        };
        match self.members[place].taken.judge(number, before) {
            Turn::Next => {
                let from = self.members[place].host;
                // One that is not permitted counts as taken: it would be sent again for ever.
                let given = if self.may(from, Right::Publish, context) {
                    self.event(now, place, message, context)
                } else {
                    Some(true)
                };
                let room = self.room();
                match given {
                    Some(true) => self.members[place].taken.take(now, number, room),
                    Some(false) => self.members[place].taken.refuse(now),
                    None => self.say_credit(place, true, context),
                }
            }
            Turn::Again => self.say_credit(place, false, context),
            Turn::Early => {
                if self.members[place].taken.ask(now) {
                    self.say_credit(place, true, context);
                }
            }
        }
        context.due(self.members[place].taken.say_at());
    }

    /// Reports to a source up to where all was taken, and for how many there is room.
    fn say_credit(&mut self, place: usize, again: bool, context: &mut Context) {
        let room = self.room();
        let member = &mut self.members[place];
        let again = again || (member.taken.is_starved() && room > 0);
        let through = member.taken.say(room);
        let channel = self.channel.name();
        context.send(member.host, &Frame::Credit { channel, through, room, again });
    }

    /// A member has taken events and has room for more.
    fn credited(
        &mut self,
        now: Instant,
        place: usize,
        credit: (u64, u64, bool),
        context: &mut Context,
    ) {
        let Self { members, held, channel, .. } = self;
        let member = &mut members[place];
        if member.owed.credit(now, credit, |number| held.settle(number)) {
            let (to, dropped) = member.owed.skip();
            context.send(member.host, &Frame::Skip { channel: channel.name(), to, dropped });
        }
        context.burst(Burst { channel: self.id, host: member.host, again: None });
        context.due(member.owed.retry_at());
    }
}

/// The hosts of members, chosen by bits.
fn hosts(members: &[Member], chosen: u128) -> impl Iterator<Item = HostId> {
    let chosen = members.iter().enumerate().filter(move |(place, _)| chosen >> place & 1 == 1);
    chosen.map(|(_, member)| member.host)
}

//! A channel that is open here, with its members on other hosts: arrivals and departures, and the
//! traffic in both directions. Nothing from other hosts is trusted: bytes are a valid frame or
//! counted as malformed, rights are checked, numbers are only compared.

use selvedge_units::{Duration, Instant};

use super::MEMBERS_MAX;
use super::context::{Burst, Context};
use super::holds::Holds;
use super::member::{DepartedMember, Member};
use super::notice::{NoticeKind, Right};
use super::view::View;
use crate::channel::{Channel, PublishError, Wake};
use crate::event::{ChannelId, Event};
use crate::filter::{Filter, FilterInput, FilterResult, SharedBlocks, SinkState};
use crate::format::Format;
use crate::formats::ReadError;
use crate::frame::Frame;
use crate::message::Message;
use crate::reliable::{Arrival, RESUME, ReliableLog, SendWindow, WINDOW};
use crate::transmit::{Class, HostId};

/// The largest number of departed members whose events are kept.
const DEPARTED_MAX: usize = 64;
/// The time until a peer is requested again to describe the same format.
const RETRY_REQUEST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Open {
    id: ChannelId,
    pub(super) channel: Channel,
    pub(super) members: Vec<Member>,
    /// Departed members that may come back.
    departed: Vec<DepartedMember>,
    pub(super) out: Option<Filter>,
    /// The number of events that were published here.
    sequence: u64,
    held: ReliableLog,
    holds: Holds,
    /// A received record in this host's own format.
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
            departed: Vec::new(),
            out: None,
            sequence: 0,
            held: ReliableLog::new(now),
            holds: Holds::default(),
            record: vec![0; format.size()],
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        let (events, rejected) = self.channel.sent();
        View {
            name: self.channel.name(),
            format: self.channel.format(),
            sinks: self.channel.sinks().collect(),
            members: self.members.iter().map(Member::view).collect(),
            published: self.sequence,
            events,
            rejected,
            suppressed: self.holds.suppressed(),
            held: self.held.len(),
            faults: [self.channel.filter_faults(), self.out.as_ref().map(Filter::faults)],
        }
    }

    pub(super) fn member(&mut self, host: HostId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.host == host)
    }

    /// The announcement that the channel is open here, with sinks or without.
    pub(super) fn announce_channel(&self, answer: bool) -> Frame<'_> {
        Frame::Announce { channel: self.channel.name(), wants: self.channel.has_sinks(), answer }
    }

    /// Sends a frame to each member.
    pub(super) fn send_to_members(&self, context: &mut Context, frame: &Frame<'_>) {
        if !self.members.is_empty() {
            let hosts = self.members.iter().map(|member| member.host);
            context.outbox.send_all(hosts, Class::Control, frame, None);
        }
    }

    /// Notes an announcement of a member; returns true if it is new. Above the limit no member is added.
    fn handle_heartbeat(&mut self, now: Instant, host: HostId, wants: bool) -> bool {
        if let Some(member) = self.member(host) {
            (member.last_heard, member.has_sinks) = (now, wants);
            return false;
        }
        if self.members.len() >= MEMBERS_MAX {
            return false;
        }
        let back = self.departed.iter().position(|departed| departed.host == host);
        let back = back.map(|at| self.departed.swap_remove(at));
        self.members.push(Member::new(now, host, wants, self.channel.format(), back));
        true
    }

    /// Removes members that were silent for longer than `lease`.
    pub(super) fn part_silent(&mut self, now: Instant, lease: Duration, context: &mut Context) {
        let is_silent = |member: &Member| now.since(member.last_heard) > lease;
        while let Some(gone) = self.members.iter().position(is_silent) {
            self.part(now, gone, context);
        }
    }

    /// Removes a host that is gone.
    pub(super) fn lost(&mut self, now: Instant, host: HostId, context: &mut Context) {
        if let Some(gone) = self.members.iter().position(|member| member.host == host) {
            self.part(now, gone, context);
        }
    }

    /// Removes a member that departed without leaving; the events owed to it are kept for a while.
    fn part(&mut self, now: Instant, at: usize, context: &mut Context) {
        let member = self.members.remove(at);
        context.push_notice(self.id, member.host, NoticeKind::Lost);
        if self.departed.len() >= DEPARTED_MAX {
            let mut oldest = self.departed.remove(0);
            self.drop_backlog(&mut oldest.backlog);
        }
        self.departed.push(member.part(now));
    }

    /// Forgets members that have been gone for too long.
    pub(super) fn forget_parted(&mut self, now: Instant, context: &mut Context) {
        while let Some(gone) = self.departed.iter().position(|p| now.since(p.since) > RESUME) {
            let mut departed = self.departed.swap_remove(gone);
            let undelivered = self.drop_backlog(&mut departed.backlog);
            if undelivered > 0 {
                context.push_notice(self.id, departed.host, NoticeKind::Undelivered(undelivered));
            }
        }
    }

    /// Removes a member that has left, with all that is owed to it; false if it was no member.
    fn handle_leave(&mut self, host: HostId) -> bool {
        if let Some(at) = self.departed.iter().position(|departed| departed.host == host) {
            let mut departed = self.departed.swap_remove(at);
            self.drop_backlog(&mut departed.backlog);
        }
        let Some(at) = self.members.iter().position(|member| member.host == host) else {
            return false;
        };
        let mut member = self.members.remove(at);
        self.drop_backlog(&mut member.backlog);
        true
    }

    /// Drops the events that are owed to a member; returns their number.
    fn drop_backlog(&mut self, owed: &mut SendWindow) -> u64 {
        let mut count = 0;
        for number in owed.drain() {
            self.held.settle(number);
            count += 1;
        }
        count
    }

    /// The number of further events that there is room for here.
    fn room(&self) -> u64 {
        self.channel.room().map_or(WINDOW, |room| WINDOW.min(room as u64))
    }

    /// Schedules a report to sources of the room that sinks have made.
    pub(super) fn freed(&mut self, now: Instant, context: &mut Context) {
        let room = self.room();
        for member in &mut self.members {
            member.taken.freed(now, room);
            context.due(member.taken.ack_at());
        }
    }

    /// Whether a host has a right; its lack is reported once.
    fn has_right(&mut self, host: HostId, right: Right, context: &mut Context) -> bool {
        if context.permits(host, self.channel.name(), right) {
            return true;
        }
        if self.member(host).is_some_and(|member| member.refuse_for_credit(right)) {
            context.push_notice(self.id, host, NoticeKind::Refused(right));
        }
        false
    }

    /// Whether a member has not taken `most` reliable events, or makes the log hold much memory.
    pub(super) fn has_backlog(&self, most: usize) -> bool {
        let mut owed = self.members.iter().map(|member| &member.backlog);
        owed.any(|owed| owed.len() >= most || self.held.presses_log(owed.oldest()))
    }

    /// Publishes an event; returns the number of sinks here and of hosts that get it.
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
        let FilterResult { sinks, hold } = self.choose(now, event, sequence, &mut context.blocks);
        if hold > Duration(0) && sinks != 0 {
            self.holds.push(now, hold, event, (sinks, sequence));
            context.due(self.holds.next_at());
            return Ok((here, 0));
        }
        Ok((here, self.send_event(now, event, (sinks, sequence), context)))
    }

    /// Calls the OUT filter; returns its choice.
    fn choose(
        &mut self,
        now: Instant,
        event: Event<'_>,
        sequence: u64,
        blocks: &mut SharedBlocks,
    ) -> FilterResult {
        let Some(filter) = &mut self.out else { return FilterResult::ALL };
        let mut states = [SinkState::default(); crate::SINKS_MAX];
        for (state, member) in states.iter_mut().zip(&self.members) {
            *state = SinkState { waiting: member.backlog.len() as u64, ..member.state };
        }
        let sinks = &states[..self.members.len()];
        let question = FilterInput { event, now, sequence, sinks };
        filter.ask(&question, blocks).ok().flatten().unwrap_or(FilterResult::NONE)
    }

    /// Sends an event to the chosen members; returns their number.
    fn send_event(
        &mut self,
        now: Instant,
        event: Event<'_>,
        (sinks, sequence): (u128, u64),
        context: &mut Context,
    ) -> usize {
        let (mut chosen, mut count, mut wanting) = (0_u128, 0, 0);
        for (place, member) in self.members.iter_mut().enumerate().filter(|(_, m)| m.has_sinks) {
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
        let frame = Frame::Event { channel: self.channel.name(), message };
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
            let description = context.description(&mut member.format_sender, self.channel.format());
            if let Some((message, outbox)) = description {
                let frame = Frame::Event { channel: self.channel.name(), message };
                outbox.send(member.host, Class::Control, &frame);
            }
        }
    }

    /// Publishes an event and keeps it until each member has taken it. Returns the number of sinks
    /// here that get it, and of hosts to which it is owed.
    pub(super) fn publish_to_log(
        &mut self,
        now: Instant,
        event: Event<'_>,
        context: &mut Context,
    ) -> Result<(usize, usize), PublishError> {
        let here = self.channel.publish(now, event, &mut context.blocks)?;
        let sequence = self.sequence;
        self.sequence += 1;
        let FilterResult { sinks, .. } = self.choose(now, event, sequence, &mut context.blocks);
        let for_all = self.out.is_none();
        let wanting = self.members.iter().filter(|member| member.has_sinks).count();
        let is_chosen =
            |number: usize, member: &Member| member.has_sinks && sinks >> number & 1 == 1;
        let chosen = self.members.iter().enumerate().filter(|(n, m)| is_chosen(*n, m)).count();
        let departed =
            self.departed.iter().filter(|departed| for_all && departed.has_sinks).count();
        if chosen + departed == 0 {
            return Ok((here, 0));
        }
        let number = self.held.push(event, chosen + departed);
        for departed in self.departed.iter_mut().filter(|departed| for_all && departed.has_sinks) {
            departed.backlog.push(now, number);
        }
        // The members that can get it now, and whether all have the same predecessor.
        let (mut ready, mut alike) = (0_u128, None);
        for (place, member) in self.members.iter_mut().enumerate() {
            if !is_chosen(place, member) {
                continue;
            }
            member.state.delivered += 1;
            if let Some(before) = member.backlog.push(now, number) {
                ready |= 1 << place;
                alike = Some(alike.map_or((before, true), |(b, same)| (b, same && b == before)));
            }
            context.due(member.backlog.retry_at());
        }
        let is_most = ready.count_ones() as usize * 2 > wanting && ready.count_ones() > 1;
        if let (Some((before, true)), true, true) = (alike, is_most, chosen == wanting) {
            self.send_reliable_event(now, ready, (number, before), true, context);
        } else {
            for place in (0..self.members.len()).filter(|place| ready >> place & 1 == 1) {
                // The event already counts as sent.
                let before = self.members[place].backlog.previous_number();
                self.send_reliable_event(now, 1 << place, (number, before), false, context);
            }
        }
        self.drop_oldest(context);
        Ok((here, chosen + departed))
    }

    /// Drops the oldest kept events while there are too many.
    fn drop_oldest(&mut self, context: &mut Context) {
        while let Some(oldest) = self.held.overflow() {
            for member in &mut self.members {
                if member.backlog.drop_oldest(oldest) {
                    member.state.dropped += 1;
                    context.push_notice(self.id, member.host, NoticeKind::Undelivered(1));
                }
            }
            for departed in &mut self.departed {
                if departed.backlog.drop_oldest(oldest) {
                    context.push_notice(self.id, departed.host, NoticeKind::Undelivered(1));
                }
            }
        }
    }

    /// Sends a kept event to members, with the number of its predecessor.
    fn send_reliable_event(
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
        let frame = Frame::Reliable { channel: self.channel.name(), number, before, message };
        let channel = is_for_all.then_some(self.channel.shared_name());
        outbox.send_all(hosts(&self.members, members), Class::Reliable, &frame, channel);
    }

    /// Sends the next event that is owed to a member, if it may get one; returns true if so.
    pub(super) fn send_reliable(
        &mut self,
        now: Instant,
        host: HostId,
        again: bool,
        context: &mut Context,
    ) -> bool {
        let place = self.members.iter().position(|member| member.host == host);
        let Some(place) = place else { return false };
        let owed = &mut self.members[place].backlog;
        let next = if again { owed.next_retransmission() } else { owed.next() };
        let Some(next) = next else { return false };
        self.send_reliable_event(now, 1 << place, next, false, context);
        true
    }

    /// Retransmits unacknowledged events, acknowledges, and sends events that were held back long enough.
    pub(super) fn in_time(&mut self, now: Instant, context: &mut Context) {
        while let Some(held) = self.holds.pop(now) {
            self.send_event(now, held.event(), held.chosen, context);
        }
        context.due(self.holds.next_at());
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            let again = member.backlog.expire(now);
            if again > 0 {
                let host = member.host;
                context.burst(Burst { channel: self.id, host, again: Some(again) });
            }
            context.due(member.backlog.retry_at());
            if member.taken.ack_at().is_some_and(|ack_at| ack_at <= now) {
                self.send_credit(place, false, context);
            }
            context.due(self.members[place].taken.ack_at());
        }
    }

    /// Handles a frame.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        from: HostId,
        frame: Frame<'_>,
        context: &mut Context,
    ) {
        match frame {
            Frame::Announce { wants, answer, .. } => {
                return self.greeted(now, from, (wants, answer), context);
            }
            Frame::Leave { .. } => {
                if self.handle_leave(from) {
                    context.push_notice(self.id, from, NoticeKind::Left);
                }
                return;
            }
            Frame::Control { .. } => return,
            Frame::Event { .. }
            | Frame::Reliable { .. }
            | Frame::Credit { .. }
            | Frame::Skip { .. } => {}
        }
        let Some(place) = self.members.iter().position(|member| member.host == from) else {
            context.from_strangers += 1;
            return;
        };
        self.members[place].last_heard = now;
        match frame {
            Frame::Event { message, .. } => self.handle_event(now, place, message, context),
            Frame::Reliable { number, before, message, .. } => {
                self.handle_reliable(now, place, (number, before, message), context);
            }
            Frame::Credit { through, room, again, .. } => {
                self.handle_credit(now, place, (through, room, again), context);
            }
            Frame::Skip { to, dropped, .. } => {
                let missed = self.members[place].taken.skip(now, to, dropped);
                if missed > 0 {
                    context.push_notice(self.id, from, NoticeKind::Missed(missed));
                }
                context.due(Some(now));
            }
            Frame::Announce { .. } | Frame::Leave { .. } | Frame::Control { .. } => {}
        }
    }

    /// Handles an announcement: the host has the channel open, and may want its events and an answer.
    fn greeted(
        &mut self,
        now: Instant,
        from: HostId,
        (wants, answer): (bool, bool),
        context: &mut Context,
    ) {
        let is_new = self.handle_heartbeat(now, from, wants);
        if is_new {
            context.push_notice(self.id, from, NoticeKind::Joined);
        }
        if wants && !self.has_right(from, Right::Subscribe, context) {
            self.handle_heartbeat(now, from, false);
        }
        if answer || is_new {
            context.send(from, &self.announce_channel(false));
        }
        if is_new {
            context.due(self.members.last().and_then(|member| member.backlog.retry_at()));
        }
    }

    fn handle_event(&mut self, now: Instant, place: usize, bytes: &[u8], context: &mut Context) {
        let Ok(message) = Message::decode(bytes) else {
            context.malformed += 1;
            return;
        };
        let member = &mut self.members[place];
        let from = member.host;
        match message {
            Message::Describe { format, name, text } => {
                if let Err(why) = member.format_receiver.accept_description(format, name, text) {
                    context.push_notice(self.id, from, NoticeKind::Unreadable(why));
                }
                member.requested = None;
            }
            Message::Request { format } => member.format_sender.forget_format(format),
            Message::Event { .. } => {
                if self.has_right(from, Right::Publish, context)
                    && self.event(now, place, message, context) == Some(false)
                {
                    // A blocking sink delays only sources on its own host.
                    self.members[place].refused += 1;
                }
            }
        }
    }

    /// Gives an event to the sinks here; returns whether they had room; `None` if it can't be read yet.
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
        match member.format_receiver.read(format, record, &mut self.record) {
            Ok(()) => {
                member.received += 1;
                self.holds.suppress(attributes);
                let deadline = left.map(|left| now + left);
                let event = Event { deadline, attributes, record: &self.record };
                let taken = self.channel.publish(now, event, &mut context.blocks);
                return Some(!matches!(taken, Err(PublishError::Blocked(_))));
            }
            Err(ReadError::Unknown(_)) => {
                let is_asked = |(asked, when)| asked == format && now < when + RETRY_REQUEST;
                if !member.requested.is_some_and(is_asked) {
                    member.requested = Some((format, now));
                    if let Some((message, outbox)) = context.message(&Message::Request { format }) {
                        let frame = Frame::Event { channel: self.channel.name(), message };
                        outbox.send(member.host, Class::Control, &frame);
                    }
                }
                return None;
            }
            // Reported when the format was described.
            Err(ReadError::Mismatch(_)) => {}
            Err(why) => context.push_notice(self.id, member.host, NoticeKind::Unreadable(why)),
        }
        Some(true)
    }

    /// Handles a reliable event: it is taken in its turn, or requested again.
    fn handle_reliable(
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
        match self.members[place].taken.classify(number, before) {
            Arrival::Next => {
                let from = self.members[place].host;
                // An event without the right counts as taken; otherwise it would be retransmitted for ever.
                let given = if self.has_right(from, Right::Publish, context) {
                    self.event(now, place, message, context)
                } else {
                    Some(true)
                };
                let room = self.room();
                match given {
                    Some(true) => self.members[place].taken.take(now, number, room),
                    Some(false) => self.members[place].taken.refuse_for_credit(now),
                    None => self.send_credit(place, true, context),
                }
            }
            Arrival::Repeat => self.send_credit(place, false, context),
            Arrival::Early => {
                if self.members[place].taken.ask(now) {
                    self.send_credit(place, true, context);
                }
            }
        }
        context.due(self.members[place].taken.ack_at());
    }

    /// Reports to a source the last number that was taken, and the room for more.
    fn send_credit(&mut self, place: usize, again: bool, context: &mut Context) {
        let room = self.room();
        let member = &mut self.members[place];
        let again = again || (member.taken.lacks_credit() && room > 0);
        let through = member.taken.acknowledge(room);
        let channel = self.channel.name();
        context.send(member.host, &Frame::Credit { channel, through, room, again });
    }

    /// Handles a member's report that it has taken events and has room for more.
    fn handle_credit(
        &mut self,
        now: Instant,
        place: usize,
        credit: (u64, u64, bool),
        context: &mut Context,
    ) {
        let Self { members, held, channel, .. } = self;
        let member = &mut members[place];
        if member.backlog.credit(now, credit, |number| held.settle(number)) {
            let (to, dropped) = member.backlog.skip();
            context.send(member.host, &Frame::Skip { channel: channel.name(), to, dropped });
        }
        context.burst(Burst { channel: self.id, host: member.host, again: None });
        context.due(member.backlog.retry_at());
    }
}

/// The hosts of members, chosen by bits.
fn hosts(members: &[Member], chosen: u128) -> impl Iterator<Item = HostId> {
    let chosen = members.iter().enumerate().filter(move |(place, _)| chosen >> place & 1 == 1);
    chosen.map(|(_, member)| member.host)
}

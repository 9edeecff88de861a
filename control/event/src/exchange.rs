//! The channels of one host and their members on others: found by name, with no server. Who opens a
//! channel announces it, and those who have it open answer; each says every [`BEAT`] that it is
//! there, and who was not heard for [`LEASE`] is gone. Events go straight from their source to the
//! hosts with sinks, each format described before its first event.
//!
//! Two filters stand on a channel's way, after Q-Fabric's Figure 27: OUT chooses among the other
//! hosts, IN - the channel's own - among the sinks here.

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge_units::{Instant, Span};

use crate::channel::{Channel, Event, PublishError, SinkId, SubscribeError, Subscription, Wake};
use crate::filter::{Filter, Question, SINKS_MAX, SharedBlocks, SinkState};
use crate::format::{Format, FormatId};
use crate::frame::Frame;
use crate::link::{Learner, ReadError, Teller};
use crate::message::Message;
use crate::transport::{HostId, Transport};

/// How often a member says that it is there.
pub const BEAT: Span = Span::from_millis(300);
/// After how long a silent member is gone.
pub const LEASE: Span = Span::from_secs(1);
/// The most members of a channel on other hosts; filters see all of them.
pub const MEMBERS_MAX: usize = SINKS_MAX;
/// The most channels of a host.
pub(crate) const CHANNELS_MAX: usize = 1024;
/// The longest name of a channel, in bytes.
pub(crate) const CHANNEL_NAME_MAX: usize = 64;
/// The most notices that wait; older ones are dropped.
const NOTICES_MAX: usize = 1024;

/// A channel that is open on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelId(usize);

/// Something that a host is told of a channel's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The channel.
    pub channel: ChannelId,
    /// The other host.
    pub host: HostId,
    /// What happened.
    pub what: What,
}

/// What happened to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It has opened the channel.
    Joined,
    /// It has left.
    Left,
    /// It was not heard for [`LEASE`]: it has crashed, or the network is cut.
    Lost,
    /// What it sends can't be read, and why.
    Unreadable(ReadError),
}

/// Why a channel can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Its name is empty or long.
    #[error("a channel's name has 1 to {CHANNEL_NAME_MAX} bytes, this one has {0}")]
    Name(usize),
    /// It is open with another format.
    #[error("\"{name}\" is open here with format {has}, not {wanted}; open it with the same")]
    Format {
        /// Its name.
        name: String,
        /// Its format.
        has: FormatId,
        /// The one that was asked for.
        wanted: FormatId,
    },
    /// Too many.
    #[error("{CHANNELS_MAX} channels are open on this host, which is the most; close some")]
    Full,
}

#[derive(Debug)]
struct Member {
    host: HostId,
    heard: Instant,
    /// Whether it has sinks.
    wants: bool,
    teller: Teller,
    learner: Learner,
    /// What it was asked to describe, so that it is asked once.
    asked: Option<FormatId>,
    state: SinkState,
}

#[derive(Debug)]
struct Open {
    channel: Channel,
    members: Vec<Member>,
    out: Option<Filter>,
    sequence: u64,
    /// A record in our own format, on its way in.
    record: Vec<u8>,
}

/// One host's channels.
#[derive(Debug)]
pub struct Exchange {
    channels: Vec<Option<Open>>,
    blocks: SharedBlocks,
    notices: VecDeque<Notice>,
    next_beat: Instant,
    buffer: Vec<u8>,
    message: Vec<u8>,
    incoming: Vec<u8>,
    malformed: u64,
}

impl Exchange {
    /// Without channels; `now` is when it begins.
    pub fn new(now: Instant) -> Self {
        Self {
            channels: Vec::new(),
            blocks: SharedBlocks::default(),
            notices: VecDeque::new(),
            next_beat: now,
            buffer: Vec::new(),
            message: Vec::new(),
            incoming: Vec::new(),
            malformed: 0,
        }
    }

    /// Opens a channel, or creates it: there is no difference. Others on the network hear of it.
    ///
    /// # Errors
    /// If it can't be; nothing is changed then.
    pub fn open(
        &mut self,
        now: Instant,
        name: &str,
        format: &Format,
        wake: Wake,
        transport: &mut dyn Transport,
    ) -> Result<ChannelId, OpenError> {
        if !(1..=CHANNEL_NAME_MAX).contains(&name.len()) {
            return Err(OpenError::Name(name.len()));
        }
        if let Some(at) = self.named(name) {
            let has = self.channels[at].as_ref().map(|open| open.channel.format().id());
            let wanted = format.id();
            return match has {
                Some(has) if has != wanted => {
                    Err(OpenError::Format { name: name.to_owned(), has, wanted })
                }
                _ => Ok(ChannelId(at)),
            };
        }
        let at = match self.channels.iter().position(Option::is_none) {
            Some(at) => at,
            None if self.channels.len() < CHANNELS_MAX => {
                self.channels.push(None);
                self.channels.len() - 1
            }
            None => return Err(OpenError::Full),
        };
        self.channels[at] = Some(Open {
            channel: Channel::new(name, format.clone(), wake),
            members: Vec::new(),
            out: None,
            sequence: 0,
            record: vec![0; format.size()],
        });
        self.put(&Frame::Here { channel: name, wants: false, answer: true });
        transport.announce(now, &self.buffer);
        Ok(ChannelId(at))
    }

    /// Leaves a channel and tells its members; its sinks are gone with it.
    pub fn leave(&mut self, now: Instant, channel: ChannelId, transport: &mut dyn Transport) {
        if let Some(open) = self.channels.get_mut(channel.0).and_then(Option::take) {
            self.put(&Frame::Left { channel: open.channel.name() });
            for member in &open.members {
                transport.send(now, member.host, &self.buffer);
            }
        }
    }

    /// This host's end of a channel: to subscribe, to take events, to set the IN filter.
    pub fn channel_mut(&mut self, channel: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(channel.0)?.as_mut().map(|open| &mut open.channel)
    }

    /// The memory that filters share.
    pub fn blocks_mut(&mut self) -> &mut SharedBlocks {
        &mut self.blocks
    }

    /// Subscribes a sink and tells the other hosts at once that events are wanted here.
    ///
    /// # Errors
    /// If the channel has no room for one, or is not open.
    pub fn subscribe(
        &mut self,
        now: Instant,
        channel: ChannelId,
        wish: Subscription,
        transport: &mut dyn Transport,
    ) -> Result<SinkId, SubscribeError> {
        let slot = self.channels.get_mut(channel.0);
        let mut open = slot.and_then(Option::take).ok_or(SubscribeError::Closed)?;
        let done = open.channel.subscribe(wish);
        self.here(&open, false);
        for member in &open.members {
            transport.send(now, member.host, &self.buffer);
        }
        self.channels[channel.0] = Some(open);
        done
    }

    /// Sets or removes the filter that chooses among other hosts: its `channel.sink` are the members
    /// in the order in which they came.
    pub fn set_out_filter(&mut self, channel: ChannelId, filter: Option<Filter>) {
        if let Some(open) = self.channels.get_mut(channel.0).and_then(Option::as_mut) {
            open.out = filter;
        }
    }

    /// The other hosts that have a channel open.
    pub fn members(&self, channel: ChannelId) -> impl Iterator<Item = HostId> {
        let open = self.channels.get(channel.0).and_then(Option::as_ref);
        open.into_iter().flat_map(|open| open.members.iter().map(|member| member.host))
    }

    /// The next notice of a member.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// How many messages were none, or came from hosts that are no members.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Sends an event to the sinks here and to the hosts that the OUT filter chooses; the number of
    /// sinks here and of hosts. An event whose deadline has passed goes to no other host.
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
        let Some(open) = self.channels.get_mut(channel.0).and_then(Option::as_mut) else {
            return Ok((0, 0));
        };
        let here = open.channel.publish(now, event, &mut self.blocks)?;
        let sequence = open.sequence;
        open.sequence += 1;
        let left = event.deadline.map(|deadline| deadline.since(now));
        if event.deadline.is_some_and(|deadline| deadline < now) {
            return Ok((here, 0));
        }
        let chosen = open.choose(event, left, sequence, &mut self.blocks);
        let format = open.channel.format();
        let Event { attributes, record, .. } = event;
        let message = Message::Event { format: format.id(), sequence, left, attributes, record };
        self.message.clear();
        if message.encode(&mut self.message).is_err() {
            // A record of a format that was checked fits, with all attributes.
            return Ok((here, 0));
        }
        let name = open.channel.name();
        let carried = Frame::Carry { channel: name, message: &self.message };
        self.buffer.clear();
        carried.encode(&mut self.buffer);
        let (mut hosts, mut first) = (0, Vec::new());
        for (number, member) in open.members.iter_mut().enumerate() {
            if !member.wants || chosen >> number & 1 == 0 {
                continue;
            }
            first.clear();
            if member.teller.tell(format, &mut first) == Ok(true) {
                let mut described = Vec::new();
                Frame::Carry { channel: name, message: &first }.encode(&mut described);
                transport.send(now, member.host, &described);
            }
            transport.send(now, member.host, &self.buffer);
            member.state.delivered += 1;
            hosts += 1;
        }
        Ok((here, hosts))
    }

    /// Takes what has come, says that we are here, and notices who is not.
    pub fn handle(&mut self, now: Instant, transport: &mut dyn Transport) {
        let mut bytes = std::mem::take(&mut self.incoming);
        while let Some((from, came)) = transport.poll(now) {
            bytes.clear();
            bytes.extend_from_slice(came);
            self.receive(now, from, &bytes, transport);
        }
        self.incoming = bytes;
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            for at in 0..self.channels.len() {
                let Some(open) = self.channels[at].take() else { continue };
                self.here(&open, false);
                transport.announce(now, &self.buffer);
                self.channels[at] = Some(open);
            }
        }
        for (at, open) in self.channels.iter_mut().enumerate() {
            let Some(open) = open else { continue };
            let notices = &mut self.notices;
            open.members.retain(|member| {
                let is_lost = now.since(member.heard) > LEASE;
                if is_lost {
                    note(notices, at, member.host, What::Lost);
                }
                !is_lost
            });
        }
    }

    /// When [`handle`](Self::handle) has to be called if nothing comes before; later is noticed by
    /// others as silence.
    pub fn poll_at(&self) -> Instant {
        self.next_beat
    }

    fn named(&self, name: &str) -> Option<usize> {
        let is = |open: &Option<Open>| open.as_ref().is_some_and(|one| one.channel.name() == name);
        self.channels.iter().position(is)
    }

    fn put(&mut self, frame: &Frame<'_>) {
        self.buffer.clear();
        frame.encode(&mut self.buffer);
    }

    fn here(&mut self, open: &Open, answer: bool) {
        let wants = open.channel.has_sinks();
        self.put(&Frame::Here { channel: open.channel.name(), wants, answer });
    }

    fn receive(&mut self, now: Instant, from: HostId, bytes: &[u8], transport: &mut dyn Transport) {
        let Some(frame) = Frame::decode(bytes) else {
            self.malformed += 1;
            return;
        };
        // A channel that is not open here is no affair of ours.
        let Some(at) = self.named(frame.channel()) else { return };
        let Some(mut open) = self.channels[at].take() else { return };
        match frame {
            Frame::Here { wants, answer, .. } => {
                let is_new = open.heard(now, from, wants);
                if is_new {
                    note(&mut self.notices, at, from, What::Joined);
                }
                if answer || is_new {
                    self.here(&open, false);
                    transport.send(now, from, &self.buffer);
                }
            }
            Frame::Left { .. } => {
                let before = open.members.len();
                open.members.retain(|member| member.host != from);
                if open.members.len() < before {
                    note(&mut self.notices, at, from, What::Left);
                }
            }
            Frame::Carry { message, .. } => {
                self.carried(now, at, &mut open, from, message, transport);
            }
        }
        self.channels[at] = Some(open);
    }

    fn carried(
        &mut self,
        now: Instant,
        at: usize,
        open: &mut Open,
        from: HostId,
        bytes: &[u8],
        transport: &mut dyn Transport,
    ) {
        let member = open.members.iter_mut().find(|member| member.host == from);
        let (Some(member), Ok(message)) = (member, Message::decode(bytes)) else {
            self.malformed += 1;
            return;
        };
        member.heard = now;
        match message {
            Message::Describe { format, name, text } => {
                if let Err(why) = member.learner.learn(format, name, text) {
                    note(&mut self.notices, at, from, What::Unreadable(why));
                }
                member.asked = None;
            }
            Message::Ask { format } => member.teller.forget(format),
            Message::Event { format, left, attributes, record, .. } => {
                match member.learner.read(format, record, &mut open.record) {
                    Ok(()) => {
                        let deadline = left.map(|left| now + left);
                        let event = Event { deadline, attributes, record: &open.record };
                        // A sink that blocks holds sources on its own host only.
                        let _ = open.channel.publish(now, event, &mut self.blocks);
                    }
                    Err(ReadError::Unknown(_)) if member.asked != Some(format) => {
                        member.asked = Some(format);
                        self.message.clear();
                        let ask = Message::Ask { format };
                        if ask.encode(&mut self.message).is_ok() {
                            self.buffer.clear();
                            let channel = open.channel.name();
                            Frame::Carry { channel, message: &self.message }
                                .encode(&mut self.buffer);
                            transport.send(now, from, &self.buffer);
                        }
                    }
                    // Told when the format was learnt.
                    Err(ReadError::Unknown(_) | ReadError::Mismatch(_)) => {}
                    Err(why) => note(&mut self.notices, at, from, What::Unreadable(why)),
                }
            }
        }
    }
}

impl Open {
    /// A member was heard: true if it is new. Beyond the most, none is taken.
    fn heard(&mut self, now: Instant, host: HostId, wants: bool) -> bool {
        if let Some(member) = self.members.iter_mut().find(|member| member.host == host) {
            (member.heard, member.wants) = (now, wants);
            return false;
        }
        if self.members.len() >= MEMBERS_MAX {
            return false;
        }
        let learner = Learner::new(Arc::new(self.channel.format().clone()));
        let (teller, state) = (Teller::new(), SinkState::default());
        self.members.push(Member { host, heard: now, wants, teller, learner, asked: None, state });
        true
    }

    /// The members that the OUT filter chooses, as bits.
    fn choose(
        &mut self,
        event: Event<'_>,
        left: Option<Span>,
        sequence: u64,
        blocks: &mut SharedBlocks,
    ) -> u64 {
        let Some(filter) = &mut self.out else { return u64::MAX };
        let mut states = [SinkState::default(); MEMBERS_MAX];
        for (state, member) in states.iter_mut().zip(&self.members) {
            *state = member.state;
        }
        let sinks = &states[..self.members.len()];
        let left = left.map(|span| span.0);
        let Event { record, attributes, .. } = event;
        let question = Question { record, attributes, left, sequence, sent: sequence, sinks };
        filter.ask(&question, blocks).ok().flatten().unwrap_or(0)
    }
}

fn note(notices: &mut VecDeque<Notice>, channel: usize, host: HostId, what: What) {
    if notices.len() >= NOTICES_MAX {
        notices.pop_front();
    }
    notices.push_back(Notice { channel: ChannelId(channel), host, what });
}

//! The channels of one host and their members on others: found by name, with no server. Who opens a
//! channel announces it, and those who have it open answer. Where the transport notices who is gone
//! it is the failure detector, and members only say from time to time that they are there, lest a lost
//! message be believed for ever; elsewhere each says it every [`HEARTBEAT`], and who was not heard for
//! [`LEASE`] is gone. Events go straight from their source to the hosts with sinks, each format
//! described before its first event; reliable ones are kept until each member has taken them.
//!
//! Without I/O: what comes from the transport and the time go in by `handle_*`, and what the transport is
//! to send comes out of [`Exchange::poll_transmit`], as in the crate `quinn-proto`.
//!
//! Two filters stand on a channel's way, after Q-Fabric's Figure 27: OUT chooses among the other
//! hosts, IN - the channel's own - among the sinks here.

mod context;
mod holds;
mod member;
mod notice;
mod open;
mod view;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use selvedge_units::{Duration, Instant};

use crate::channel::{Channel, PublishError, SinkCounts, SubscribeError, Subscription, Wake};
use crate::event::{ChannelId, Delivery, Event, SinkId};
use crate::filter::{Filter, SINKS_MAX, SharedBlocks};
use crate::format::Format;
use crate::frame::Frame;
use crate::reliable::HELD_MAX;
use crate::transmit::{HostId, Transmit, TransportEvent};
use context::Context;
use open::Open;

pub use holds::{ANSWERS, HOLD_MAX};
pub use notice::{Notice, NoticeKind, OpenError, Permit, Right};
pub use view::{MemberView, View};

/// How often a member says that it is there.
pub const HEARTBEAT: Duration = Duration::from_millis(300);
/// How often it does where the transport notices who is gone.
pub const REFRESH: Duration = Duration::from_secs(3);
/// After how long a silent member is gone.
pub const LEASE: Duration = Duration::from_secs(1);
/// The most members of a channel on other hosts; filters see all of them.
pub const MEMBERS_MAX: usize = SINKS_MAX;
/// The most channels of a host.
pub(crate) const CHANNELS_MAX: usize = 1024;
/// The longest name of a channel, in bytes.
pub const CHANNEL_NAME_MAX: usize = 64;
/// The most messages of managers that wait, and of one host among them.
const CONTROL_MAX: usize = 256;
const CONTROL_OF_ONE_MAX: usize = 16;

/// Who notices that another host is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureDetector {
    /// The exchange: a member that was not heard for [`LEASE`].
    #[default]
    Silence,
    /// The transport, within [`LEASE`], which reports it by [`Exchange::handle_news`]. Silence means
    /// nothing then, and beats only repair what was lost.
    Transport,
}

/// Whether events of a channel are wanted here from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The channel's name.
    pub channel: Arc<str>,
    /// Whether it has sinks here.
    pub wants: bool,
}

/// One host's channels.
///
/// After each call [`poll_interest`](Self::poll_interest) and [`poll_transmit`](Self::poll_transmit) are
/// called until there is no more: what waits there is not bounded.
#[derive(Default)]
pub struct Exchange {
    /// Boxed, since they are large and their places used again.
    channels: Vec<Option<Box<Open>>>,
    /// Where each is, by its name.
    names: HashMap<Box<str>, usize>,
    context: Context,
    interests: VecDeque<Interest>,
    controls: VecDeque<(HostId, Vec<u8>)>,
    next_heartbeat: Instant,
    detector: FailureDetector,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Without channels; `now` is when it begins.
    pub fn new(now: Instant) -> Self {
        Self { next_heartbeat: now, ..Self::default() }
    }

    /// Says who notices that another host is gone.
    pub fn set_failure_detector(&mut self, detector: FailureDetector) {
        self.detector = detector;
    }

    /// Asks before another host sends or gets events.
    pub fn set_permit(&mut self, permit: Permit) {
        self.context.permit = Some(permit);
    }

    /// Opens a channel, or creates it: there is no difference. It is announced to the other hosts.
    ///
    /// # Errors
    /// If it can't be; nothing is changed then.
    pub fn open(
        &mut self,
        now: Instant,
        name: &str,
        format: &Format,
        wake: Wake,
    ) -> Result<ChannelId, OpenError> {
        if !(1..=CHANNEL_NAME_MAX).contains(&name.len()) {
            return Err(OpenError::Name(name.len()));
        }
        if let Some(channel) = self.find(name) {
            let has = self.get(channel).map(|open| open.channel.format().id());
            let wanted = format.id();
            return match has {
                Some(has) if has != wanted => {
                    Err(OpenError::Format { name: name.to_owned(), has, wanted })
                }
                _ => Ok(channel),
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
        if self.names.is_empty() {
            // While no channel was open, no beat was due.
            self.next_heartbeat = self.next_heartbeat.max(now);
        }
        self.names.insert(name.into(), at);
        let open = Box::new(Open::new(now, ChannelId(at), name, format, wake));
        self.context.outbox.broadcast(&open.announce_channel(true));
        self.channels[at] = Some(open);
        Ok(ChannelId(at))
    }

    /// Leaves a channel and notifies its members; its sinks are gone with it.
    pub fn leave(&mut self, channel: ChannelId) {
        if let Some(open) = self.channels.get_mut(channel.0).and_then(Option::take) {
            let name = open.channel.shared_name();
            self.names.remove(&**name);
            self.interests.push_back(Interest { channel: Arc::clone(name), wants: false });
            open.send_to_members(&mut self.context, &Frame::Leave { channel: name });
        }
    }

    fn get(&self, channel: ChannelId) -> Option<&Open> {
        self.channels.get(channel.0)?.as_deref()
    }

    /// A channel, and beside it what all channels share.
    fn get_mut(&mut self, channel: ChannelId) -> Option<(&mut Open, &mut Context)> {
        let open = self.channels.get_mut(channel.0)?.as_deref_mut()?;
        Some((open, &mut self.context))
    }

    /// All channels, one after the other, and beside them what they share.
    fn each(&mut self, mut action: impl FnMut(&mut Open, &mut Context)) {
        for open in self.channels.iter_mut().flatten() {
            action(open, &mut self.context);
        }
    }

    /// This host's end of a channel: to take events, to set the IN filter.
    pub fn channel_mut(&mut self, channel: ChannelId) -> Option<&mut Channel> {
        self.get_mut(channel).map(|(open, _)| &mut open.channel)
    }

    /// The memory that filters share.
    pub fn blocks_mut(&mut self) -> &mut SharedBlocks {
        &mut self.context.blocks
    }

    /// Subscribes a sink and notifies the other hosts at once that events are wanted here.
    ///
    /// # Errors
    /// If the channel has no room for one, or is not open.
    pub fn subscribe(
        &mut self,
        channel: ChannelId,
        wish: Subscription,
    ) -> Result<SinkId, SubscribeError> {
        let (open, _) = self.get_mut(channel).ok_or(SubscribeError::Closed)?;
        let did_want = open.channel.has_sinks();
        let sink = open.channel.subscribe(wish)?;
        if !did_want {
            self.report_interest(channel);
        }
        Ok(sink)
    }

    /// Removes a sink; what became of its events comes back. With the last one the other hosts are
    /// notified that no events are wanted here.
    pub fn unsubscribe(&mut self, channel: ChannelId, sink: SinkId) -> Option<SinkCounts> {
        let (open, _) = self.get_mut(channel)?;
        let sink_counts = open.channel.leave(sink)?;
        if !open.channel.has_sinks() {
            self.report_interest(channel);
        }
        Some(sink_counts)
    }

    /// Reports whether events are wanted here: to the transport, and to the members.
    fn report_interest(&mut self, channel: ChannelId) {
        let Some(open) = self.channels.get(channel.0).and_then(Option::as_deref) else { return };
        let name = Arc::clone(open.channel.shared_name());
        self.interests.push_back(Interest { channel: name, wants: open.channel.has_sinks() });
        open.send_to_members(&mut self.context, &open.announce_channel(false));
    }

    /// Sets or removes the filter that chooses among other hosts: its `channel.sink` are the members
    /// in the order in which they came.
    pub fn set_out_filter(&mut self, channel: ChannelId, filter: Option<Filter>) {
        if let Some((open, _)) = self.get_mut(channel) {
            open.out = filter;
        }
    }

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
    ) -> Result<(usize, usize), PublishError> {
        let Some((open, context)) = self.get_mut(channel) else { return Ok((0, 0)) };
        open.publish(now, event, context)
    }

    /// Sends an event as [`publish`](Self::publish) does, and keeps it until each member that it is for
    /// has taken it, or [`RESUME`](crate::RESUME) after it was lost. What is kept is bounded, by
    /// [`HELD_MAX`](crate::HELD_MAX) events of a channel: beyond, the oldest is dropped for those who
    /// have not taken it, which is reported to both ends. A deadline counts all the same; an OUT filter's
    /// `hold` does not. Back comes the number of sinks here and of hosts that are owed it.
    ///
    /// # Errors
    /// If the sinks here can't have it; then nobody gets it.
    pub fn publish_reliably(
        &mut self,
        now: Instant,
        channel: ChannelId,
        event: Event<'_>,
    ) -> Result<(usize, usize), PublishError> {
        let Some((open, context)) = self.get_mut(channel) else { return Ok((0, 0)) };
        open.publish_to_log(now, event, context)
    }

    /// Sends an event as [`publish_reliably`](Self::publish_reliably) does, at the pace of all: not while
    /// [a member is behind](Self::is_behind). So nothing is dropped for those that are there.
    ///
    /// # Errors
    /// [`PublishError::Behind`], or if the sinks here can't have it; then nobody gets it.
    pub fn publish_paced(
        &mut self,
        now: Instant,
        channel: ChannelId,
        event: Event<'_>,
    ) -> Result<(usize, usize), PublishError> {
        if self.lags(channel) {
            return Err(PublishError::Behind);
        }
        self.publish_reliably(now, channel, event)
    }

    /// Whether a member has not taken half of the reliable events that can be kept for it. One that is lost
    /// does not count: it may never come back.
    pub fn lags(&self, channel: ChannelId) -> bool {
        self.get(channel).is_some_and(|open| open.has_backlog(HELD_MAX / 2))
    }

    /// Whether no member [is behind](Self::is_behind), nor will be after a few events more.
    pub fn has_drained(&self, channel: ChannelId) -> bool {
        !self.get(channel).is_some_and(|open| open.has_backlog(HELD_MAX / 4))
    }

    /// Sends a message to another host's manager: it may be lost. At most 72 KiB.
    pub fn send_control(&mut self, to: HostId, bytes: &[u8]) {
        self.context.send(to, &Frame::Control { bytes });
    }

    /// As [`send_control`](Self::send_control), to all that can be reached.
    pub fn broadcast_control(&mut self, bytes: &[u8]) {
        self.context.outbox.broadcast(&Frame::Control { bytes });
    }

    /// A frame has come from a host.
    pub fn handle_frame(&mut self, now: Instant, from: HostId, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else {
            self.context.malformed += 1;
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
        let Some(channel) = frame.channel().and_then(|channel| self.find(channel)) else { return };
        if let Some((open, context)) = self.get_mut(channel) {
            open.receive(now, from, frame, context);
        }
    }

    /// The transport has noticed something of a host: one that can be reached gets what is open here.
    pub fn handle_news(&mut self, now: Instant, news: TransportEvent) {
        self.each(|open, context| match news {
            TransportEvent::Up(host) => context.send(host, &open.announce_channel(true)),
            TransportEvent::Down(host) => open.lost(now, host, context),
        });
    }

    /// The transport had no room for an event to a host: it is lost.
    pub fn handle_refused(&mut self, channel: ChannelId, host: HostId) {
        let open = self.get_mut(channel).map(|(open, _)| open);
        if let Some(member) = open.and_then(|open| open.member(host)) {
            member.lost += 1;
        }
    }

    /// Does what is due: announces what is open here, and notices who is gone; sends again what was not
    /// acknowledged, acknowledges, and sends what was held back.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now >= self.next_heartbeat {
            let detector = self.detector;
            let is_silence = detector == FailureDetector::Silence;
            self.next_heartbeat = now + if is_silence { HEARTBEAT } else { REFRESH };
            self.each(|open, context| {
                context.outbox.broadcast(&open.announce_channel(false));
                if is_silence {
                    open.part_silent(now, LEASE, context);
                }
                open.forget_parted(now, context);
            });
        }
        if self.context.timer.is_some_and(|timer| now >= timer) {
            self.context.timer = None;
            self.each(|open, context| open.in_time(now, context));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called; later is noticed by others as
    /// silence. `None` while no channel is open.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.context.timer;
        let next = timer.map_or(self.next_heartbeat, |timer| timer.min(self.next_heartbeat));
        (!self.names.is_empty()).then_some(next)
    }

    /// The next change of what is wanted here; to be asked for before [`poll_transmit`](Self::poll_transmit),
    /// so that the transport is ready when the other hosts are notified.
    pub fn poll_interest(&mut self) -> Option<Interest> {
        self.interests.pop_front()
    }

    /// The next frame for the transport. What it does not send is lost.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        while self.context.outbox.is_empty() {
            self.next_of_burst(now)?;
        }
        self.context.outbox.pop()
    }

    /// Encodes the next event that a member is owed; `None` if no member may have one now.
    fn next_of_burst(&mut self, now: Instant) -> Option<()> {
        loop {
            let burst = self.context.bursts.front_mut()?;
            let (channel, host, again) = (burst.channel, burst.host, burst.again);
            burst.again = again.map(|left| left.saturating_sub(1));
            let sent = again != Some(0)
                && self.get_mut(channel).is_some_and(|(open, context)| {
                    open.send_reliable(now, host, again.is_some(), context)
                });
            if sent {
                return Some(());
            }
            self.context.bursts.pop_front();
        }
    }

    /// The next event of a sink. Sources that wait for room are notified of it, soon.
    pub fn poll_event(
        &mut self,
        now: Instant,
        channel: ChannelId,
        sink: SinkId,
    ) -> Option<Delivery<'_>> {
        let (open, context) = self.get_mut(channel)?;
        let taken = open.channel.take(now, Some(sink))?;
        open.freed(now, context);
        Some(open.channel.delivery(taken))
    }

    /// The next notice of a member.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.context.notices.pop_front()
    }

    /// The next message of another host's manager.
    pub fn poll_control(&mut self) -> Option<(HostId, Vec<u8>)> {
        self.controls.pop_front()
    }

    /// The other hosts that have a channel open.
    pub fn members(&self, channel: ChannelId) -> impl Iterator<Item = HostId> {
        let open = self.get(channel);
        open.into_iter().flat_map(|open| open.members.iter().map(|member| member.host))
    }

    /// The channels that are open here.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> {
        let places = self.channels.iter().enumerate();
        places.filter(|(_, open)| open.is_some()).map(|(at, _)| ChannelId(at))
    }

    /// The channel of a name, if it is open here.
    pub fn find(&self, name: &str) -> Option<ChannelId> {
        self.names.get(name).copied().map(ChannelId)
    }

    /// What can be seen of a channel.
    pub fn view(&self, channel: ChannelId) -> Option<View<'_>> {
        self.get(channel).map(Open::view)
    }

    /// How many messages were none.
    pub fn malformed(&self) -> u64 {
        self.context.malformed
    }

    /// How many messages came from hosts that are no members of their channel.
    pub fn from_strangers(&self) -> u64 {
        self.context.from_strangers
    }
}

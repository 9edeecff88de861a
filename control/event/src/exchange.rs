//! The channels of one host and their members on others, found by name, without a server. A host
//! that opens a channel announces it, and hosts that have it open answer. With a transport that
//! detects departed hosts, members only repeat their announcement from time to time, to repair lost
//! messages. Otherwise each announces itself every [`HEARTBEAT`], and a member that was silent for
//! [`LEASE`] is gone. Events go straight from their source to the hosts with sinks. Each format is
//! described before its first event; reliable events are kept until each member has taken them.
//!
//! Without I/O: received frames and the time go in by `handle_*`, and frames for the transport come
//! out of [`Exchange::poll_transmit`], as in the crate `quinn-proto`.
//!
//! Two filters are on a channel's way, after Q-Fabric's Figure 27. OUT chooses among the other
//! hosts; IN, the channel's own, among the sinks here.

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

/// The interval of a member's announcements.
pub const HEARTBEAT: Duration = Duration::from_millis(300);
/// The same interval, with a transport that detects departed hosts.
pub const REFRESH: Duration = Duration::from_secs(3);
/// How long a member may be silent before it is gone.
pub const LEASE: Duration = Duration::from_secs(1);
/// The largest number of members of a channel on other hosts; filters see all of them.
pub const MEMBERS_MAX: usize = SINKS_MAX;
/// The largest number of channels of a host.
pub(crate) const CHANNELS_MAX: usize = 1024;
/// The longest name of a channel, in bytes.
pub const CHANNEL_NAME_MAX: usize = 64;
/// The limit of waiting messages for managers, and of those of one host among them.
const CONTROL_MAX: usize = 256;
const CONTROL_OF_ONE_MAX: usize = 16;

/// The component that detects departed hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureDetector {
    /// The exchange: a member that was silent for [`LEASE`] is gone.
    #[default]
    Silence,
    /// The transport, within [`LEASE`]; it reports departures by [`Exchange::handle_news`]. Then
    /// silence has no meaning, and announcements only repair losses.
    Transport,
}

/// A change of whether this host wants the events of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The channel's name.
    pub channel: Arc<str>,
    /// Whether it has sinks here.
    pub wants: bool,
}

/// One host's channels.
///
/// After each call the caller calls [`poll_interest`](Self::poll_interest) and
/// [`poll_transmit`](Self::poll_transmit) until they return `None`: their queues are not bounded.
#[derive(Default)]
pub struct Exchange {
    /// Boxed, since channels are large and their places are reused.
    channels: Vec<Option<Box<Open>>>,
    /// The place of each channel, by its name.
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
    /// An exchange without channels, starting at `now`.
    pub fn new(now: Instant) -> Self {
        Self { next_heartbeat: now, ..Self::default() }
    }

    /// Sets the component that detects departed hosts.
    pub fn set_failure_detector(&mut self, detector: FailureDetector) {
        self.detector = detector;
    }

    /// Sets a check that is called before another host sends or gets events.
    pub fn set_permit(&mut self, permit: Permit) {
        self.context.permit = Some(permit);
    }

    /// Opens or creates a channel, without a difference. It is announced to the other hosts.
    ///
    /// # Errors
    /// If it can't be opened; then nothing is changed.
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
            // While no channel was open, no announcement was due.
            self.next_heartbeat = self.next_heartbeat.max(now);
        }
        self.names.insert(name.into(), at);
        let open = Box::new(Open::new(now, ChannelId(at), name, format, wake));
        self.context.outbox.broadcast(&open.announce_channel(true));
        self.channels[at] = Some(open);
        Ok(ChannelId(at))
    }

    /// Leaves a channel, removes its sinks, and notifies its members.
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

    /// A channel, with the state that all channels share.
    fn get_mut(&mut self, channel: ChannelId) -> Option<(&mut Open, &mut Context)> {
        let open = self.channels.get_mut(channel.0)?.as_deref_mut()?;
        Some((open, &mut self.context))
    }

    /// Calls `action` for each channel, with the state that all channels share.
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

    /// Subscribes a sink, and notifies the other hosts at once that this host wants events.
    ///
    /// # Errors
    /// If the channel has no room for another sink, or is not open.
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

    /// Removes a sink; returns the fates of its events. After the last one the other hosts are
    /// notified that this host wants no events.
    pub fn unsubscribe(&mut self, channel: ChannelId, sink: SinkId) -> Option<SinkCounts> {
        let (open, _) = self.get_mut(channel)?;
        let sink_counts = open.channel.leave(sink)?;
        if !open.channel.has_sinks() {
            self.report_interest(channel);
        }
        Some(sink_counts)
    }

    /// Reports to the transport and to the members whether this host wants events.
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

    /// Sends an event to the sinks here and to the hosts that the OUT filter chooses; returns the
    /// number of sinks here and of hosts. An event whose deadline has passed goes to no other host.
    /// An event that the filter holds back goes to none now.
    ///
    /// # Errors
    /// If the sinks here can't take it; then no other host gets it either.
    pub fn publish(
        &mut self,
        now: Instant,
        channel: ChannelId,
        event: Event<'_>,
    ) -> Result<(usize, usize), PublishError> {
        let Some((open, context)) = self.get_mut(channel) else { return Ok((0, 0)) };
        open.publish(now, event, context)
    }

    /// Sends an event as [`publish`](Self::publish) does, and keeps it until each recipient has taken it, or
    /// for [`RESUME`](crate::RESUME) after a recipient was lost. A channel keeps at most
    /// [`HELD_MAX`](crate::HELD_MAX) events. Beyond that the oldest is dropped for the members that have not
    /// taken it, which is reported to both ends. Deadlines apply all the same; an OUT filter's `hold` does
    /// not. Returns the number of sinks here, and of hosts to which the event is owed.
    ///
    /// # Errors
    /// If the sinks here can't take it; then no other host gets it either.
    pub fn publish_reliably(
        &mut self,
        now: Instant,
        channel: ChannelId,
        event: Event<'_>,
    ) -> Result<(usize, usize), PublishError> {
        let Some((open, context)) = self.get_mut(channel) else { return Ok((0, 0)) };
        open.publish_to_log(now, event, context)
    }

    /// Sends an event as [`publish_reliably`](Self::publish_reliably) does, at the pace of all members: not
    /// while [a member is behind](Self::lags). So no event is dropped for members that are present.
    ///
    /// # Errors
    /// [`PublishError::Behind`], or if the sinks here can't take it; then no other host gets it either.
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

    /// Whether a member has not taken half of the reliable events that can be kept for it. A lost
    /// member does not count: it may never come back.
    pub fn lags(&self, channel: ChannelId) -> bool {
        self.get(channel).is_some_and(|open| open.has_backlog(HELD_MAX / 2))
    }

    /// Whether no member [is behind](Self::lags), nor will be after a few more events.
    pub fn has_drained(&self, channel: ChannelId) -> bool {
        !self.get(channel).is_some_and(|open| open.has_backlog(HELD_MAX / 4))
    }

    /// Sends a message to another host's manager; it may be lost. At most 72 KiB.
    pub fn send_control(&mut self, to: HostId, bytes: &[u8]) {
        self.context.send(to, &Frame::Control { bytes });
    }

    /// As [`send_control`](Self::send_control), to all reachable hosts.
    pub fn broadcast_control(&mut self, bytes: &[u8]) {
        self.context.outbox.broadcast(&Frame::Control { bytes });
    }

    /// Handles a frame from a host.
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
        // Frames of channels that are not open here are ignored.
        let Some(channel) = frame.channel().and_then(|channel| self.find(channel)) else { return };
        if let Some((open, context)) = self.get_mut(channel) {
            open.receive(now, from, frame, context);
        }
    }

    /// Handles a report of the transport about a host; a reachable host gets the announcements of this one.
    pub fn handle_news(&mut self, now: Instant, news: TransportEvent) {
        self.each(|open, context| match news {
            TransportEvent::Up(host) => context.send(host, &open.announce_channel(true)),
            TransportEvent::Down(host) => open.lost(now, host, context),
        });
    }

    /// Counts an event that was lost since the transport had no room for it.
    pub fn handle_refused(&mut self, channel: ChannelId, host: HostId) {
        let open = self.get_mut(channel).map(|(open, _)| open);
        if let Some(member) = open.and_then(|open| open.member(host)) {
            member.lost += 1;
        }
    }

    /// Does what is due: announces the open channels, removes silent members, retransmits
    /// unacknowledged events, acknowledges, and sends events that were held back.
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

    /// When [`handle_timeout`](Self::handle_timeout) has to be called; to other hosts a later call
    /// looks like silence. `None` while no channel is open.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.context.timer;
        let next = timer.map_or(self.next_heartbeat, |timer| timer.min(self.next_heartbeat));
        (!self.names.is_empty()).then_some(next)
    }

    /// The next change of this host's interests. It must be polled before
    /// [`poll_transmit`](Self::poll_transmit), so that the transport is ready when the other hosts
    /// are notified.
    pub fn poll_interest(&mut self) -> Option<Interest> {
        self.interests.pop_front()
    }

    /// The next frame for the transport. A frame that it does not send is lost.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        while self.context.outbox.is_empty() {
            self.next_of_burst(now)?;
        }
        self.context.outbox.pop()
    }

    /// Encodes the next event that is owed to a member; `None` if no member may get one now.
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

    /// The next event of a sink. Sources that wait for room are notified of it soon.
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

    /// The next notice about a member.
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

    /// A view of a channel.
    pub fn view(&self, channel: ChannelId) -> Option<View<'_>> {
        self.get(channel).map(Open::view)
    }

    /// The number of malformed messages.
    pub fn malformed(&self) -> u64 {
        self.context.malformed
    }

    /// The number of messages from hosts that are no members of their channel.
    pub fn from_strangers(&self) -> u64 {
        self.context.from_strangers
    }
}

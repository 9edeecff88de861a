//! The channels of one host and their members on others: found by name, with no server. Who opens a
//! channel announces it, and those who have it open answer. Where the transport notices who is gone
//! it is the failure detector, and members only say from time to time that they are there, lest a lost
//! message be believed for ever; elsewhere each says it every [`BEAT`], and who was not heard for
//! [`LEASE`] is gone. Events go straight from their source to the hosts with sinks, each format
//! described before its first event; reliable ones are kept until each member has taken them.
//!
//! Two filters stand on a channel's way, after Q-Fabric's Figure 27: OUT chooses among the other
//! hosts, IN - the channel's own - among the sinks here.

mod member;
mod publish;
mod receive;
mod told;
mod view;

use std::collections::{HashMap, VecDeque};

use selvedge_units::{Instant, Span};

use crate::channel::{Channel, SinkId, SubscribeError, Subscription, Wake};
use crate::filter::{Filter, SINKS_MAX, SharedBlocks};
use crate::format::Format;
use crate::frame::Frame;
use crate::reliable::Held;
use crate::transport::{HostId, Transport};
use member::{Member, Parted};
use publish::HeldBack;
use told::note;

pub use publish::{ANSWERS, HOLD_MAX};
pub use told::{Notice, OpenError, Permit, Right, What};
pub use view::{MemberView, View};

/// How often a member says that it is there.
pub const BEAT: Span = Span::from_millis(300);
/// How often it does where the transport notices who is gone.
pub const REFRESH: Span = Span::from_secs(3);
/// After how long a silent member is gone.
pub const LEASE: Span = Span::from_secs(1);
/// The most members of a channel on other hosts; filters see all of them.
pub const MEMBERS_MAX: usize = SINKS_MAX;
/// The most channels of a host.
pub(crate) const CHANNELS_MAX: usize = 1024;
/// The longest name of a channel, in bytes.
pub const CHANNEL_NAME_MAX: usize = 64;
/// The most messages of managers that wait, and of one host among them.
const CONTROL_MAX: usize = 256;
const CONTROL_OF_ONE_MAX: usize = 16;

/// A channel that is open on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelId(usize);

#[derive(Debug)]
struct Open {
    channel: Channel,
    members: Vec<Member>,
    /// Members that are gone and may come back.
    parted: Vec<Parted>,
    out: Option<Filter>,
    sequence: u64,
    held: Held,
    held_back: Vec<HeldBack>,
    suppressed: u64,
    /// A record in our own format, on its way in.
    record: Vec<u8>,
}

/// One host's channels.
pub struct Exchange {
    /// Boxed, so that to take one out and to put it back moves a pointer.
    channels: Vec<Option<Box<Open>>>,
    /// Where each is, by its name.
    names: HashMap<Box<str>, usize>,
    blocks: SharedBlocks,
    notices: VecDeque<Notice>,
    controls: VecDeque<(HostId, Vec<u8>)>,
    permit: Option<Permit>,
    next_beat: Instant,
    /// When something has to be sent again, acknowledged or let go.
    timer: Option<Instant>,
    buffer: Vec<u8>,
    message: Vec<u8>,
    incoming: Vec<u8>,
    hosts: Vec<HostId>,
    malformed: u64,
    strange: u64,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Without channels; `now` is when it begins.
    pub fn new(now: Instant) -> Self {
        Self {
            channels: Vec::new(),
            names: HashMap::new(),
            blocks: SharedBlocks::default(),
            notices: VecDeque::new(),
            controls: VecDeque::new(),
            permit: None,
            next_beat: now,
            timer: None,
            buffer: Vec::new(),
            message: Vec::new(),
            incoming: Vec::new(),
            hosts: Vec::new(),
            malformed: 0,
            strange: 0,
        }
    }

    /// Asks before another host sends or gets events.
    pub fn set_permit(&mut self, permit: Permit) {
        self.permit = Some(permit);
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
        self.names.insert(name.into(), at);
        self.channels[at] = Some(Box::new(Open {
            channel: Channel::new(name, format.clone(), wake),
            members: Vec::new(),
            parted: Vec::new(),
            out: None,
            sequence: 0,
            held: Held::new(now),
            held_back: Vec::new(),
            suppressed: 0,
            record: vec![0; format.size()],
        }));
        self.put(&Frame::Here { channel: name, wants: false, answer: true });
        transport.announce(now, &self.buffer);
        Ok(ChannelId(at))
    }

    /// Leaves a channel and tells its members; its sinks are gone with it.
    pub fn leave(&mut self, now: Instant, channel: ChannelId, transport: &mut dyn Transport) {
        if let Some(open) = self.channels.get_mut(channel.0).and_then(Option::take) {
            self.names.remove(open.channel.name());
            transport.want(open.channel.name(), false);
            self.put(&Frame::Left { channel: open.channel.name() });
            for member in &open.members {
                transport.send(now, member.host, &self.buffer);
            }
        }
    }

    /// Does something with a channel beside everything else; `None` if it is not open.
    fn with<T>(
        &mut self,
        channel: ChannelId,
        action: impl FnOnce(&mut Self, &mut Open) -> T,
    ) -> Option<T> {
        let mut open = self.channels.get_mut(channel.0)?.take()?;
        let done = action(self, &mut open);
        self.channels[channel.0] = Some(open);
        Some(done)
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
        let open = self.channels.get_mut(channel.0).and_then(Option::as_mut);
        let open = open.ok_or(SubscribeError::Closed)?;
        let did_want = open.channel.has_sinks();
        let sink = open.channel.subscribe(wish)?;
        if !did_want {
            self.wants(now, channel, transport);
        }
        Ok(sink)
    }

    /// Removes a sink; what became of its events comes back. With the last one the other hosts hear
    /// that no events are wanted here.
    pub fn unsubscribe(
        &mut self,
        now: Instant,
        channel: ChannelId,
        sink: SinkId,
        transport: &mut dyn Transport,
    ) -> Option<crate::Fates> {
        let open = self.channels.get_mut(channel.0)?.as_mut()?;
        let fates = open.channel.leave(sink)?;
        if !open.channel.has_sinks() {
            self.wants(now, channel, transport);
        }
        Some(fates)
    }

    /// Tells whether events are wanted here.
    fn wants(&mut self, now: Instant, channel: ChannelId, transport: &mut dyn Transport) {
        self.with(channel, |this, open| {
            transport.want(open.channel.name(), open.channel.has_sinks());
            this.here(open, false);
            for member in &open.members {
                transport.send(now, member.host, &this.buffer);
            }
        });
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

    /// Sends a message to another host's manager: it may be lost. At most 72 KiB.
    pub fn send_control(
        &mut self,
        now: Instant,
        to: HostId,
        bytes: &[u8],
        transport: &mut dyn Transport,
    ) {
        self.put(&Frame::Control { bytes });
        transport.send(now, to, &self.buffer);
    }

    /// As [`send_control`](Self::send_control), to all that can be reached.
    pub fn announce_control(&mut self, now: Instant, bytes: &[u8], transport: &mut dyn Transport) {
        self.put(&Frame::Control { bytes });
        transport.announce(now, &self.buffer);
    }

    /// The next message of another host's manager.
    pub fn poll_control(&mut self) -> Option<(HostId, Vec<u8>)> {
        self.controls.pop_front()
    }

    /// How many messages were none.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// How many messages came from hosts that are no members of their channel.
    pub fn strange(&self) -> u64 {
        self.strange
    }

    /// When [`handle`](Self::handle) has to be called if nothing comes before; later is noticed by
    /// others as silence.
    pub fn poll_at(&self) -> Instant {
        self.timer.map_or(self.next_beat, |timer| timer.min(self.next_beat))
    }

    /// Something is due at a time.
    fn due(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
        }
    }

    fn named(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    fn put(&mut self, frame: &Frame<'_>) {
        self.buffer.clear();
        frame.encode(&mut self.buffer);
    }

    fn here(&mut self, open: &Open, answer: bool) {
        let wants = open.channel.has_sinks();
        self.put(&Frame::Here { channel: open.channel.name(), wants, answer });
    }
}

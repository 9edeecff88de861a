//! Frames that wait for the transport: the exchange adds them, and the transport's loop takes them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::event::ChannelId;
use crate::frame::Frame;

/// Memory that is kept between frames, in bytes; more is freed when all frames are sent.
const KEPT_MAX: usize = 1 << 20;

/// A host, as the transport knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A transport's observation of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportEvent {
    /// The host is reachable from now on.
    Up(HostId),
    /// The host is gone: it has ended, or the network is cut.
    Down(HostId),
}

/// The recipients of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// Every reachable host.
    All,
    /// These hosts.
    Hosts(&'a [HostId]),
    /// These hosts, which are all that want the channel's events. A transport may send to all of
    /// them at once, even if further hosts receive the frame.
    Subscribers {
        /// The channel's name.
        channel: &'a str,
        /// The hosts.
        hosts: &'a [HostId],
    },
}

/// How a frame is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// At once, after every frame that was sent to the host before.
    Control,
    /// An event, which may wait a moment for others to the same host. If the transport has no room for it,
    /// the event is lost, and [`Exchange::handle_refused`](crate::Exchange::handle_refused) counts it.
    Event(ChannelId),
    /// As [`Class::Event`], but the exchange keeps the event and retransmits it if it is lost.
    Reliable,
}

/// A frame for the transport to send: whole, and in order between each two hosts. It may be lost;
/// the exchange never waits.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The recipients.
    pub to: Destination<'a>,
    /// How it is sent.
    pub class: Class,
    /// The frame.
    pub bytes: &'a [u8],
}

#[derive(Debug)]
struct Outgoing {
    class: Class,
    bytes: Range<usize>,
    /// Empty if the frame is for all.
    hosts: Range<usize>,
    /// Set if the hosts are all that want this channel's events.
    channel: Option<Arc<str>>,
}

/// Frames in the order in which they are sent. Their bytes lie one after the other in memory that
/// is reused as soon as all are sent, so that no frame is allocated or copied.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Outgoing>,
    bytes: Vec<u8>,
    hosts: Vec<HostId>,
    /// The channel's name that was lent last.
    lent: Option<Arc<str>>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends a frame to every host.
    pub(crate) fn broadcast(&mut self, frame: &Frame<'_>) {
        self.push(frame, Class::Control, [], None);
    }

    /// Sends a frame to one host.
    pub(crate) fn send(&mut self, to: HostId, class: Class, frame: &Frame<'_>) {
        self.push(frame, class, [to], None);
    }

    /// Sends a frame to at least one host; with a channel's name if these are all hosts that want
    /// its events.
    pub(crate) fn send_all(
        &mut self,
        to: impl IntoIterator<Item = HostId>,
        class: Class,
        frame: &Frame<'_>,
        channel: Option<&Arc<str>>,
    ) {
        self.push(frame, class, to, channel);
    }

    fn push(
        &mut self,
        frame: &Frame<'_>,
        class: Class,
        to: impl IntoIterator<Item = HostId>,
        channel: Option<&Arc<str>>,
    ) {
        if self.queue.is_empty() {
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_MAX {
                self.bytes.shrink_to(KEPT_MAX);
            }
            self.hosts.clear();
        }
        let (bytes, hosts) = (self.bytes.len(), self.hosts.len());
        frame.encode(&mut self.bytes);
        self.hosts.extend(to);
        self.queue.push_back(Outgoing {
            class,
            bytes: bytes..self.bytes.len(),
            hosts: hosts..self.hosts.len(),
            channel: channel.cloned(),
        });
    }

    /// The next frame.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Transmit<'_>> {
        let Outgoing { class, bytes, hosts, channel } = self.queue.pop_front()?;
        self.lent = channel;
        let hosts = &self.hosts[hosts];
        let to = match &self.lent {
            _ if hosts.is_empty() => Destination::All,
            Some(channel) => Destination::Subscribers { channel, hosts },
            None => Destination::Hosts(hosts),
        };
        Some(Transmit { to, class, bytes: &self.bytes[bytes] })
    }
}

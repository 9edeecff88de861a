//! The transport between hosts, over a Zenoh session, and over rings to hosts on this machine.

mod session;

use std::collections::HashMap;
use std::sync::Arc;

use selvedge_comm_local::PutOutcome;
use selvedge_control_event::{
    Class, Destination, Exchange, HostId, Interest, Transmit, TransportEvent,
};
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};
use zenoh::Wait;
use zenoh::pubsub::Subscriber;

use crate::batch::{BatchTarget, Batches, Frames};
use crate::inbox::Inbox;
use crate::keys::{Keys, ParticipantName};
use crate::message::MARK;
use crate::ring_transport::RingTransport;
use session::{ZenohSession, publisher, put, subscribe};

/// After this number of frames the exchange's sinks have their turn.
const TURN_MAX: usize = 1024;
/// The largest number of publishers that are kept for hosts; others are made when they are needed.
const READY_MAX: usize = 512;
/// The longest time for closing a session.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// If some members have rings, at most this number of others are sent an event one by one. With
/// more, the event goes by the channel's key, and members with rings ignore that copy.
const FEW: usize = 4;
/// Messages in a row from rings before the engine's messages have their turn.
const RINGS_TURN: u32 = 64;
/// How often the carrier waits for the rest of the ring of a host that is gone.
const GONE_ROUNDS_MAX: u32 = 64;

/// The engine's threads call it when the inbox has something; it must not block.
pub(crate) type Arrived = Arc<dyn Fn() + Send + Sync>;

/// How often the engine is checked. How long it may be without connections before it is restarted:
/// at first, and at most.
pub(crate) const POLL_EVERY: Duration = Duration::from_secs(1);
const RECONNECT_AFTER: Duration = Duration::from_secs(5);
const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(60);

/// One process's session.
pub(crate) struct Carrier {
    /// `None` once it is closed.
    opened: Option<ZenohSession>,
    keys: Keys,
    inbox: Arc<Inbox>,
    arrived: Arrived,
    /// The message that is being split into frames, and its sender.
    current: Vec<u8>,
    sender: HostId,
    frames: Frames,
    /// The number of frames that may be taken before the sinks have their turn.
    left: usize,
    clock: Clock,
    batches: Batches,
    /// Whether a thread will check when the batches are due.
    has_timer: bool,
    /// The channels for which this process wants events.
    wanted: HashMap<String, Option<Subscriber<()>>>,
    /// Rings to the hosts of this machine, if they are enabled and available.
    ring_transport: Option<RingTransport>,
    from_rings: u32,
    /// A host that is gone with messages unread in its ring, and how often to wait for them.
    gone: Option<(HostId, u32)>,
    /// Members without a ring, and those whose ring had no room for the last event.
    peers_without_ring: Vec<HostId>,
    full: Vec<HostId>,
    /// Since when no host is connected, and how long the carrier tolerates it.
    disconnected_since: Option<Instant>,
    patience: Duration,
}

impl Carrier {
    /// Opens a session with the engine's own configuration, announces this host, and subscribes to
    /// announcements of the others.
    pub(crate) fn new(
        configuration: &str,
        domain: &str,
        me: &ParticipantName,
        inbox: Arc<Inbox>,
        arrived: Arrived,
        clock: Clock,
        ring_transport: Option<RingTransport>,
    ) -> Result<Self, zenoh::Error> {
        let keys = Keys::new(domain, me);
        let opened = Some(ZenohSession::new(configuration, &keys, &inbox, &arrived)?);
        Ok(Self {
            opened,
            keys,
            inbox,
            arrived,
            current: Vec::new(),
            sender: HostId(0),
            frames: Frames::default(),
            left: 0,
            clock,
            batches: Batches::default(),
            has_timer: false,
            wanted: HashMap::new(),
            ring_transport,
            from_rings: 0,
            gone: None,
            peers_without_ring: Vec::new(),
            full: Vec::new(),
            disconnected_since: None,
            patience: RECONNECT_AFTER,
        })
    }

    /// Passes received frames to the exchange, runs its timeouts, and sends its frames.
    pub(crate) fn run(&mut self, now: Instant, exchange: &mut Exchange) {
        // The exchange may take more frames, since its sinks had their turn.
        self.left = TURN_MAX;
        self.read_late_rings(now);
        while let Some(news) = self.poll_transport_event() {
            exchange.handle_news(now, news);
        }
        self.transmit(now, exchange);
        while let Some((from, bytes)) = self.poll(now) {
            exchange.handle_frame(now, from, bytes);
            self.transmit(now, exchange);
        }
        exchange.handle_timeout(now);
        self.transmit(now, exchange);
    }

    /// Sends the frames of the exchange; called after each call of the exchange.
    pub(crate) fn transmit(&mut self, now: Instant, exchange: &mut Exchange) {
        while let Some(Interest { channel, wants }) = exchange.poll_interest() {
            self.set_interest(&channel, wants);
        }
        while let Some(transmit) = exchange.poll_transmit(now) {
            let class = transmit.class;
            self.send_frame(now, transmit);
            if let Class::Event(channel) = class {
                for host in &self.full {
                    exchange.handle_refused(channel, *host);
                }
            }
        }
    }

    fn send_frame(&mut self, now: Instant, Transmit { to, class, bytes }: Transmit<'_>) {
        self.full.clear();
        match to {
            Destination::All => self.broadcast(now, bytes),
            Destination::Subscribers { channel, hosts } => {
                self.send_events(now, channel, hosts, bytes);
            }
            Destination::Hosts(hosts) if class == Class::Control => {
                hosts.iter().for_each(|host| self.send(now, *host, bytes));
            }
            Destination::Hosts(hosts) => {
                hosts.iter().for_each(|host| self.send_event(now, *host, bytes));
            }
        }
    }

    /// Whether a thread must be notified that events wait here; it [sends them](Self::flush_due) in time.
    pub(crate) fn needs_timer(&mut self) -> bool {
        let is_new = !self.has_timer && self.batches.due().is_some();
        self.has_timer |= is_new;
        is_new
    }

    /// Sends batches that have waited long enough; returns when to call again, if at all.
    pub(crate) fn flush_due(&mut self, now: Instant) -> Option<Instant> {
        if self.batches.due().is_some_and(|due| due <= now) {
            self.flush();
        }
        if let Some(ring_transport) = &mut self.ring_transport {
            for host in ring_transport.ended(now) {
                self.inbox.set_by_ring(host, false);
            }
        }
        self.read_late_rings(now);
        let due = self.batches.due();
        self.has_timer = due.is_some();
        let early = self.ring_transport.as_ref().and_then(RingTransport::due);
        due.into_iter().chain(early).min()
    }

    /// Reads rings that have waited too long for the message that permits it.
    fn read_late_rings(&mut self, now: Instant) {
        if let Some(ring_transport) = &mut self.ring_transport {
            for host in ring_transport.late_switches(now) {
                self.inbox.set_by_ring(host, true);
            }
            self.send_pending();
        }
    }

    /// The rings, if there are any.
    pub(crate) fn ring_transport(&mut self) -> Option<&mut RingTransport> {
        self.ring_transport.as_mut()
    }

    /// Sends the waiting messages about rings over the engine.
    fn send_pending(&mut self) {
        while let Some((host, message)) =
            self.ring_transport.as_mut().and_then(RingTransport::poll_message)
        {
            self.flush();
            self.put(BatchTarget::Participant(host), &message);
        }
    }

    /// Handles rings that became ready or are gone.
    fn settle(&mut self, now: Instant) {
        if let Some(ring_transport) = &mut self.ring_transport {
            ring_transport.settle(now);
            self.send_pending();
        }
    }

    /// Puts a message into a host's ring, if it has one.
    fn send_by_ring(&mut self, now: Instant, to: HostId, bytes: &[u8]) -> PutOutcome {
        self.settle(now);
        let Some(ring_transport) = &mut self.ring_transport else { return PutOutcome::Gone };
        let put = ring_transport.put(now, to, bytes);
        ring_transport.links().flush();
        self.send_pending();
        put
    }

    #[cfg(test)]
    pub(crate) fn take_for_fast(&mut self) {
        self.batches.at_once = Duration::from_secs(60);
    }

    #[cfg(test)]
    pub(crate) fn has_waiting(&self) -> bool {
        self.batches.due().is_some()
    }

    /// Sends all batches.
    fn flush(&mut self) {
        while let Some(batch) = self.batches.pop() {
            self.put(batch.to(), &batch.bytes);
            self.batches.recycle(batch);
        }
    }

    /// Sends an event, or adds it to a batch while its source is ahead.
    fn event(&mut self, now: Instant, to: BatchTarget<'_>, bytes: &[u8]) {
        let should_batch = self.batches.should_batch(now, bytes.len());
        if !should_batch || self.batches.must_flush_before(to) {
            self.flush();
        }
        if should_batch {
            if let Some(full) = self.batches.add(now, to, bytes) {
                self.put(full.to(), &full.bytes);
                self.batches.recycle(full);
            }
        } else {
            self.put(to, bytes);
        }
        self.batches.done(self.clock.now());
    }

    /// Passes a message to the engine, through a publisher that is kept.
    fn put(&mut self, to: BatchTarget<'_>, bytes: &[u8]) {
        let Some(ZenohSession { session, hosts, channels, .. }) = &mut self.opened else { return };
        match to {
            BatchTarget::Participant(host) => {
                if !hosts.contains_key(&host) {
                    let Some(name) = self.inbox.name(host) else { return };
                    let Ok(publisher) = publisher(session, self.keys.to(&name)) else { return };
                    if hosts.len() >= READY_MAX {
                        hosts.clear();
                    }
                    hosts.insert(host, publisher);
                }
                put(&hosts[&host], bytes);
            }
            BatchTarget::Channel(channel) => {
                if !channels.contains_key(channel) {
                    let key = self.keys.to_channel(channel);
                    let Ok(publisher) = publisher(session, key) else { return };
                    if channels.len() >= READY_MAX {
                        channels.clear();
                    }
                    channels.insert(channel.to_owned(), publisher);
                }
                put(&channels[channel], bytes);
            }
        }
    }

    /// Sends a frame at once, after the batches for the host.
    fn send(&mut self, now: Instant, to: HostId, bytes: &[u8]) {
        if self.send_by_ring(now, to, bytes) == PutOutcome::Gone {
            self.flush();
            self.put(BatchTarget::Participant(to), bytes);
        }
    }

    /// Sends a frame to every host that can be reached.
    fn broadcast(&mut self, now: Instant, bytes: &[u8]) {
        self.settle(now);
        let mut is_settled = true;
        if let Some(ring_transport) = &mut self.ring_transport {
            for host in ring_transport.ring_peers() {
                ring_transport.put(now, host, bytes);
            }
            ring_transport.links().flush();
            is_settled = ring_transport.is_settled();
        }
        self.send_pending();
        self.flush();
        if is_settled {
            if let Some(opened) = &self.opened {
                put(&opened.all, bytes);
            }
            return;
        }
        // Some members with rings still read the engine's messages.
        for (host, _) in self.inbox.hosts() {
            if !self.shares_memory(host).0 {
                self.put(BatchTarget::Participant(host), bytes);
            }
        }
    }

    /// The next received frame.
    fn poll(&mut self, now: Instant) -> Option<(HostId, &[u8])> {
        loop {
            if let Some(frame) = self.frames.next(&self.current) {
                self.left = self.left.saturating_sub(1);
                return Some((self.sender, &self.current[frame]));
            }
            // Only between messages, so that the rest waits in the inbox.
            if self.left == 0 {
                return None;
            }
            let rings_first = self.from_rings < RINGS_TURN || self.inbox.is_empty();
            if rings_first
                && self
                    .ring_transport
                    .as_mut()
                    .is_some_and(|ring_transport| ring_transport.take(now))
            {
                self.from_rings += 1;
                self.left -= 1;
                return self.ring_transport.as_ref().map(RingTransport::message);
            }
            let is_turn = std::mem::take(&mut self.from_rings) >= RINGS_TURN;
            let Some(sender) = self.inbox.pop(&mut self.current) else {
                if is_turn && !rings_first {
                    continue;
                }
                return None;
            };
            if self.current.first() == Some(&MARK) {
                if let Some(ring_transport) = &mut self.ring_transport {
                    ring_transport.handle_message(now, sender, &self.current);
                    self.send_pending();
                }
                continue;
            }
            self.sender = sender;
            self.frames.begin();
        }
    }

    /// Sends an event to a host; it may wait in a batch.
    fn send_event(&mut self, now: Instant, to: HostId, bytes: &[u8]) {
        match self.send_by_ring(now, to, bytes) {
            PutOutcome::Done => return,
            PutOutcome::Dropped => return self.full.push(to),
            PutOutcome::Gone => {}
        }
        if let Some(ring_transport) = &mut self.ring_transport {
            ring_transport.request_ring(now, to);
            self.send_pending();
        }
        self.event(now, BatchTarget::Participant(to), bytes);
    }

    /// Sends one event to hosts, which are all that want the channel's events.
    fn send_events(&mut self, now: Instant, channel: &str, to: &[HostId], bytes: &[u8]) {
        self.settle(now);
        let Some(ring_transport) = &mut self.ring_transport else {
            return self.event(now, BatchTarget::Channel(channel), bytes);
        };
        self.peers_without_ring.clear();
        for host in to {
            match ring_transport.put(now, *host, bytes) {
                PutOutcome::Done => {}
                PutOutcome::Dropped => self.full.push(*host),
                PutOutcome::Gone => {
                    ring_transport.request_ring(now, *host);
                    self.peers_without_ring.push(*host);
                }
            }
        }
        ring_transport.links().flush();
        let is_settled = ring_transport.is_settled();
        self.send_pending();
        if is_settled
            && (self.peers_without_ring.len() == to.len() || self.peers_without_ring.len() > FEW)
        {
            return self.event(now, BatchTarget::Channel(channel), bytes);
        }
        for at in 0..self.peers_without_ring.len() {
            let host = self.peers_without_ring[at];
            self.event(now, BatchTarget::Participant(host), bytes);
        }
    }

    /// Starts or stops receiving events of a channel.
    fn set_interest(&mut self, channel: &str, wants: bool) {
        if !wants {
            self.wanted.remove(channel);
            return;
        }
        let Some(opened) = &self.opened else { return };
        let key = self.keys.any_channel(channel);
        match subscribe(&opened.session, key, &self.inbox, &self.arrived) {
            Ok(subscriber) => drop(self.wanted.insert(channel.to_owned(), Some(subscriber))),
            Err(error) => {
                tracing::warn!(%error, channel, "can't get events of the channel yet");
                self.wanted.insert(channel.to_owned(), None);
            }
        }
    }

    /// Whether messages to a host, and messages from it, go through shared memory.
    pub(crate) fn shares_memory(&self, host: HostId) -> (bool, bool) {
        let ring_transport = self.ring_transport.as_ref();
        ring_transport.map_or((false, false), |ring_transport| {
            (ring_transport.has_ring_to(host), ring_transport.reads_ring_of(host))
        })
    }

    /// The number of messages that arrived and were dropped, since this process was behind.
    pub(crate) fn missed(&self) -> u64 {
        let rings =
            self.ring_transport.as_ref().map_or(0, |ring_transport| ring_transport.view().missed);
        rings + self.inbox.dropped().0
    }

    /// The next host that appeared or went away.
    fn poll_transport_event(&mut self) -> Option<TransportEvent> {
        let (news, tries) = match self.gone.take() {
            Some((host, tries)) => {
                self.inbox.hold_open(false);
                (TransportEvent::Down(host), tries)
            }
            None => (self.inbox.pop_news()?, GONE_ROUNDS_MAX),
        };
        let TransportEvent::Down(host) = news else { return Some(news) };
        // The rest of a host's ring is read before the host is gone.
        if let Some(ring_transport) = &mut self.ring_transport {
            if tries > 0 && ring_transport.has_unread_of(host) {
                self.gone = Some((host, tries - 1));
                self.inbox.hold_open(true);
                return None;
            }
            ring_transport.forget(host);
        }
        if let Some(opened) = &mut self.opened {
            opened.hosts.remove(&host);
        }
        Some(news)
    }

    /// Whether no host has been connected for so long that the session should be reopened: the
    /// engine gives up an address for good if a connection breaks while it is being made.
    pub(crate) fn is_disconnected(&mut self, now: Instant) -> bool {
        let Some(opened) = &self.opened else { return false };
        let info = opened.session.info();
        let is_connected =
            info.peers_zid().wait().next().is_some() || info.routers_zid().wait().next().is_some();
        if is_connected {
            (self.disconnected_since, self.patience) = (None, RECONNECT_AFTER);
            return false;
        }
        let since = *self.disconnected_since.get_or_insert(now);
        now.since(since) > self.patience
    }

    /// Closes the session and opens another.
    pub(crate) fn reopen(&mut self, now: Instant, configuration: &str) {
        self.disconnected_since = Some(now);
        self.patience = Duration(self.patience.0 * 2).min(RECONNECT_AFTER_MAX);
        for subscriber in self.wanted.values_mut() {
            *subscriber = None;
        }
        self.close();
        match ZenohSession::new(configuration, &self.keys, &self.inbox, &self.arrived) {
            Ok(opened) => self.opened = Some(opened),
            Err(error) => tracing::warn!(%error, "the session can't be opened again yet"),
        }
        let names: Vec<String> = self.wanted.keys().cloned().collect();
        for channel in names {
            self.set_interest(&channel, true);
        }
    }

    /// Closes the session. It waits, but not for ever: a thread of the engine may be blocked.
    pub(crate) fn close(&mut self) {
        self.flush();
        let Some(opened) = self.opened.take() else { return };
        let (done, is_done) = flume::bounded(1);
        let closing = std::thread::Builder::new().name("selvedge-close".to_owned());
        let closing = closing.spawn(move || {
            let _ = opened.session.close().wait();
            drop(opened);
            let _ = done.send(());
        });
        if closing.is_ok() && is_done.recv_timeout(CLOSE_MAX.into()).is_err() {
            tracing::warn!("the session does not close; it is left to itself");
        }
    }
}

//! A network in memory, under virtual time, for tests and simulations: [`MemoryNetwork::run`]
//! drives hosts' exchanges, and their frames arrive a fixed time later.

use std::collections::{BTreeMap, BTreeSet};

use selvedge_control_event::{Destination, Exchange, FailureDetector, HostId, TransportEvent};
use selvedge_units::{Duration, Instant};

/// Messages in flight to one host, by arrival and order of sending.
type Inbox = BTreeMap<(Instant, u64), (HostId, Vec<u8>)>;

/// A network in memory. It holds no clock: messages arrive a fixed time after they were sent.
#[derive(Debug)]
pub(crate) struct MemoryNetwork {
    latency: Duration,
    sent: u64,
    inboxes: BTreeMap<HostId, Inbox>,
    cut: BTreeSet<(HostId, HostId)>,
    /// How long a cut goes unnoticed; `None` if the network never reports it.
    detector: Option<Duration>,
    news: BTreeMap<HostId, BTreeMap<(Instant, u64), TransportEvent>>,
    /// One message in this number is lost; 0 if none is. Chosen by the state of a generator.
    lost_of: u64,
    seed: u64,
}

impl MemoryNetwork {
    /// A network without hosts.
    pub(crate) fn new(latency: Duration) -> Self {
        Self {
            latency,
            sent: 0,
            inboxes: BTreeMap::new(),
            cut: BTreeSet::new(),
            detector: None,
            news: BTreeMap::new(),
            lost_of: 0,
            seed: 1,
        }
    }

    /// A network that detects departed hosts by itself: [removed](Self::remove) ones at once, and
    /// those that are cut off after a lease.
    pub(crate) fn with_detector(latency: Duration, lease: Duration) -> Self {
        Self { detector: Some(lease), ..Self::new(latency) }
    }

    /// Loses one message in `one_of` from now on, none if 0; the same seed loses the same ones.
    pub(crate) fn lose_one_of(&mut self, one_of: u64, seed: u64) {
        (self.lost_of, self.seed) = (one_of, seed.max(1));
    }

    /// Adds a host, if it is not there.
    pub(crate) fn add(&mut self, me: HostId) {
        if self.inboxes.contains_key(&me) {
            return;
        }
        let others: Vec<HostId> = self.inboxes.keys().copied().collect();
        self.inboxes.insert(me, Inbox::new());
        for other in others {
            self.notify_both(Instant::ZERO, (me, other), TransportEvent::Up);
        }
    }

    /// The component that detects departed hosts.
    pub(crate) fn failure_detector(&self) -> FailureDetector {
        match self.detector {
            Some(_) => FailureDetector::Transport,
            None => FailureDetector::Silence,
        }
    }

    /// Passes received frames to a host's exchange, runs its timeouts, and sends its frames.
    pub(crate) fn run(&mut self, now: Instant, me: HostId, exchange: &mut Exchange) {
        while let Some(news) = self.poll_transport_event(now, me) {
            exchange.handle_news(now, news);
        }
        self.transmit(now, me, exchange);
        while let Some((from, bytes)) = self.poll(now, me) {
            exchange.handle_frame(now, from, &bytes);
            self.transmit(now, me, exchange);
        }
        exchange.handle_timeout(now);
        self.transmit(now, me, exchange);
    }

    /// Sends the frames of a host's exchange.
    pub(crate) fn transmit(&mut self, now: Instant, me: HostId, exchange: &mut Exchange) {
        while exchange.poll_interest().is_some() {}
        while let Some(transmit) = exchange.poll_transmit(now) {
            match transmit.to {
                Destination::All => {
                    let all: Vec<HostId> = self.inboxes.keys().copied().collect();
                    for to in all.into_iter().filter(|to| *to != me) {
                        self.send(now, me, to, transmit.bytes);
                    }
                }
                Destination::Hosts(hosts) | Destination::Subscribers { hosts, .. } => {
                    for to in hosts {
                        self.send(now, me, *to, transmit.bytes);
                    }
                }
            }
        }
    }

    /// The next received message of a host.
    pub(crate) fn poll(&mut self, now: Instant, me: HostId) -> Option<(HostId, Vec<u8>)> {
        let first = self.inboxes.get_mut(&me)?.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn poll_transport_event(&mut self, now: Instant, me: HostId) -> Option<TransportEvent> {
        let first = self.news.get_mut(&me)?.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Removes a host, with all messages in flight to it.
    pub(crate) fn remove(&mut self, now: Instant, host: HostId) {
        self.inboxes.remove(&host);
        self.news.remove(&host);
        let others: Vec<HostId> = self.inboxes.keys().copied().collect();
        for other in others {
            self.note(now + self.latency, other, TransportEvent::Down(host));
        }
    }

    /// Loses all messages between two hosts from now on.
    pub(crate) fn partition(&mut self, now: Instant, one: HostId, other: HostId) {
        self.cut.extend([(one, other), (other, one)]);
        if let Some(lease) = self.detector {
            self.notify_both(now + lease, (one, other), TransportEvent::Down);
        }
    }

    /// Ends a cut.
    pub(crate) fn end_partition(&mut self, now: Instant, one: HostId, other: HostId) {
        self.cut.remove(&(one, other));
        self.cut.remove(&(other, one));
        self.notify_both(now + self.latency, (one, other), TransportEvent::Up);
    }

    /// When the next message arrives anywhere.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let firsts = self.inboxes.values().filter_map(|inbox| inbox.keys().next());
        let news = self.news.values().filter_map(|news| news.keys().next());
        firsts.chain(news).map(|(at, _)| *at).min()
    }

    /// Notifies two hosts of each other.
    fn notify_both(
        &mut self,
        at: Instant,
        (one, other): (HostId, HostId),
        what: fn(HostId) -> TransportEvent,
    ) {
        self.note(at, one, what(other));
        self.note(at, other, what(one));
    }

    fn note(&mut self, at: Instant, host: HostId, news: TransportEvent) {
        if self.detector.is_some() {
            self.sent += 1;
            self.news.entry(host).or_default().insert((at, self.sent), news);
        }
    }

    fn loses_next(&mut self) -> bool {
        // Xorshift: enough to choose by.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.lost_of > 0 && self.seed.is_multiple_of(self.lost_of)
    }

    /// Sends a message from one host to another; it may be lost.
    pub(crate) fn send(&mut self, now: Instant, from: HostId, to: HostId, bytes: &[u8]) {
        if self.cut.contains(&(from, to)) || self.loses_next() {
            return;
        }
        if let Some(inbox) = self.inboxes.get_mut(&to) {
            self.sent += 1;
            inbox.insert((now + self.latency, self.sent), (from, bytes.to_vec()));
        }
    }
}

//! What carries bytes between hosts; and a network in memory, under virtual time, for tests and
//! simulations.

use std::collections::{BTreeMap, BTreeSet};

use selvedge_units::{Instant, Span};

/// A host, as the transport knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// What a transport has noticed of a host by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It can be reached from now on.
    Came(HostId),
    /// It is gone: it has ended, or the network is cut.
    Gone(HostId),
}

/// Carries messages between hosts: whole, in order between each two, now and then not at all.
///
/// The last eight may be left as they are.
pub trait Transport {
    /// Sends a message to a host. It may be lost; the sender never waits.
    fn send(&mut self, now: Instant, to: HostId, bytes: &[u8]);

    /// Sends a message to every host that can be reached.
    fn announce(&mut self, now: Instant, bytes: &[u8]);

    /// The next message that has come.
    fn poll(&mut self, now: Instant) -> Option<(HostId, &[u8])>;

    /// Sends a message with an event to a host: one that may wait a moment for others, to go with them,
    /// while events come fast. What is sent to the host later does not overtake it.
    fn send_event(&mut self, now: Instant, to: HostId, bytes: &[u8]) {
        self.send(now, to, bytes);
    }

    /// Sends one message with an event to several hosts, which are all that [want](Self::want) the channel's
    /// events. One that can reach them at once does; some that want no more may hear of it.
    fn send_events(&mut self, now: Instant, _channel: &str, to: &[HostId], bytes: &[u8]) {
        for host in to {
            self.send_event(now, *host, bytes);
        }
    }

    /// Events of a channel are wanted here from now on, or no more.
    fn want(&mut self, _channel: &str, _wants: bool) {}

    /// To whom the last [`send_event`](Self::send_event) or [`send_events`](Self::send_events) could not give
    /// its message, as far as it knows: there was no room.
    fn without_room(&self) -> &[HostId] {
        &[]
    }

    /// Whether what goes to a host, and what comes from it, goes through memory that both share.
    fn shares_memory(&self, _host: HostId) -> (bool, bool) {
        (false, false)
    }

    /// How many messages have come from all hosts and were never taken, since this side was behind.
    fn missed(&self) -> u64 {
        0
    }

    /// Whether it notices by itself, within [`LEASE`](crate::LEASE), who is gone. If so, it alone is
    /// the failure detector: silence means nothing, and beats only repair what was lost.
    fn notices(&self) -> bool {
        false
    }

    /// The next that it has noticed.
    fn poll_news(&mut self, _now: Instant) -> Option<News> {
        None
    }
}

/// Messages of one host that are under way, by arrival and order of sending.
type Inbox = BTreeMap<(Instant, u64), (HostId, Vec<u8>)>;

/// A network in memory. It holds no clock: messages arrive a fixed time after they were sent.
#[derive(Debug)]
pub struct Network {
    latency: Span,
    sent: u64,
    inboxes: BTreeMap<HostId, Inbox>,
    cut: BTreeSet<(HostId, HostId)>,
    current: Vec<u8>,
    /// How long a cut goes unnoticed; `None` if nobody notices.
    detector: Option<Span>,
    news: BTreeMap<HostId, BTreeMap<(Instant, u64), News>>,
    /// Of so many messages one is lost; 0 if none is. Chosen by the state of a generator.
    lost_of: u64,
    seed: u64,
}

impl Network {
    /// Without hosts yet.
    pub fn new(latency: Span) -> Self {
        Self {
            latency,
            sent: 0,
            inboxes: BTreeMap::new(),
            cut: BTreeSet::new(),
            current: Vec::new(),
            detector: None,
            news: BTreeMap::new(),
            lost_of: 0,
            seed: 1,
        }
    }

    /// One that notices by itself who is gone: at once who has been [removed](Self::remove), and
    /// after a lease who is cut off.
    pub fn with_detector(latency: Span, lease: Span) -> Self {
        Self { detector: Some(lease), ..Self::new(latency) }
    }

    /// From now on loses one of so many messages, none if 0; the same seed loses the same.
    pub fn lose(&mut self, one_of: u64, seed: u64) {
        (self.lost_of, self.seed) = (one_of, seed.max(1));
    }

    /// A host's side of it; the host is there from its first use on.
    pub fn port(&mut self, me: HostId) -> Port<'_> {
        if !self.inboxes.contains_key(&me) {
            let others: Vec<HostId> = self.inboxes.keys().copied().collect();
            self.inboxes.insert(me, Inbox::new());
            for other in others {
                self.tell(Instant::ZERO, (me, other), News::Came);
            }
        }
        Port { network: self, me }
    }

    /// Takes a host away, with what was under way to it.
    pub fn remove(&mut self, now: Instant, host: HostId) {
        self.inboxes.remove(&host);
        self.news.remove(&host);
        let others: Vec<HostId> = self.inboxes.keys().copied().collect();
        for other in others {
            self.note(now + self.latency, other, News::Gone(host));
        }
    }

    /// Loses all that two hosts send to each other from now on.
    pub fn cut(&mut self, now: Instant, one: HostId, other: HostId) {
        self.cut.extend([(one, other), (other, one)]);
        if let Some(lease) = self.detector {
            self.tell(now + lease, (one, other), News::Gone);
        }
    }

    /// Ends a cut.
    pub fn heal(&mut self, now: Instant, one: HostId, other: HostId) {
        self.cut.remove(&(one, other));
        self.cut.remove(&(other, one));
        self.tell(now + self.latency, (one, other), News::Came);
    }

    /// When the next message arrives anywhere.
    pub fn poll_at(&self) -> Option<Instant> {
        let firsts = self.inboxes.values().filter_map(|inbox| inbox.keys().next());
        let news = self.news.values().filter_map(|news| news.keys().next());
        firsts.chain(news).map(|(at, _)| *at).min()
    }

    /// Tells two hosts of each other.
    fn tell(&mut self, at: Instant, (one, other): (HostId, HostId), what: fn(HostId) -> News) {
        self.note(at, one, what(other));
        self.note(at, other, what(one));
    }

    fn note(&mut self, at: Instant, host: HostId, news: News) {
        if self.detector.is_some() {
            self.sent += 1;
            self.news.entry(host).or_default().insert((at, self.sent), news);
        }
    }

    fn loses(&mut self) -> bool {
        // Xorshift: enough to choose by.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.lost_of > 0 && self.seed.is_multiple_of(self.lost_of)
    }

    fn carry(&mut self, now: Instant, from: HostId, to: HostId, bytes: &[u8]) {
        if self.cut.contains(&(from, to)) || self.loses() {
            return;
        }
        if let Some(inbox) = self.inboxes.get_mut(&to) {
            self.sent += 1;
            inbox.insert((now + self.latency, self.sent), (from, bytes.to_vec()));
        }
    }
}

/// A host's side of a [`Network`].
#[derive(Debug)]
pub struct Port<'n> {
    network: &'n mut Network,
    me: HostId,
}

impl Transport for Port<'_> {
    fn send(&mut self, now: Instant, to: HostId, bytes: &[u8]) {
        self.network.carry(now, self.me, to, bytes);
    }

    fn announce(&mut self, now: Instant, bytes: &[u8]) {
        let all: Vec<HostId> = self.network.inboxes.keys().copied().collect();
        for to in all.into_iter().filter(|to| *to != self.me) {
            self.network.carry(now, self.me, to, bytes);
        }
    }

    fn poll(&mut self, now: Instant) -> Option<(HostId, &[u8])> {
        let inbox = self.network.inboxes.get_mut(&self.me)?;
        let first = inbox.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let (from, bytes) = first.remove();
        self.network.current = bytes;
        Some((from, &self.network.current))
    }

    fn notices(&self) -> bool {
        self.network.detector.is_some()
    }

    fn poll_news(&mut self, now: Instant) -> Option<News> {
        let first = self.network.news.get_mut(&self.me)?.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

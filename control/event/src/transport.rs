//! What carries bytes between hosts; and a network in memory, under virtual time, for tests and
//! simulations.

use std::collections::{BTreeMap, BTreeSet};

use selvedge_units::{Instant, Span};

/// A host, as the transport knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// Carries messages between hosts: whole, in order between each two, now and then not at all.
pub trait Transport {
    /// Sends a message to a host. It may be lost; the sender never waits.
    fn send(&mut self, now: Instant, to: HostId, bytes: &[u8]);

    /// Sends a message to every host that can be reached.
    fn announce(&mut self, now: Instant, bytes: &[u8]);

    /// The next message that has come.
    fn poll(&mut self, now: Instant) -> Option<(HostId, &[u8])>;
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
}

impl Network {
    /// Without hosts yet.
    pub fn new(latency: Span) -> Self {
        let (inboxes, cut) = (BTreeMap::new(), BTreeSet::new());
        Self { latency, sent: 0, inboxes, cut, current: Vec::new() }
    }

    /// A host's side of it; the host is there from its first use on.
    pub fn port(&mut self, me: HostId) -> Port<'_> {
        self.inboxes.entry(me).or_default();
        Port { network: self, me }
    }

    /// Takes a host away, with what was under way to it.
    pub fn remove(&mut self, host: HostId) {
        self.inboxes.remove(&host);
    }

    /// Loses all that two hosts send to each other from now on.
    pub fn cut(&mut self, one: HostId, other: HostId) {
        self.cut.extend([(one, other), (other, one)]);
    }

    /// Ends a cut.
    pub fn heal(&mut self, one: HostId, other: HostId) {
        self.cut.remove(&(one, other));
        self.cut.remove(&(other, one));
    }

    /// When the next message arrives anywhere.
    pub fn poll_at(&self) -> Option<Instant> {
        let firsts = self.inboxes.values().filter_map(|inbox| inbox.keys().next());
        firsts.map(|(at, _)| *at).min()
    }

    fn carry(&mut self, now: Instant, from: HostId, to: HostId, bytes: &[u8]) {
        if self.cut.contains(&(from, to)) {
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
}

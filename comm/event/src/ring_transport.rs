//! Hosts on this machine: messages to them go through rings in shared memory, once both ends are
//! ready, and through the engine until then and whenever rings fail. The switch loses, duplicates
//! and reorders nothing: a source marks its last message by the engine, and the sink reads the ring
//! after it. A ring is made at the first event for it.

use std::collections::{HashMap, HashSet, VecDeque};

use selvedge_comm_local::{JoinError, PeerId, PutOutcome, RingEvent, RingPeers};
use selvedge_control_event::HostId;
use selvedge_units::{Duration, Instant};

use crate::keys;
use crate::message::{Machine, RingMessage};

/// When a request without an answer is repeated, at first; the interval doubles each time.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(64);
/// The longest time for making a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// How long messages in a ring wait for the switch message from the engine.
pub(crate) const EARLY: Duration = Duration::from_millis(250);
/// The limit of these messages, in bytes.
const EARLY_MAX: usize = 1 << 20;
/// The largest number of rings, in each direction.
const RINGS_MAX: usize = 120;

/// The state of the ring to a host that events are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingState {
    /// The ring was requested at this time, after this number of earlier requests.
    Requested(Instant, u32),
    /// A connection is being made.
    Connecting(PeerId, Instant),
    /// All messages go through this ring; the flag states whether the host has confirmed that it reads it.
    Ring(PeerId, bool),
    /// The host is on another machine.
    Far,
}

/// The traffic that goes through memory, and not through the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// The number of hosts that are sent to this way, and of hosts that are received from.
    pub hosts: (usize, usize),
    /// Messages put into rings.
    pub sent: u64,
    /// Messages that were dropped, since a reader was slow and its ring full.
    pub dropped: u64,
    /// Messages taken out of rings.
    pub taken: u64,
    /// Messages that were lost, since this process was slow.
    pub missed: u64,
}

/// Messages that arrived and wait.
type Waiting = VecDeque<(HostId, Vec<u8>)>;

/// The hosts of this machine.
#[derive(Debug)]
pub(crate) struct RingTransport {
    links: RingPeers,
    name: String,
    machine: Machine,
    out_rings: HashMap<HostId, RingState>,
    /// The number of hosts that have not confirmed their ring, and when the switch was last sent to them.
    unacknowledged: usize,
    last_resend: Instant,
    /// The host that each incoming ring belongs to.
    in_rings: HashMap<PeerId, HostId>,
    tokens: HashMap<String, HostId>,
    /// The hosts whose rings are read.
    active: HashSet<HostId>,
    /// Those of these hosts whose ring is gone, and since when.
    ended: HashMap<HostId, Instant>,
    /// Messages of rings that are not read yet, and since when.
    unread: Waiting,
    early_bytes: usize,
    early_since: Option<Instant>,
    /// The messages among them that may be read now.
    ready: Waiting,
    /// The place of the last found message: in a ring, or else here.
    found: Option<usize>,
    current: (HostId, Vec<u8>),
    /// Messages to be sent over the engine.
    outgoing: VecDeque<(HostId, Vec<u8>)>,
}

impl RingTransport {
    /// Prepares for rings; `None` if this machine can't be distinguished from others.
    pub(crate) fn new() -> Result<Option<Self>, JoinError> {
        let Some(machine) = Machine::this() else { return Ok(None) };
        let name = format!("selvedge-{}", keys::id());
        Ok(Some(Self {
            links: RingPeers::listen(&name)?,
            name,
            machine,
            out_rings: HashMap::new(),
            unacknowledged: 0,
            last_resend: Instant::ZERO,
            in_rings: HashMap::new(),
            tokens: HashMap::new(),
            active: HashSet::new(),
            ended: HashMap::new(),
            unread: VecDeque::new(),
            early_bytes: 0,
            early_since: None,
            ready: VecDeque::new(),
            found: None,
            current: (HostId(0), Vec::new()),
            outgoing: VecDeque::new(),
        }))
    }

    pub(crate) fn links(&mut self) -> &mut RingPeers {
        &mut self.links
    }

    pub(crate) fn view(&self) -> Rings {
        let (sent, dropped, came) = self.links.counts();
        let out = self.out_rings.values().filter(|out| matches!(out, RingState::Ring(..))).count();
        let hosts = (out, self.active.len());
        Rings { hosts, sent, dropped, taken: came.taken, missed: came.missed }
    }

    /// The next message to a host over the engine; it goes before anything else.
    pub(crate) fn poll_message(&mut self) -> Option<(HostId, Vec<u8>)> {
        self.outgoing.pop_front()
    }

    fn enqueue_message(&mut self, host: HostId, say: &RingMessage<'_>) {
        self.outgoing.push_back((host, say.encode()));
    }

    /// Handles rings that became ready or are gone.
    pub(crate) fn settle(&mut self, now: Instant) {
        for news in self.links.news() {
            let (RingEvent::Ready(peer) | RingEvent::Gone(peer)) = news;
            let of = |out: &RingState| matches!(*out, RingState::Connecting(p, _) | RingState::Ring(p, _) if p == peer);
            let host = self.out_rings.iter().find(|(_, out)| of(out)).map(|(host, _)| *host);
            match (news, host) {
                (RingEvent::Ready(_), Some(host)) => {
                    self.unacknowledged += 1;
                    self.out_rings.insert(host, RingState::Ring(peer, false));
                    self.last_resend = now;
                    self.enqueue_message(host, &RingMessage::SwitchToRing);
                }
                (RingEvent::Ready(_), None) => self.links.close(peer),
                (RingEvent::Gone(_), Some(host)) => self.lost(now, host),
                (RingEvent::Gone(_), None) => {}
            }
        }
        if self.unacknowledged > 0 && now.since(self.last_resend) > ASK_AGAIN {
            // The switch to hosts that have not confirmed it, or the confirmation, was lost.
            self.last_resend = now;
            let unread = |out: &RingState| matches!(out, RingState::Ring(_, false));
            let hosts = self.out_rings.iter().filter(|(_, out)| unread(out));
            let outgoing = hosts.map(|(host, _)| (*host, RingMessage::SwitchToRing.encode()));
            self.outgoing.extend(outgoing);
        }
    }

    /// Handles the loss of a ring to a host: the engine carries its messages again.
    fn lost(&mut self, now: Instant, host: HostId) {
        match self.out_rings.insert(host, RingState::Requested(now, 3)) {
            Some(RingState::Ring(_, is_seen)) => {
                self.unacknowledged -= usize::from(!is_seen);
                self.enqueue_message(host, &RingMessage::SwitchBack);
            }
            Some(RingState::Connecting(..)) | None => {}
            Some(other @ (RingState::Requested(..) | RingState::Far)) => {
                let _ = self.out_rings.insert(host, other);
            }
        }
    }

    /// Requests a ring to a host that has none and an event; repeats the request now and then.
    pub(crate) fn request_ring(&mut self, now: Instant, host: HostId) {
        let times = match self.out_rings.get(&host) {
            None if self.out_rings.len() >= RINGS_MAX && self.rings() >= RINGS_MAX => return,
            None => 0,
            Some(RingState::Requested(at, times)) => {
                let wait = Duration(ASK_AGAIN.0 << (*times).min(10)).min(ASK_AGAIN_MAX);
                if now.since(*at) < wait {
                    return;
                }
                times + 1
            }
            Some(RingState::Connecting(peer, at)) => {
                if now.since(*at) < CONNECT {
                    return;
                }
                let peer = *peer;
                self.links.close(peer);
                3
            }
            Some(RingState::Ring(..) | RingState::Far) => return,
        };
        self.out_rings.insert(host, RingState::Requested(now, times));
        self.enqueue_message(host, &RingMessage::Request(self.machine));
    }

    fn rings(&self) -> usize {
        let with =
            |out: &&RingState| matches!(out, RingState::Ring(..) | RingState::Connecting(..));
        self.out_rings.values().filter(with).count()
    }

    /// Whether all hosts with rings have confirmed that they read only the ring.
    pub(crate) fn is_settled(&self) -> bool {
        self.unacknowledged == 0
    }

    /// Whether messages to a host go by a ring.
    pub(crate) fn has_ring_to(&self, host: HostId) -> bool {
        matches!(self.out_rings.get(&host), Some(RingState::Ring(..)))
    }

    /// Whether messages from a host come by a ring.
    pub(crate) fn reads_ring_of(&self, host: HostId) -> bool {
        self.active.contains(&host)
    }

    /// The hosts that are reached by rings.
    pub(crate) fn ring_peers(&self) -> Vec<HostId> {
        let hosts = self.out_rings.iter().filter(|(_, out)| matches!(out, RingState::Ring(..)));
        hosts.map(|(host, _)| *host).collect()
    }

    /// Puts a message into a host's ring, to be [flushed](RingPeers::flush), if the host has one.
    pub(crate) fn put(&mut self, now: Instant, host: HostId, bytes: &[u8]) -> PutOutcome {
        let Some(RingState::Ring(peer, _)) = self.out_rings.get(&host) else {
            return PutOutcome::Gone;
        };
        let put = self.links.put(*peer, bytes);
        if put == PutOutcome::Gone {
            self.lost(now, host);
        }
        put
    }

    /// Handles a message of a host over the engine.
    pub(crate) fn handle_message(&mut self, now: Instant, host: HostId, outgoing: &[u8]) {
        let Some(outgoing) = RingMessage::decode(outgoing) else { return };
        match outgoing {
            RingMessage::Request(machine) => {
                if machine != self.machine || self.in_rings.len() >= RINGS_MAX {
                    self.enqueue_message(host, &RingMessage::Refuse);
                    return;
                }
                // Earlier offers are no longer valid.
                self.tokens.retain(|_, of| *of != host);
                let links = &self.links;
                self.in_rings.retain(|peer, of| *of != host || links.token(*peer).is_some());
                let token = keys::id();
                self.links.admit_token(&token);
                let name = std::mem::take(&mut self.name);
                self.enqueue_message(host, &RingMessage::Offer { name: &name, token: &token });
                self.name = name;
                self.tokens.insert(token, host);
            }
            RingMessage::Offer { name, token } => {
                if !matches!(self.out_rings.get(&host), Some(RingState::Requested(..))) {
                    return;
                }
                let out = match self.links.connect(name, token) {
                    Ok(peer) => RingState::Connecting(peer, now),
                    Err(error) => {
                        tracing::debug!(%error, "a host of this machine can't be reached by a ring");
                        RingState::Far
                    }
                };
                self.out_rings.insert(host, out);
            }
            RingMessage::Refuse => {
                if matches!(self.out_rings.get(&host), Some(RingState::Requested(..))) {
                    self.out_rings.insert(host, RingState::Far);
                }
            }
            RingMessage::SwitchToRing if self.active.contains(&host) => {
                self.enqueue_message(host, &RingMessage::SwitchSeen)
            }
            RingMessage::SwitchToRing => self.activate(host),
            RingMessage::SwitchSeen => {
                if let Some(RingState::Ring(_, is_seen @ false)) = self.out_rings.get_mut(&host) {
                    *is_seen = true;
                    self.unacknowledged -= 1;
                }
            }
            RingMessage::SwitchBack => {
                self.active.remove(&host);
                self.ended.remove(&host);
            }
        }
    }

    /// Reads a host's ring from now on.
    fn activate(&mut self, host: HostId) {
        if !self.active.insert(host) {
            return;
        }
        self.enqueue_message(host, &RingMessage::SwitchSeen);
        for (from, bytes) in std::mem::take(&mut self.unread) {
            let to = if from == host { &mut self.ready } else { &mut self.unread };
            to.push_back((from, bytes));
        }
        self.early_bytes = self.unread.iter().map(|(_, bytes)| bytes.len()).sum();
        if self.unread.is_empty() {
            self.early_since = None;
        }
    }

    /// Hosts that use the engine again: their ring ended, and the message about it was lost.
    pub(crate) fn ended(&mut self, now: Instant) -> Vec<HostId> {
        let links = &self.links;
        let ended = |peer: &PeerId| links.token(*peer).is_none();
        for host in &self.active {
            let mut rings = self.in_rings.iter().filter(|(_, of)| *of == host).peekable();
            if rings.peek().is_some() && rings.all(|(peer, _)| ended(peer)) {
                self.ended.entry(*host).or_insert(now);
            } else {
                self.ended.remove(host);
            }
        }
        let is_due = |since: &Instant| now.since(*since) >= EARLY;
        let due = self.ended.iter().filter(|(_, since)| is_due(since)).map(|(host, _)| *host);
        let due: Vec<HostId> = due.collect();
        for host in &due {
            self.ended.remove(host);
            self.active.remove(host);
            self.in_rings.retain(|_, of| of != host);
        }
        due
    }

    /// Hosts whose ring has waited too long for the switch message, which was lost. The ring is
    /// read from now on, and the engine's messages are ignored.
    pub(crate) fn late_switches(&mut self, now: Instant) -> Vec<HostId> {
        let is_due = self.early_since.is_some_and(|since| now.since(since) >= EARLY);
        if !is_due && self.early_bytes <= EARLY_MAX {
            return Vec::new();
        }
        let mut hosts: Vec<HostId> = self.unread.iter().map(|(host, _)| *host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.iter().for_each(|host| self.activate(*host));
        hosts
    }

    /// When [`late_switches`](Self::late_switches) must be called.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.early_since.map(|since| since + EARLY)
    }

    /// Finds the next message of a ring, for [`message`](Self::message).
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if let Some(one) = self.ready.pop_front() {
            (self.current, self.found) = (one, None);
            return true;
        }
        while self.early_bytes <= EARLY_MAX
            && let Some(at) = self.links.take()
        {
            let (peer, bytes) = self.links.message(at);
            let host = match self.in_rings.get(&peer) {
                Some(host) => *host,
                None => {
                    let host = self.links.token(peer).and_then(|token| self.tokens.remove(token));
                    let Some(host) = host else {
                        self.links.close(peer);
                        continue;
                    };
                    self.in_rings.insert(peer, host);
                    host
                }
            };
            if self.active.contains(&host) {
                (self.current.0, self.found) = (host, Some(at));
                return true;
            }
            self.early_bytes += bytes.len();
            self.unread.push_back((host, bytes.to_vec()));
            self.early_since.get_or_insert(now);
        }
        false
    }

    /// The message that was found.
    pub(crate) fn message(&self) -> (HostId, &[u8]) {
        match self.found {
            Some(at) => (self.current.0, self.links.message(at).1),
            None => (self.current.0, &self.current.1),
        }
    }

    /// Whether messages of a host have arrived and are not read; if so, its ring is read from now
    /// on, since nothing more is expected over the engine.
    pub(crate) fn has_unread_of(&mut self, host: HostId) -> bool {
        let links = &mut self.links;
        let has = self.unread.iter().chain(&self.ready).any(|(from, _)| *from == host)
            || self.in_rings.iter().any(|(peer, of)| *of == host && links.has_unread_of(*peer))
            || self.tokens.iter().any(|(token, of)| *of == host && links.has_by(token));
        if has {
            self.activate(host);
        }
        has
    }

    /// Forgets a host that is gone.
    pub(crate) fn forget(&mut self, host: HostId) {
        match self.out_rings.remove(&host) {
            Some(RingState::Ring(peer, is_seen)) => {
                self.unacknowledged -= usize::from(!is_seen);
                self.links.close(peer);
            }
            Some(RingState::Connecting(peer, _)) => self.links.close(peer),
            Some(RingState::Requested(..) | RingState::Far) | None => {}
        }
        let peers: Vec<PeerId> =
            self.in_rings.iter().filter(|(_, of)| **of == host).map(|(peer, _)| *peer).collect();
        for peer in peers {
            self.in_rings.remove(&peer);
            self.links.close(peer);
        }
        self.tokens.retain(|_, of| *of != host);
        self.active.remove(&host);
        self.ended.remove(&host);
        self.unread.retain(|(from, _)| *from != host);
        self.early_bytes = self.unread.iter().map(|(_, bytes)| bytes.len()).sum();
        if self.unread.is_empty() {
            self.early_since = None;
        }
        self.ready.retain(|(from, _)| *from != host);
    }
}

#[cfg(test)]
mod tests;

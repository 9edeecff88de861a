//! Hosts on this machine: what goes to them goes through rings in shared memory, once both ends are ready,
//! and through the engine until then and whenever that fails. Nothing is lost, doubled or overtaken at
//! the change: a source's last message by the engine says that it is, and the sink reads the ring from
//! there on. A ring is made when there is a first event for it.

use std::collections::{HashMap, HashSet, VecDeque};

use selvedge_comm_local::{JoinError, PeerId, PutOutcome, RingEvent, RingPeers};
use selvedge_control_event::HostId;
use selvedge_units::{Duration, Instant};

use crate::keys;
use crate::message::{Machine, RingMessage};

/// When a host is asked again that did not answer, at first; twice as late each time.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(64);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long what came by a ring waits for the word that nothing more comes by the engine.
pub(crate) const EARLY: Duration = Duration::from_millis(250);
/// The most of that, in bytes.
const EARLY_MAX: usize = 1 << 20;
/// The most rings, each way.
const RINGS_MAX: usize = 120;

/// How far a host is that events are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingState {
    /// It was asked, so often, and this long ago.
    Requested(Instant, u32),
    /// A connection is being made.
    Connecting(PeerId, Instant),
    /// All goes through this ring; whether it has said that it hears it.
    Ring(PeerId, bool),
    /// It is not here.
    Far,
}

/// What goes through memory, and not through the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// How many hosts are reached so, and how many are heard.
    pub hosts: (usize, usize),
    /// Messages put into rings.
    pub sent: u64,
    /// Not put, since a reader was slow and its ring full.
    pub dropped: u64,
    /// Messages taken out of rings.
    pub taken: u64,
    /// Not got: this process was slow.
    pub missed: u64,
}

/// A message that has come, and waits.
type Waiting = VecDeque<(HostId, Vec<u8>)>;

/// The hosts of this machine.
#[derive(Debug)]
pub(crate) struct RingTransport {
    links: RingPeers,
    name: String,
    machine: Machine,
    out_rings: HashMap<HostId, RingState>,
    /// How many hosts have not said that they hear their ring, and when they were told last.
    unacknowledged: usize,
    last_resend: Instant,
    /// Whose ring each is.
    in_rings: HashMap<PeerId, HostId>,
    tokens: HashMap<String, HostId>,
    /// Whose ring is read.
    active: HashSet<HostId>,
    /// Those of them whose ring is gone, and since when.
    ended: HashMap<HostId, Instant>,
    /// What came by rings that are not read yet, and since when.
    unread: Waiting,
    early_bytes: usize,
    early_since: Option<Instant>,
    /// What of it may be read now.
    ready: Waiting,
    /// What was found last: in a ring, or else here.
    found: Option<usize>,
    current: (HostId, Vec<u8>),
    /// To be said over the engine.
    outgoing: VecDeque<(HostId, Vec<u8>)>,
}

impl RingTransport {
    /// Ready for rings; `None` where a machine can't be told from others.
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

    /// What is to be said to a host over the engine, before anything else.
    pub(crate) fn poll_message(&mut self) -> Option<(HostId, Vec<u8>)> {
        self.outgoing.pop_front()
    }

    fn enqueue_message(&mut self, host: HostId, say: &RingMessage<'_>) {
        self.outgoing.push_back((host, say.encode()));
    }

    /// Takes note of rings that are ready or gone.
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
            self.resend_switch(now);
        }
    }

    /// Tells those again who have not said that they hear their ring: one or the other word was lost.
    fn resend_switch(&mut self, now: Instant) {
        self.last_resend = now;
        let unacknowledged =
            self.out_rings.iter().filter(|(_, out)| matches!(out, RingState::Ring(_, false)));
        let outgoing = unacknowledged.map(|(host, _)| (*host, RingMessage::SwitchToRing.encode()));
        self.outgoing.extend(outgoing);
    }

    /// A ring to a host is gone: the engine has it again.
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

    /// There is an event for a host that has no ring: asks it, now and then.
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

    /// Whether all whom rings reach have said that they hear them only.
    pub(crate) fn is_settled(&self) -> bool {
        self.unacknowledged == 0
    }

    /// Whether a host is reached by a ring.
    pub(crate) fn has_ring_to(&self, host: HostId) -> bool {
        matches!(self.out_rings.get(&host), Some(RingState::Ring(..)))
    }

    /// Whether what comes from a host comes by a ring.
    pub(crate) fn reads_ring_of(&self, host: HostId) -> bool {
        self.active.contains(&host)
    }

    /// The hosts that rings reach.
    pub(crate) fn ring_peers(&self) -> Vec<HostId> {
        let hosts = self.out_rings.iter().filter(|(_, out)| matches!(out, RingState::Ring(..)));
        hosts.map(|(host, _)| *host).collect()
    }

    /// Puts a message into a host's ring, to be [flushed](Links::flush), if it has one.
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

    /// A host has said something over the engine.
    pub(crate) fn handle_message(&mut self, now: Instant, host: HostId, outgoing: &[u8]) {
        let Some(outgoing) = RingMessage::decode(outgoing) else { return };
        match outgoing {
            RingMessage::Request(machine) => {
                if machine != self.machine || self.in_rings.len() >= RINGS_MAX {
                    self.enqueue_message(host, &RingMessage::Refuse);
                    return;
                }
                // What was offered before is of no use any more.
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

    /// A host's ring is read from now on.
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

    /// Hosts that are heard by the engine again: their ring ended, and the word of it was lost.
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

    /// Hosts whose ring has waited too long for the word that was lost on its way: it is read, and
    /// they are not heard by the engine.
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

    /// When [`overdue`](Self::overdue) is to be asked.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.early_since.map(|since| since + EARLY)
    }

    /// Finds the next message that has come by a ring, for [`mail`](Self::mail).
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

    /// What was found.
    pub(crate) fn message(&self) -> (HostId, &[u8]) {
        match self.found {
            Some(at) => (self.current.0, self.links.message(at).1),
            None => (self.current.0, &self.current.1),
        }
    }

    /// Whether something of a host's has come and is not read; nothing more is expected over the
    /// engine.
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

    /// A host is gone.
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

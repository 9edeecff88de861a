//! Hosts on this machine: what goes to them goes through rings in shared memory, once both ends are ready,
//! and through the engine until then and whenever that fails. Nothing is lost, doubled or overtaken at
//! the change: a source's last message by the engine says that it is, and the sink reads the ring from
//! there on. A ring is made when there is a first event for it.

use std::collections::{HashMap, HashSet, VecDeque};

use selvedge_comm_local::{JoinError, PeerId, PutOutcome, RingEvent, RingPeers};
use selvedge_control_event::HostId;
use selvedge_units::{Duration, Instant};

use crate::keys;
use crate::say::{Machine, Say};

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
enum Out {
    /// It was asked, so often, and this long ago.
    Asked(Instant, u32),
    /// A connection is being made.
    Calling(PeerId, Instant),
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
pub(crate) struct Near {
    links: RingPeers,
    name: String,
    machine: Machine,
    outs: HashMap<HostId, Out>,
    /// How many hosts have not said that they hear their ring, and when they were told last.
    unseen: usize,
    told: Instant,
    /// Whose ring each is.
    ins: HashMap<PeerId, HostId>,
    words: HashMap<String, HostId>,
    /// Whose ring is read.
    active: HashSet<HostId>,
    /// Those of them whose ring is gone, and since when.
    ended: HashMap<HostId, Instant>,
    /// What came by rings that are not read yet, and since when.
    early: Waiting,
    early_bytes: usize,
    early_since: Option<Instant>,
    /// What of it may be read now.
    ready: Waiting,
    /// What was found last: in a ring, or else here.
    found: Option<usize>,
    current: (HostId, Vec<u8>),
    /// To be said over the engine.
    said: VecDeque<(HostId, Vec<u8>)>,
}

impl Near {
    /// Ready for rings; `None` where a machine can't be told from others.
    pub(crate) fn new() -> Result<Option<Self>, JoinError> {
        let Some(machine) = Machine::this() else { return Ok(None) };
        let name = format!("selvedge-{}", keys::id());
        Ok(Some(Self {
            links: RingPeers::listen(&name)?,
            name,
            machine,
            outs: HashMap::new(),
            unseen: 0,
            told: Instant::ZERO,
            ins: HashMap::new(),
            words: HashMap::new(),
            active: HashSet::new(),
            ended: HashMap::new(),
            early: VecDeque::new(),
            early_bytes: 0,
            early_since: None,
            ready: VecDeque::new(),
            found: None,
            current: (HostId(0), Vec::new()),
            said: VecDeque::new(),
        }))
    }

    pub(crate) fn links(&mut self) -> &mut RingPeers {
        &mut self.links
    }

    pub(crate) fn view(&self) -> Rings {
        let (sent, dropped, came) = self.links.counts();
        let out = self.outs.values().filter(|out| matches!(out, Out::Ring(..))).count();
        let hosts = (out, self.active.len());
        Rings { hosts, sent, dropped, taken: came.taken, missed: came.missed }
    }

    /// What is to be said to a host over the engine, before anything else.
    pub(crate) fn poll_said(&mut self) -> Option<(HostId, Vec<u8>)> {
        self.said.pop_front()
    }

    fn say(&mut self, host: HostId, say: &Say<'_>) {
        self.said.push_back((host, say.encode()));
    }

    /// Takes note of rings that are ready or gone.
    pub(crate) fn settle(&mut self, now: Instant) {
        for news in self.links.news() {
            let (RingEvent::Ready(peer) | RingEvent::Gone(peer)) = news;
            let of = |out: &Out| matches!(*out, Out::Calling(p, _) | Out::Ring(p, _) if p == peer);
            let host = self.outs.iter().find(|(_, out)| of(out)).map(|(host, _)| *host);
            match (news, host) {
                (RingEvent::Ready(_), Some(host)) => {
                    self.unseen += 1;
                    self.outs.insert(host, Out::Ring(peer, false));
                    self.told = now;
                    self.say(host, &Say::Near);
                }
                (RingEvent::Ready(_), None) => self.links.close(peer),
                (RingEvent::Gone(_), Some(host)) => self.lost(now, host),
                (RingEvent::Gone(_), None) => {}
            }
        }
        if self.unseen > 0 && now.since(self.told) > ASK_AGAIN {
            self.tell_again(now);
        }
    }

    /// Tells those again who have not said that they hear their ring: one or the other word was lost.
    fn tell_again(&mut self, now: Instant) {
        self.told = now;
        let unseen = self.outs.iter().filter(|(_, out)| matches!(out, Out::Ring(_, false)));
        let said = unseen.map(|(host, _)| (*host, Say::Near.encode()));
        self.said.extend(said);
    }

    /// A ring to a host is gone: the engine has it again.
    fn lost(&mut self, now: Instant, host: HostId) {
        match self.outs.insert(host, Out::Asked(now, 3)) {
            Some(Out::Ring(_, is_seen)) => {
                self.unseen -= usize::from(!is_seen);
                self.say(host, &Say::Back);
            }
            Some(Out::Calling(..)) | None => {}
            Some(other @ (Out::Asked(..) | Out::Far)) => drop(self.outs.insert(host, other)),
        }
    }

    /// There is an event for a host that has no ring: asks it, now and then.
    pub(crate) fn wish(&mut self, now: Instant, host: HostId) {
        let times = match self.outs.get(&host) {
            None if self.outs.len() >= RINGS_MAX && self.rings() >= RINGS_MAX => return,
            None => 0,
            Some(Out::Asked(at, times)) => {
                let wait = Duration(ASK_AGAIN.0 << (*times).min(10)).min(ASK_AGAIN_MAX);
                if now.since(*at) < wait {
                    return;
                }
                times + 1
            }
            Some(Out::Calling(peer, at)) => {
                if now.since(*at) < CONNECT {
                    return;
                }
                let peer = *peer;
                self.links.close(peer);
                3
            }
            Some(Out::Ring(..) | Out::Far) => return,
        };
        self.outs.insert(host, Out::Asked(now, times));
        self.say(host, &Say::Wish(self.machine));
    }

    fn rings(&self) -> usize {
        let with = |out: &&Out| matches!(out, Out::Ring(..) | Out::Calling(..));
        self.outs.values().filter(with).count()
    }

    /// Whether all whom rings reach have said that they hear them only.
    pub(crate) fn is_settled(&self) -> bool {
        self.unseen == 0
    }

    /// Whether a host is reached by a ring.
    pub(crate) fn reaches(&self, host: HostId) -> bool {
        matches!(self.outs.get(&host), Some(Out::Ring(..)))
    }

    /// Whether what comes from a host comes by a ring.
    pub(crate) fn hears(&self, host: HostId) -> bool {
        self.active.contains(&host)
    }

    /// The hosts that rings reach.
    pub(crate) fn reached(&self) -> Vec<HostId> {
        let hosts = self.outs.iter().filter(|(_, out)| matches!(out, Out::Ring(..)));
        hosts.map(|(host, _)| *host).collect()
    }

    /// Puts a message into a host's ring, to be [flushed](Links::flush), if it has one.
    pub(crate) fn put(&mut self, now: Instant, host: HostId, bytes: &[u8]) -> PutOutcome {
        let Some(Out::Ring(peer, _)) = self.outs.get(&host) else { return PutOutcome::Gone };
        let put = self.links.put(*peer, bytes);
        if put == PutOutcome::Gone {
            self.lost(now, host);
        }
        put
    }

    /// A host has said something over the engine.
    pub(crate) fn hear(&mut self, now: Instant, host: HostId, said: &[u8]) {
        let Some(said) = Say::decode(said) else { return };
        match said {
            Say::Wish(machine) => {
                if machine != self.machine || self.ins.len() >= RINGS_MAX {
                    self.say(host, &Say::Far);
                    return;
                }
                // What was offered before is of no use any more.
                self.words.retain(|_, of| *of != host);
                let links = &self.links;
                self.ins.retain(|peer, of| *of != host || links.word(*peer).is_some());
                let word = keys::id();
                self.links.admit_token(&word);
                let name = std::mem::take(&mut self.name);
                self.say(host, &Say::Offer { name: &name, word: &word });
                self.name = name;
                self.words.insert(word, host);
            }
            Say::Offer { name, word } => {
                if !matches!(self.outs.get(&host), Some(Out::Asked(..))) {
                    return;
                }
                let out = match self.links.connect(name, word) {
                    Ok(peer) => Out::Calling(peer, now),
                    Err(error) => {
                        tracing::debug!(%error, "a host of this machine can't be reached by a ring");
                        Out::Far
                    }
                };
                self.outs.insert(host, out);
            }
            Say::Far => {
                if matches!(self.outs.get(&host), Some(Out::Asked(..))) {
                    self.outs.insert(host, Out::Far);
                }
            }
            Say::Near if self.active.contains(&host) => self.say(host, &Say::Seen),
            Say::Near => self.activate(host),
            Say::Seen => {
                if let Some(Out::Ring(_, is_seen @ false)) = self.outs.get_mut(&host) {
                    *is_seen = true;
                    self.unseen -= 1;
                }
            }
            Say::Back => {
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
        self.say(host, &Say::Seen);
        for (from, bytes) in std::mem::take(&mut self.early) {
            let to = if from == host { &mut self.ready } else { &mut self.early };
            to.push_back((from, bytes));
        }
        self.early_bytes = self.early.iter().map(|(_, bytes)| bytes.len()).sum();
        if self.early.is_empty() {
            self.early_since = None;
        }
    }

    /// Hosts that are heard by the engine again: their ring ended, and the word of it was lost.
    pub(crate) fn ended(&mut self, now: Instant) -> Vec<HostId> {
        let links = &self.links;
        let ended = |peer: &PeerId| links.word(*peer).is_none();
        for host in &self.active {
            let mut rings = self.ins.iter().filter(|(_, of)| *of == host).peekable();
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
            self.ins.retain(|_, of| of != host);
        }
        due
    }

    /// Hosts whose ring has waited too long for the word that was lost on its way: it is read, and
    /// they are not heard by the engine.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<HostId> {
        let is_due = self.early_since.is_some_and(|since| now.since(since) >= EARLY);
        if !is_due && self.early_bytes <= EARLY_MAX {
            return Vec::new();
        }
        let mut hosts: Vec<HostId> = self.early.iter().map(|(host, _)| *host).collect();
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
            let host = match self.ins.get(&peer) {
                Some(host) => *host,
                None => {
                    let host = self.links.word(peer).and_then(|word| self.words.remove(word));
                    let Some(host) = host else {
                        self.links.close(peer);
                        continue;
                    };
                    self.ins.insert(peer, host);
                    host
                }
            };
            if self.active.contains(&host) {
                (self.current.0, self.found) = (host, Some(at));
                return true;
            }
            self.early_bytes += bytes.len();
            self.early.push_back((host, bytes.to_vec()));
            self.early_since.get_or_insert(now);
        }
        false
    }

    /// What was found.
    pub(crate) fn mail(&self) -> (HostId, &[u8]) {
        match self.found {
            Some(at) => (self.current.0, self.links.message(at).1),
            None => (self.current.0, &self.current.1),
        }
    }

    /// Whether something of a host's has come and is not read; nothing more is expected over the
    /// engine.
    pub(crate) fn has_of(&mut self, host: HostId) -> bool {
        let links = &mut self.links;
        let has = self.early.iter().chain(&self.ready).any(|(from, _)| *from == host)
            || self.ins.iter().any(|(peer, of)| *of == host && links.has_of(*peer))
            || self.words.iter().any(|(word, of)| *of == host && links.has_by(word));
        if has {
            self.activate(host);
        }
        has
    }

    /// A host is gone.
    pub(crate) fn forget(&mut self, host: HostId) {
        match self.outs.remove(&host) {
            Some(Out::Ring(peer, is_seen)) => {
                self.unseen -= usize::from(!is_seen);
                self.links.close(peer);
            }
            Some(Out::Calling(peer, _)) => self.links.close(peer),
            Some(Out::Asked(..) | Out::Far) | None => {}
        }
        let peers: Vec<PeerId> =
            self.ins.iter().filter(|(_, of)| **of == host).map(|(peer, _)| *peer).collect();
        for peer in peers {
            self.ins.remove(&peer);
            self.links.close(peer);
        }
        self.words.retain(|_, of| *of != host);
        self.active.remove(&host);
        self.ended.remove(&host);
        self.early.retain(|(from, _)| *from != host);
        self.early_bytes = self.early.iter().map(|(_, bytes)| bytes.len()).sum();
        if self.early.is_empty() {
            self.early_since = None;
        }
        self.ready.retain(|(from, _)| *from != host);
    }
}

#[cfg(test)]
mod tests;

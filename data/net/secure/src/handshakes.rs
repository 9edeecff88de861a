//! The handshakes of one endpoint, as initiator and as responder.
//!
//! The initiator sends probes until it knows the round-trip time; each echo carries a cookie. Then the
//! initiator sends its hello until a welcome or a refusal arrives, with a new cookie each time. The responder
//! keeps a hello's state for 3 s, half open. A connection is confirmed when a packet sealed with its keys
//! arrives, so a replayed hello opens none.
//!
//! An end that receives a packet of an unknown connection answers with `unknown`: a process that was killed
//! may have had the connection. Any host can forge that answer, so it only makes the sender open another
//! connection.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use selvedge_units::{Duration, Instant};
use snow::HandshakeState;

use crate::cookie::{COOKIE, Cookies};
use crate::key::{Key, Keys, PublicKey};
use crate::message::{FRONT, HELLO_MIN, Kind, LONGEST, Message, PAYLOAD_MAX, ProposeError};
use crate::noise::{self, Identity};
use crate::packet::{Opener, Sealer};

/// How often a probe or a hello is sent, and the time between.
const ATTEMPTS_MAX: u32 = 30;
const WAIT: Duration = Duration::from_millis(100);
/// This number of probes measures the round-trip time, of which the shortest counts; none is sent after this
/// time.
const PROBES: u32 = 4;
const PROBING: Duration = Duration::from_millis(2);
/// While the initiator waits for a cookie it answers this number of echoes: some may be forged.
const ECHOES_MAX: u32 = 8;
/// From this number of half-open connections on a hello needs a cookie; this is the most of them,
const COOKIES_FROM: usize = 16;
const HALF_OPEN_MAX: usize = 64;
/// and how long each is kept.
const HALF_OPEN: Duration = Duration::from_secs(3);
/// The shortest time between two `unknown` messages.
const UNKNOWN: Duration = Duration::from_millis(5);
/// The number of hellos that are remembered.
const RECENT_MAX: usize = 1024;

/// A datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// A connection's keys, at one end.
#[derive(Debug)]
pub struct Session {
    /// For packets that it sends.
    pub sealer: Sealer,
    /// For packets that it receives.
    pub opener: Opener,
    /// For modules that do their own encryption.
    pub module_keys: Keys,
    /// The static key of the other end, if it has one.
    pub peer: Option<PublicKey>,
}

impl Session {
    fn new(connection: u32, state: &mut HandshakeState, initiator: bool, now: Instant) -> Self {
        let Keys { send, receive } = noise::keys(state, initiator);
        let module = "selvedge module key";
        Self {
            module_keys: Keys { send: send.derived(module), receive: receive.derived(module) },
            sealer: Sealer::new(connection, send, now),
            opener: Opener::new(connection, receive),
            peer: remote_key(state),
        }
    }
}

fn remote_key(state: &HandshakeState) -> Option<PublicKey> {
    state.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey)
}

/// A hello of an initiator that has the keys.
pub struct Hello {
    /// The connection.
    pub connection: u32,
    /// The initiator's address.
    pub from: SocketAddr,
    /// The initiator's proposal.
    pub payload: Vec<u8>,
    /// The initiator's static key.
    pub peer: Option<PublicKey>,
    state: HandshakeState,
    ephemeral: [u8; 32],
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hello({:08x} from {})", self.connection, self.from)
    }
}

/// An event for the caller.
#[derive(Debug)]
pub enum Event<T> {
    /// The round-trip time is known: the caller may now [`propose`](Handshakes::propose).
    Reached {
        /// The connection.
        connection: u32,
        /// The shortest round-trip time.
        there_and_back: Duration,
    },
    /// The caller must now [`answer`](Handshakes::answer) or [`refuse`](Handshakes::refuse).
    Hello(Box<Hello>),
    /// The other end accepts.
    Welcomed {
        /// The connection.
        connection: u32,
        /// Its answer.
        payload: Vec<u8>,
        /// The keys.
        session: Box<Session>,
    },
    /// The other end refuses.
    Refused {
        /// The connection.
        connection: u32,
        /// The reason.
        why: Vec<u8>,
    },
    /// No answer arrives.
    Silent {
        /// The connection.
        connection: u32,
    },
    /// A datagram from the other end's address claims that the other end does not know the connection.
    Unknown {
        /// The connection.
        connection: u32,
        /// The address.
        from: SocketAddr,
    },
    /// The initiator of a half-open connection did not confirm it.
    Expired {
        /// The connection.
        connection: u32,
        /// The caller's value for it.
        kept: T,
    },
}

/// A confirmed connection.
#[derive(Debug)]
pub struct Confirmed<T> {
    /// The other end.
    pub from: SocketAddr,
    /// The keys.
    pub session: Session,
    /// The caller's value for it.
    pub kept: T,
}

/// Datagrams of handshakes that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Not of a handshake, of another version, or for an unknown connection.
    pub malformed: u64,
    /// From an end of another kind: it has no secret or key, or a key where this one has a secret.
    pub unsealed: u64,
    /// Not made with the right secret or key, or changed on the path.
    pub forged: u64,
    /// Hellos that arrived before.
    pub replayed: u64,
    /// Hellos without a cookie while many connections are half open.
    pub without_cookie: u64,
    /// Hellos while all places for half-open connections are taken.
    pub crowded: u64,
    /// Hellos by static keys that are not allowed.
    pub unknown_peers: u64,
}

impl Counts {
    /// The reasons with a count above zero, with their names.
    pub fn by_reason(self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { malformed, unsealed, forged, replayed, without_cookie, crowded, unknown_peers } =
            self;
        let all = [
            ("malformed", malformed),
            ("unsealed", unsealed),
            ("forged", forged),
            ("replayed", replayed),
            ("without cookie", without_cookie),
            ("crowded", crowded),
            ("unknown peer", unknown_peers),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

struct Attempt {
    to: SocketAddr,
    peer: Option<PublicKey>,
    nonce: [u8; 8],
    began: Instant,
    sent: u32,
    retry_at: Instant,
    echoes: u32,
    shortest: Option<Duration>,
    is_reached: bool,
    cookie: [u8; COOKIE],
    /// Once there is a proposal: the Noise message.
    hello: Option<(HandshakeState, Vec<u8>)>,
}

struct HalfOpen<T> {
    from: SocketAddr,
    ephemeral: [u8; 32],
    welcome: Vec<u8>,
    until: Instant,
    /// `None` if it was refused.
    session: Option<(Session, T)>,
}

/// All handshakes of an endpoint. `T` is the caller's value for a half-open connection.
pub struct Handshakes<T> {
    identity: Identity,
    allowed: Vec<PublicKey>,
    cookies: Cookies,
    attempts: BTreeMap<u32, Attempt>,
    half_open: BTreeMap<u32, HalfOpen<T>>,
    recent: VecDeque<[u8; 32]>,
    /// When the next `unknown` message may be sent.
    unknown_at: Instant,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event<T>>,
    counts: Counts,
}

impl<T> std::fmt::Debug for Handshakes<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshakes").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl<T> Handshakes<T> {
    /// An endpoint without handshakes. The seed is random and used for nothing else.
    #[must_use]
    pub fn new(identity: Identity, seed: &Key) -> Self {
        Self {
            identity,
            allowed: Vec::new(),
            cookies: Cookies::new(seed),
            attempts: BTreeMap::new(),
            half_open: BTreeMap::new(),
            recent: VecDeque::new(),
            unknown_at: Instant::ZERO,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// With static keys: sets the peers that may connect from now on. Half-open connections of others are
    /// removed; live connections are up to the caller.
    pub fn allow(&mut self, peers: Vec<PublicKey>) {
        self.allowed = peers;
        let allowed = &self.allowed;
        let revoked = self.half_open.extract_if(.., |_, half| {
            let peer = half.session.as_ref().and_then(|(session, _)| session.peer);
            peer.is_some_and(|peer| !allowed.contains(&peer))
        });
        let expired = revoked.filter_map(|(connection, half)| {
            half.session.map(|(_, kept)| Event::Expired { connection, kept })
        });
        self.events.extend(expired);
    }

    /// The counts of dropped datagrams.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Begins to connect by sending probes. `peer` is the other end's static key; where only one is allowed
    /// it is that one. The number is random and new, and so is the seed.
    ///
    /// # Errors
    /// [`ProposeError::WhichPeer`]; [`ProposeError::Unknown`] if the number is in use.
    pub fn connect(
        &mut self,
        connection: u32,
        to: SocketAddr,
        peer: Option<PublicKey>,
        seed: &Key,
        now: Instant,
    ) -> Result<(), ProposeError> {
        let peer = match (&self.identity, &self.allowed[..]) {
            (Identity::Static(_), [only]) => Some(peer.unwrap_or(*only)),
            (Identity::Static(_), _) => Some(peer.ok_or(ProposeError::WhichPeer)?),
            _ => None,
        };
        if connection == 0 || self.attempts.contains_key(&connection) {
            return Err(ProposeError::Unknown(connection));
        }
        let mut nonce = [0; 8];
        nonce.copy_from_slice(&seed.0[..8]);
        let attempt = Attempt {
            to,
            peer,
            nonce,
            began: now,
            sent: 0,
            retry_at: now,
            echoes: 0,
            shortest: None,
            is_reached: false,
            cookie: [0; COOKIE],
            hello: None,
        };
        self.attempts.insert(connection, attempt);
        self.probe(connection, now);
        Ok(())
    }

    /// Sends a hello with this payload, now that the other end is [reached](Event::Reached). The seed is
    /// random and used for nothing else.
    pub fn propose(
        &mut self,
        connection: u32,
        payload: &[u8],
        seed: &Key,
        now: Instant,
    ) -> Result<(), ProposeError> {
        let attempt =
            self.attempts.get_mut(&connection).ok_or(ProposeError::Unknown(connection))?;
        if payload.len() > PAYLOAD_MAX {
            return Err(ProposeError::TooLong(payload.len()));
        }
        let mut padded = payload.to_vec();
        padded.resize(padded.len().max(HELLO_MIN), 0);
        let state = self.identity.begin(connection, seed, true, attempt.peer.as_ref());
        let mut state = state.map_err(|_| ProposeError::Noise)?;
        let hello = written(&mut state, &padded)?;
        let ephemeral = hello.first_chunk().copied();
        attempt.hello = Some((state, hello));
        (attempt.sent, attempt.retry_at) = (1, now + WAIT);
        // With a shared secret an end would accept its own hello, reflected to it, as another's.
        ephemeral.into_iter().for_each(|ephemeral| self.remember(ephemeral));
        self.send_hello(connection);
        Ok(())
    }

    fn remember(&mut self, ephemeral: [u8; 32]) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(ephemeral);
    }

    /// Stops connecting.
    pub fn abandon(&mut self, connection: u32) {
        self.attempts.remove(&connection);
    }

    /// Accepts the proposal of a hello. The connection is half open, until
    /// [`handle_packet`](Self::handle_packet) confirms it or it is [expired](Event::Expired).
    ///
    /// # Errors
    /// [`ProposeError`], and the caller's value.
    pub fn answer(
        &mut self,
        hello: Hello,
        payload: &[u8],
        kept: T,
        now: Instant,
    ) -> Result<(), (ProposeError, T)> {
        self.welcome(hello, 0, payload, Some(kept), now)
            .map_err(|(error, kept)| (error, kept.expect("it was given")))
    }

    /// Refuses a connection, with the reason; the initiator can check that the responder made the refusal.
    pub fn refuse(&mut self, hello: Hello, why: &str, now: Instant) {
        let end = (0..=why.len().min(HELLO_MIN / 2)).rfind(|&end| why.is_char_boundary(end));
        let why = &why[..end.unwrap_or(0)];
        // An initiator that receives no refusal gives up by itself.
        let _ = self.welcome(hello, 1, why.as_bytes(), None, now);
    }

    fn welcome(
        &mut self,
        hello: Hello,
        sort: u8,
        payload: &[u8],
        kept: Option<T>,
        now: Instant,
    ) -> Result<(), (ProposeError, Option<T>)> {
        let Hello { connection, from, mut state, ephemeral, .. } = hello;
        let mut text = vec![sort];
        text.extend_from_slice(payload);
        if text.len() > HELLO_MIN {
            return Err((ProposeError::TooLong(payload.len()), kept));
        }
        let body = match written(&mut state, &text) {
            Ok(body) => body,
            Err(error) => return Err((error, kept)),
        };
        let pattern = self.identity.pattern();
        let welcome = Message { kind: Kind::Welcome, pattern, connection, body: &body }.bytes();
        let session = kept.map(|kept| (Session::new(connection, &mut state, false, now), kept));
        self.transmits.push_back(Transmit { to: from, bytes: welcome.clone() });
        let until = now + HALF_OPEN;
        self.half_open.insert(connection, HalfOpen { from, ephemeral, welcome, until, session });
        Ok(())
    }

    /// Handles a datagram of connection 0. The seed is random and new each time.
    pub fn handle_datagram(&mut self, from: SocketAddr, bytes: &[u8], seed: &Key, now: Instant) {
        let Some(message) = Message::parse(bytes) else {
            self.counts.malformed += 1;
            return;
        };
        if message.pattern != self.identity.pattern() {
            self.counts.unsealed += 1;
            return;
        }
        match message.kind {
            Kind::Probe => self.handle_probe(from, message, now),
            Kind::Echo => self.handle_echo(from, message, now),
            Kind::Hello => self.handle_hello(from, message, seed, now),
            Kind::Welcome => self.handle_welcome(from, message, now),
            Kind::Unknown => {
                let connection = message.connection;
                self.events.push_back(Event::Unknown { connection, from });
            }
        }
    }

    /// Handles a packet for a connection that is not live; returns the connection if this confirms a
    /// half-open one. The packet must then be handled like any other.
    pub fn handle_packet(
        &mut self,
        from: SocketAddr,
        connection: u32,
        packet: &[u8],
        now: Instant,
    ) -> Option<Confirmed<T>> {
        let Some(half) = self.half_open.get(&connection) else {
            // No answer is longer than the packet that it answers.
            if packet.len() >= FRONT && now >= self.unknown_at {
                self.unknown_at = now + UNKNOWN;
                self.send(from, Kind::Unknown, connection, &[]);
            }
            return None;
        };
        if half.from != from {
            return None;
        }
        let (session, _) = half.session.as_ref()?;
        if self.identity.is_sealed() && !session.opener.would_open(packet) {
            self.counts.forged += 1;
            return None;
        }
        self.confirm(connection)
    }

    /// Confirms a connection whose other end has shown in another way that it has the keys.
    pub fn confirm(&mut self, connection: u32) -> Option<Confirmed<T>> {
        let HalfOpen { from, session, .. } = self.half_open.remove(&connection)?;
        let (session, kept) = session?;
        Some(Confirmed { from, session, kept })
    }

    /// Whether no connection is half open.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.half_open.is_empty()
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event<T>> {
        self.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); a later call only delays actions.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let attempts = self.attempts.values().map(|attempt| attempt.retry_at);
        attempts.chain(self.half_open.values().map(|half| half.until)).min()
    }

    /// Retransmits due datagrams; removes half-open connections that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = self.attempts.iter().filter(|(_, attempt)| now >= attempt.retry_at);
        for connection in due.map(|(&connection, _)| connection).collect::<Vec<_>>() {
            if self.attempts[&connection].sent < ATTEMPTS_MAX {
                self.probe(connection, now);
            } else {
                self.attempts.remove(&connection);
                self.events.push_back(Event::Silent { connection });
            }
        }
        let expired = self.half_open.extract_if(.., |_, half| now >= half.until);
        let expired = expired.filter_map(|(connection, half)| {
            half.session.map(|(_, kept)| Event::Expired { connection, kept })
        });
        self.events.extend(expired);
    }

    fn send(&mut self, to: SocketAddr, kind: Kind, connection: u32, body: &[u8]) {
        let pattern = self.identity.pattern();
        let bytes = Message { kind, pattern, connection, body }.bytes();
        self.transmits.push_back(Transmit { to, bytes });
    }

    /// Sends a probe, for a cookie and the round-trip time.
    fn probe(&mut self, connection: u32, now: Instant) {
        let Some(attempt) = self.attempts.get_mut(&connection) else { return };
        (attempt.sent, attempt.retry_at) = (attempt.sent + 1, now + WAIT);
        if attempt.hello.is_some() {
            attempt.echoes = 0;
        }
        let mut body = [0; 16 + COOKIE];
        body[..8].copy_from_slice(&attempt.nonce);
        body[8..16].copy_from_slice(&now.0.to_be_bytes());
        let to = attempt.to;
        self.send(to, Kind::Probe, connection, &body);
    }

    fn send_hello(&mut self, connection: u32) {
        let Some(attempt) = self.attempts.get(&connection) else { return };
        let Some((_, hello)) = &attempt.hello else { return };
        let body = [&attempt.cookie[..], hello].concat();
        let to = attempt.to;
        self.send(to, Kind::Hello, connection, &body);
    }

    fn handle_probe(&mut self, from: SocketAddr, message: Message<'_>, now: Instant) {
        let Ok(mut body) = <[u8; 16 + COOKIE]>::try_from(message.body) else {
            self.counts.malformed += 1;
            return;
        };
        body[16..].copy_from_slice(&self.cookies.of(from, message.connection, now));
        self.send(from, Kind::Echo, message.connection, &body);
    }

    fn handle_echo(&mut self, from: SocketAddr, message: Message<'_>, now: Instant) {
        let connection = message.connection;
        let attempt = self.attempts.get_mut(&connection).filter(|attempt| attempt.to == from);
        let (Some(attempt), Ok(body)) = (attempt, <[u8; 16 + COOKIE]>::try_from(message.body))
        else {
            self.counts.malformed += 1;
            return;
        };
        let (nonce, rest) = body.split_at(8);
        let (time, cookie) = rest.split_at(8);
        if nonce != attempt.nonce || attempt.echoes >= ECHOES_MAX {
            self.counts.forged += u64::from(nonce != attempt.nonce);
            return;
        }
        attempt.echoes += 1;
        attempt.cookie.copy_from_slice(cookie);
        if attempt.hello.is_some() {
            return self.send_hello(connection);
        }
        let mut sent = [0; 8];
        sent.copy_from_slice(time);
        let took = now.since(Instant(u64::from_be_bytes(sent).max(attempt.began.0)));
        let shortest = attempt.shortest.map_or(took, |least| least.min(took));
        attempt.shortest = Some(shortest);
        if attempt.is_reached {
            return;
        }
        if attempt.echoes < PROBES && now.since(attempt.began) < PROBING {
            return self.probe(connection, now);
        }
        attempt.is_reached = true;
        self.events.push_back(Event::Reached { connection, there_and_back: shortest });
    }

    fn handle_hello(&mut self, from: SocketAddr, message: Message<'_>, seed: &Key, now: Instant) {
        let connection = message.connection;
        let Some((&cookie, noise)) = message.body.split_first_chunk::<COOKIE>() else {
            self.counts.malformed += 1;
            return;
        };
        let Some(&ephemeral) = noise.first_chunk::<32>().filter(|_| noise.len() >= HELLO_MIN)
        else {
            self.counts.malformed += 1;
            return;
        };
        if let Some(half) = self.half_open.get(&connection) {
            if half.from == from && half.ephemeral == ephemeral {
                // A retransmission: our answer was lost.
                let bytes = half.welcome.clone();
                self.transmits.push_back(Transmit { to: from, bytes });
            } else {
                self.counts.replayed += 1;
            }
            return;
        }
        // From the cheapest check to the most expensive.
        if self.recent.contains(&ephemeral) {
            self.counts.replayed += 1;
            return;
        }
        if self.half_open.len() >= HALF_OPEN_MAX {
            self.counts.crowded += 1;
            return;
        }
        if self.half_open.len() >= COOKIES_FROM
            && !self.cookies.is_ours(cookie, from, connection, now)
        {
            self.counts.without_cookie += 1;
            return;
        }
        let mut payload = vec![0; LONGEST];
        let state = self.identity.begin(connection, seed, false, None);
        let read = state
            .and_then(|mut state| state.read_message(noise, &mut payload).map(|len| (state, len)));
        let Ok((state, len)) = read else {
            self.counts.forged += 1;
            return;
        };
        let peer = remote_key(&state);
        if peer.is_some_and(|peer| !self.allowed.contains(&peer)) {
            self.counts.unknown_peers += 1;
            return;
        }
        // Only authentic hellos are remembered, so an attacker can't displace them.
        self.remember(ephemeral);
        payload.truncate(len);
        let hello = Hello { connection, from, payload, peer, state, ephemeral };
        self.events.push_back(Event::Hello(Box::new(hello)));
    }

    fn handle_welcome(&mut self, from: SocketAddr, message: Message<'_>, now: Instant) {
        let connection = message.connection;
        let attempt = self.attempts.get_mut(&connection).filter(|attempt| attempt.to == from);
        let Some((state, _)) = attempt.and_then(|attempt| attempt.hello.as_mut()) else {
            self.counts.malformed += 1;
            return;
        };
        let mut payload = vec![0; LONGEST];
        let Ok(len) = state.read_message(message.body, &mut payload) else {
            self.counts.forged += 1;
            return;
        };
        payload.truncate(len);
        let session = Session::new(connection, state, true, now);
        self.attempts.remove(&connection);
        self.events.push_back(match payload.split_first() {
            Some((0, payload)) => Event::Welcomed {
                connection,
                payload: payload.to_vec(),
                session: Box::new(session),
            },
            _ => Event::Refused { connection, why: payload.get(1..).unwrap_or_default().to_vec() },
        });
    }
}

fn written(state: &mut HandshakeState, text: &[u8]) -> Result<Vec<u8>, ProposeError> {
    let mut body = vec![0; LONGEST];
    let len = state.write_message(text, &mut body).map_err(|_| ProposeError::Noise)?;
    body.truncate(len);
    Ok(body)
}

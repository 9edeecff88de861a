//! One connection to a server of RTSP (RFC 2326): from its requests to responses, and from the packets of
//! the stream that it plays to its own. What waits for it is bounded, and so is how long it may be silent.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::{Packet, ip_udp};
use selvedge_units::{Bytes, Duration, Instant};

use super::login::{Challenge, Guard};
use super::mount::{Mount, Mounts};
use super::request::{Message, Request, RequestError, Transport};
use crate::output::TCP;

/// The most clients that play at once, and bytes that may wait for one.
pub(super) const PLAYERS: usize = 64;
const WAITING: usize = 1 << 20;
/// How long a client may take to play, how long a player may show no sign of life, as it is notified, and
/// how long one may take none of what waits for it.
const BEFORE: Duration = Duration::from_secs(15);
const SILENT: Duration = Duration::from_secs(60);
const STUCK: Duration = Duration::from_secs(10);
/// Wrong logins in one connection.
const GUESSES: u32 = 3;
/// How often a track's clock is reported.
const REPORT_EVERY: Duration = Duration::from_secs(3);

/// What all clients of a server share.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) mounts: Arc<Mounts>,
    pub(super) guard: Guard,
    /// The sockets that packets and reports leave by.
    pub(super) sockets: [UdpSocket; 2],
    pub(super) ports: [u16; 2],
    /// How many clients play.
    pub(super) players: usize,
}

/// Why a client is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Dropped {
    #[error("its bytes are no requests: {0}")]
    Request(#[from] RequestError),
    #[error("it has ended")]
    Ended,
    #[error("too many wrong logins")]
    Guesses,
    #[error("it did not play within {BEFORE}")]
    Idle,
    #[error("no sign of life for {SILENT}")]
    Silent,
    #[error("it does not take what is sent")]
    Stuck,
    #[error("its stream has ended, or changed")]
    Outdated,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    peer: SocketAddr,
    challenge: Challenge,
    guesses: u32,
    /// The mount that it may play.
    admitted: Option<Arc<Mount>>,
    session: Option<Session>,
    inbox: Vec<u8>,
    outbox: VecDeque<Vec<u8>>,
    /// Bytes that wait, and how many of the first piece are sent.
    waiting: usize,
    sent: usize,
    /// A response that is withheld: until when.
    held: Option<(Instant, Vec<u8>)>,
    /// When it last showed a sign of life, and when it last took bytes, or had none to take.
    heard: Instant,
    took: Instant,
    is_leaving: bool,
}

/// What a client plays.
#[derive(Debug)]
struct Session {
    id: String,
    mount: Arc<Mount>,
    version: u32,
    tracks: Vec<Track>,
    is_playing: bool,
}

#[derive(Debug)]
struct Track {
    number: usize,
    payload_type: u8,
    is_audio: bool,
    transport: Transport,
    has_begun: bool,
    /// Packets and bytes of payload that were sent.
    sent: (u32, u32),
    report_at: Instant,
}

/// The parts of a response.
struct Response {
    status: &'static str,
    fields: String,
    body: String,
    at: Instant,
}

impl Client {
    /// A connection that was accepted now; nobody can predict `nonce`.
    pub(super) fn new(peer: SocketAddr, nonce: String, now: Instant) -> Self {
        Self {
            peer,
            challenge: Challenge(nonce),
            guesses: 0,
            admitted: None,
            session: None,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            waiting: 0,
            sent: 0,
            held: None,
            heard: now,
            took: now,
            is_leaving: false,
        }
    }

    pub(super) fn is_playing(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_playing)
    }

    /// Whether its bytes are read: not while a response is withheld.
    pub(super) const fn is_read(&self) -> bool {
        self.held.is_none() && !self.is_leaving
    }

    /// Whether bytes wait for it.
    pub(super) const fn is_written(&self) -> bool {
        self.waiting > 0
    }

    /// When a withheld response is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.held.as_ref().map(|(at, _)| *at)
    }

    /// Takes bytes of its connection.
    ///
    /// # Errors
    /// [`Dropped`].
    pub(super) fn handle_bytes(
        &mut self,
        bytes: &[u8],
        server: &mut ServerState,
        now: Instant,
    ) -> Result<(), Dropped> {
        self.inbox.extend(bytes);
        self.read(server, now)
    }

    /// The time is `now`: sends what was withheld, and goes on reading.
    ///
    /// # Errors
    /// [`Dropped`].
    pub(super) fn handle_timeout(
        &mut self,
        server: &mut ServerState,
        now: Instant,
    ) -> Result<(), Dropped> {
        if let Some((_, response)) = self.held.take_if(|(at, _)| *at <= now) {
            self.push(response, now);
            self.read(server, now)?;
        }
        let quiet = now.since(self.heard);
        match &self.session {
            _ if self.is_leaving && self.waiting == 0 && self.held.is_none() => Err(Dropped::Ended),
            _ if self.waiting > WAITING => Err(Dropped::Stuck),
            _ if self.waiting > 0 && now.since(self.took) > STUCK => Err(Dropped::Stuck),
            Some(session) if session.version != session.mount.version() => Err(Dropped::Outdated),
            Some(session) if session.is_playing => {
                let datagrams = |track: &Track| matches!(track.transport, Transport::Udp { .. });
                let by_udp = session.tracks.iter().any(datagrams);
                if by_udp && quiet > SILENT { Err(Dropped::Silent) } else { Ok(()) }
            }
            _ if quiet > BEFORE => Err(Dropped::Idle),
            _ => Ok(()),
        }
    }

    /// A datagram of RTCP came from here: a sign of life, if it is the client's.
    pub(super) fn handle_report(&mut self, from: SocketAddr, now: Instant) {
        let sends = |track: &Track| matches!(track.transport, Transport::Udp { rtcp, .. } if rtcp == from.port());
        let is_own = |session: &Session| session.tracks.iter().any(sends);
        if from.ip() == self.peer.ip() && self.session.as_ref().is_some_and(is_own) {
            self.heard = now;
        }
    }

    /// Bytes to write next.
    pub(super) fn poll_transmit(&self) -> Option<&[u8]> {
        self.outbox.front().map(|piece| &piece[self.sent..])
    }

    /// This many bytes were written.
    pub(super) fn handle_written(&mut self, bytes: usize, now: Instant) {
        self.took = now;
        self.waiting -= bytes;
        self.sent += bytes;
        if self.outbox.front().is_some_and(|piece| piece.len() == self.sent) {
            self.outbox.pop_front();
            self.sent = 0;
        }
    }

    /// Sends a packet of a mount; returns its bytes on the wire. Playing begins with a picture that needs
    /// no other, and the sound with it.
    pub(super) fn deliver(
        &mut self,
        (packet, bytes): (&Packet<'_>, &[u8]),
        of: &Arc<Mount>,
        server: &ServerState,
        now: Instant,
    ) -> Bytes {
        let Some(session) = &mut self.session else { return Bytes(0) };
        if !session.is_playing || !Arc::ptr_eq(&session.mount, of) {
            return Bytes(0);
        }
        let waits = session.tracks.iter().any(|track| !track.is_audio && !track.has_begun);
        let own = |track: &&mut Track| track.payload_type == packet.header.payload_type;
        let Some(track) = session.tracks.iter_mut().find(own) else { return Bytes(0) };
        if !track.has_begun {
            let begins = packet
                .tag
                .is_none_or(|tag| tag.first && (track.is_audio || tag.kind == Kind::Intra));
            if !begins || track.is_audio && waits {
                return Bytes(0);
            }
            track.has_begun = true;
        }
        let (number, transport) = (track.number, track.transport);
        track.sent =
            (track.sent.0.wrapping_add(1), track.sent.1.wrapping_add(packet.payload.len() as u32));
        let counts = track.sent;
        let mut wire = self.send(transport, 0, bytes, server, now);
        let Some(session) = &mut self.session else { return wire };
        let due = session
            .tracks
            .iter_mut()
            .find(|track| track.number == number && track.report_at <= now);
        if let Some(track) = due
            && let Some(report) = session.mount.report(number, packet.header.ssrc, counts)
        {
            track.report_at = now + REPORT_EVERY;
            wire += self.send(transport, 1, &report, server, now);
        }
        wire
    }

    /// Sends a packet (0) or a report (1).
    fn send(
        &mut self,
        by: Transport,
        which: usize,
        bytes: &[u8],
        server: &ServerState,
        now: Instant,
    ) -> Bytes {
        match by {
            Transport::Udp { rtp, rtcp } => {
                let to = SocketAddr::new(self.peer.ip(), [rtp, rtcp][which]);
                // What the network does not take now is lost, as it may be on the way.
                let _ = server.sockets[which].send_to(bytes, to);
                Bytes(bytes.len() as u64) + ip_udp(to)
            }
            Transport::Tcp { rtp, rtcp } => {
                let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
                let [high, low] = len.to_be_bytes();
                let mut piece = vec![b'$', [rtp, rtcp][which], high, low];
                piece.extend(&bytes[..len.into()]);
                let wire = Bytes(piece.len() as u64) + TCP;
                self.push(piece, now);
                wire
            }
        }
    }

    fn push(&mut self, piece: Vec<u8>, now: Instant) {
        if self.waiting == 0 {
            self.took = now;
        }
        self.waiting += piece.len();
        self.outbox.push_back(piece);
    }

    fn read(&mut self, server: &mut ServerState, now: Instant) -> Result<(), Dropped> {
        let inbox = std::mem::take(&mut self.inbox);
        let mut at = 0;
        while self.is_read()
            && let Some((message, size)) = Message::first(&inbox[at..])?
        {
            at += size;
            self.heard = now;
            if let Message::Request(request) = message {
                self.respond(&request, server, now)?;
            }
        }
        self.inbox = inbox[at..].to_vec();
        Ok(())
    }

    fn respond(
        &mut self,
        request: &Request<'_>,
        server: &mut ServerState,
        now: Instant,
    ) -> Result<(), Dropped> {
        let response = match request.method {
            "OPTIONS" => Response::new("200 OK", now).with(
                "Public: OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, TEARDOWN, GET_PARAMETER, SET_PARAMETER\r\n",
            ),
            "DESCRIBE" | "SETUP" => self.open(request, server, now)?,
            "PLAY" | "PAUSE" | "TEARDOWN" | "GET_PARAMETER" | "SET_PARAMETER" => {
                self.control(request, server, now)
            }
            _ => Response::new("501 Not Implemented", now),
        };
        let Response { status, fields, body, at } = response;
        let number = request.field("CSeq").and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        let mut text =
            format!("RTSP/1.0 {status}\r\nCSeq: {number}\r\nServer: Selvedge\r\n{fields}");
        if !body.is_empty() {
            text += &format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        text += &body;
        if at > now {
            self.held = Some((at, text.into_bytes()));
        } else {
            self.push(text.into_bytes(), now);
        }
        Ok(())
    }

    /// Describes a stream, or sets up a track of it.
    fn open(
        &mut self,
        request: &Request<'_>,
        server: &mut ServerState,
        now: Instant,
    ) -> Result<Response, Dropped> {
        let path = request.path();
        let whole = server.mounts.get(path).map(|mount| (mount, 0));
        let part = || {
            let (name, track) = path.rsplit_once("/track")?;
            Some((server.mounts.get(name)?, track.parse().ok()?))
        };
        let Some((mount, track)) = whole.or_else(part) else {
            return Ok(Response::new("404 Not Found", now));
        };
        let mount = Arc::clone(mount);
        let (is_admitted, at) = self.admit(request, &mount, server, now)?;
        if !is_admitted {
            let field = format!("WWW-Authenticate: {}\r\n", self.challenge.field());
            return Ok(Response::new("401 Unauthorized", at).with(&field));
        }
        if request.method == "SETUP" {
            return Ok(self.set_up(request, &mount, track, server).after(at));
        }
        let any = match self.peer {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
            SocketAddr::V6(_) => SocketAddr::from(([0_u16; 8], 0)),
        };
        Ok(match mount.sdp(any) {
            Some(body) => {
                let base = format!("Content-Base: {}/\r\n", request.uri.trim_end_matches('/'));
                Response { body, ..Response::new("200 OK", at).with(&base) }
            }
            None => Response::new("503 Service Unavailable", at).with("Retry-After: 1\r\n"),
        })
    }

    /// Whether the client may play a mount, and when it may learn that.
    fn admit(
        &mut self,
        request: &Request<'_>,
        mount: &Arc<Mount>,
        server: &mut ServerState,
        now: Instant,
    ) -> Result<(bool, Instant), Dropped> {
        let is_known = self.admitted.as_ref().is_some_and(|known| Arc::ptr_eq(known, mount));
        let Some(login) = mount.login.as_ref().filter(|_| !is_known) else {
            return Ok((true, now));
        };
        let Some(authorization) = request.field("Authorization") else { return Ok((false, now)) };
        let from = self.peer.ip();
        let at = server.guard.answer_at(from, now).ok_or(Dropped::Guesses)?;
        if self.challenge.is_met(login, request.method, authorization) {
            self.admitted = Some(Arc::clone(mount));
            return Ok((true, at));
        }
        let wrong = server.guard.note_wrong(from, now);
        if wrong.is_power_of_two() {
            tracing::warn!(%from, mount = mount.name, wrong, "wrong logins");
        }
        self.guesses += 1;
        self.is_leaving = self.guesses >= GUESSES;
        Ok((false, server.guard.answer_at(from, now).unwrap_or(at)))
    }

    fn set_up(
        &mut self,
        request: &Request<'_>,
        mount: &Arc<Mount>,
        number: usize,
        server: &ServerState,
    ) -> Response {
        let now = Instant::ZERO;
        let Some((payload_type, is_audio)) = mount.track(number) else {
            return Response::new("404 Not Found", now);
        };
        let channel = u8::try_from(number * 2).unwrap_or(0);
        let Some(transport) = request.transport((channel, channel + 1)) else {
            return Response::new("461 Unsupported Transport", now);
        };
        if self.is_playing() {
            return Response::new("455 Method Not Valid in This State", now);
        }
        if self.session.as_ref().is_none_or(|session| !Arc::ptr_eq(&session.mount, mount)) {
            // What nobody can predict is no less so by halves.
            let id = self.challenge.0[..16].chars().rev().collect();
            let (mount, version) = (Arc::clone(mount), mount.version());
            self.session =
                Some(Session { id, mount, version, tracks: Vec::new(), is_playing: false });
        }
        let Some(session) = &mut self.session else {
            return Response::new("454 Session Not Found", now);
        };
        session.tracks.retain(|track| track.number != number);
        session.tracks.push(Track {
            number,
            payload_type,
            is_audio,
            transport,
            has_begun: false,
            sent: (0, 0),
            report_at: now,
        });
        let way = match transport {
            Transport::Udp { rtp, rtcp } => {
                let [own, own_rtcp] = server.ports;
                format!("RTP/AVP;unicast;client_port={rtp}-{rtcp};server_port={own}-{own_rtcp}")
            }
            Transport::Tcp { rtp, rtcp } => format!("RTP/AVP/TCP;unicast;interleaved={rtp}-{rtcp}"),
        };
        let seconds = SILENT.0 / 1_000_000_000;
        let fields = format!("Transport: {way}\r\nSession: {};timeout={seconds}\r\n", session.id);
        Response::new("200 OK", now).with(&fields)
    }

    /// Requests about what was set up.
    fn control(
        &mut self,
        request: &Request<'_>,
        server: &mut ServerState,
        now: Instant,
    ) -> Response {
        let named = request.field("Session").map(|id| id.split(';').next().unwrap_or_default());
        let Some(session) = &mut self.session else {
            let status = match request.method {
                "GET_PARAMETER" | "SET_PARAMETER" => "200 OK",
                _ => "454 Session Not Found",
            };
            return Response::new(status, now);
        };
        if named.is_some_and(|id| id != session.id) {
            return Response::new("454 Session Not Found", now);
        }
        let mut fields = format!("Session: {}\r\n", session.id);
        match request.method {
            "PLAY" if !session.is_playing && server.players >= PLAYERS => {
                self.is_leaving = true;
                return Response::new("453 Not Enough Bandwidth", now);
            }
            "PLAY" => {
                fields += "Range: npt=now-\r\n";
                server.players += usize::from(!session.is_playing);
                session.play(true);
            }
            "PAUSE" | "TEARDOWN" => {
                server.players -= usize::from(session.is_playing);
                session.play(false);
                self.is_leaving = request.method == "TEARDOWN";
            }
            _ => {}
        }
        Response::new("200 OK", now).with(&fields)
    }
}

impl Session {
    fn play(&mut self, plays: bool) {
        if plays == self.is_playing {
            return;
        }
        self.is_playing = plays;
        self.tracks.iter_mut().for_each(|track| track.has_begun = false);
        self.mount.has_joined.fetch_or(plays, Ordering::Relaxed);
        match plays {
            true => self.mount.players.fetch_add(1, Ordering::Relaxed),
            false => self.mount.players.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.play(false);
    }
}

impl Response {
    const fn new(status: &'static str, at: Instant) -> Self {
        Self { status, fields: String::new(), body: String::new(), at }
    }

    fn with(self, fields: &str) -> Self {
        Self { fields: self.fields + fields, ..self }
    }

    fn after(self, at: Instant) -> Self {
        Self { at: at.max(self.at), ..self }
    }
}

#[cfg(test)]
mod tests;

//! The near end of one path in the secure layer: it connects, and connects again when it is asked to or when the far end
//! does not know the connection. The present connection serves until there is another. No I/O.

use std::net::SocketAddr;

use selvedge_comm_stack::wire::{random, seed};
use selvedge_data_net_secure::{Event, Handshakes, PublicKey, Session};
use selvedge_units::{Duration, Instant};

use crate::Credentials;
use crate::proposal::Proposal;

/// The shortest time between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// A connection over which nothing is sent for so long gets an empty packet, so that NATs on the way keep it.
const KEEP: Duration = Duration::from_secs(5);

/// What a datagram brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// Nothing for the bond.
    Nothing,
    /// The far end accepted a connection.
    Connected,
    /// What it sealed.
    Text(&'a [u8]),
}

#[derive(Debug)]
pub(crate) struct Caller {
    handshakes: Handshakes<()>,
    to: SocketAddr,
    peer: Option<PublicKey>,
    proposal: Proposal,
    open: Option<(u32, Box<Session>)>,
    attempt: Option<u32>,
    wants: bool,
    call_at: Instant,
    keep_at: Instant,
    /// Why the last attempt failed.
    problem: Option<String>,
}

impl Caller {
    pub(crate) fn new(credentials: &Credentials, to: SocketAddr, proposal: Proposal) -> Self {
        let mut handshakes = Handshakes::new(credentials.identity.clone(), &seed());
        handshakes.allow(credentials.peers.clone());
        Self {
            handshakes,
            to,
            peer: credentials.peer,
            proposal,
            open: None,
            attempt: None,
            wants: true,
            call_at: Instant::ZERO,
            keep_at: Instant::ZERO,
            problem: None,
        }
    }

    /// The far end is at this address from now on.
    pub(crate) const fn set_to(&mut self, to: SocketAddr) {
        self.to = to;
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Connects anew, as soon as that may be.
    pub(crate) const fn call(&mut self) {
        self.wants = true;
    }

    /// Takes a datagram; what is not authentic changes nothing.
    pub(crate) fn handle_datagram<'a>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &'a mut [u8],
    ) -> Received<'a> {
        let Some(connection) = bytes.first_chunk().map(|first| u32::from_be_bytes(*first)) else {
            return Received::Nothing;
        };
        if connection == 0 {
            self.handshakes.handle_datagram(from, bytes, &seed(), now);
            return if self.follow(now) { Received::Connected } else { Received::Nothing };
        }
        match self.open.as_mut().filter(|(open, _)| *open == connection) {
            Some((_, session)) => match session.opener.open(bytes) {
                Ok([]) | Err(_) => Received::Nothing,
                Ok(text) => Received::Text(text),
            },
            None => Received::Nothing,
        }
    }

    /// Follows the handshakes' events; whether one of them is a new connection.
    fn follow(&mut self, now: Instant) -> bool {
        let mut is_connected = false;
        while let Some(event) = self.handshakes.poll_event() {
            match event {
                Event::Reached { connection, .. } => {
                    let bytes = self.proposal.encode();
                    if let Err(why) = self.handshakes.propose(connection, &bytes, &seed(), now) {
                        self.fail(why.to_string());
                    }
                }
                Event::Welcomed { connection, session, .. } => {
                    self.open = Some((connection, session));
                    (self.attempt, self.problem, self.wants) = (None, None, false);
                    // Its first packet confirms it.
                    self.keep_at = now;
                    is_connected = true;
                }
                Event::Refused { why, .. } => {
                    self.fail(format!("the far end refuses: {}", String::from_utf8_lossy(&why)));
                }
                Event::Silent { .. } => {
                    self.fail("the far end does not answer: see its address, and that both ends have the same secret".to_owned());
                }
                // Anybody can forge it, so it only makes this end connect anew.
                Event::Unknown { connection, from } => {
                    let is_open = self.open.as_ref().is_some_and(|(open, _)| *open == connection);
                    self.wants |= is_open && from == self.to;
                }
                Event::Hello(_) | Event::Expired { .. } => {}
            }
        }
        is_connected
    }

    fn fail(&mut self, why: String) {
        (self.attempt, self.problem, self.wants) = (None, Some(why), true);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.handshakes.poll_timeout().is_some_and(|at| at <= now) {
            self.handshakes.handle_timeout(now);
            self.follow(now);
        }
        if self.wants && self.attempt.is_none() && now >= self.call_at {
            let connection = (random() as u32).max(1);
            match self.handshakes.connect(connection, self.to, self.peer, &seed(), now) {
                Ok(()) => self.attempt = Some(connection),
                Err(why) => self.problem = Some(why.to_string()),
            }
            self.call_at = now + AGAIN;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let call = (self.wants && self.attempt.is_none()).then_some(self.call_at);
        let keep = self.open.is_some().then_some(self.keep_at);
        [self.handshakes.poll_timeout(), call, keep].into_iter().flatten().min()
    }

    /// What is sent now for the connection itself.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(transmit) = self.handshakes.poll_transmit() {
            return Some(transmit.bytes);
        }
        if self.open.is_some() && now >= self.keep_at { self.seal(now, &[]) } else { None }
    }

    /// Seals a datagram of the bond; `None` without a connection.
    pub(crate) fn seal(&mut self, now: Instant, text: &[u8]) -> Option<Vec<u8>> {
        let (_, session) = self.open.as_mut()?;
        self.keep_at = now + KEEP;
        let sealed = session.sealer.packet(text, now);
        if sealed.is_err() {
            self.open = None;
            self.wants = true;
        }
        sealed.ok()
    }
}

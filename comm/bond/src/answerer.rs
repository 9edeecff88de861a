//! The far end in the secure layer: it accepts a connection for each path of one near end, and knows where each path's
//! packets come from. No I/O.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use selvedge_comm_stack::wire::seed;
use selvedge_data_net_bond::PathId;
use selvedge_data_net_secure::{Confirmed, Event, Handshakes, PublicKey, Session};
use selvedge_units::Instant;

use crate::Credentials;
use crate::proposal::Proposal;

/// What a datagram brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// Nothing for the bond.
    Nothing,
    /// What the near end sealed, on which path; and whether it is the first of a near end that began anew.
    Text { path: PathId, text: &'a [u8], is_anew: bool },
}

/// A path's connection.
#[derive(Debug)]
struct Open {
    session: Session,
    path: PathId,
    /// Where its latest authentic packet came from.
    from: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Answerer {
    handshakes: Handshakes<Proposal>,
    open: BTreeMap<u32, Open>,
    /// Which run of the near end is connected.
    run: Option<u64>,
}

impl Answerer {
    pub(crate) fn new(credentials: &Credentials) -> Self {
        let mut handshakes = Handshakes::new(credentials.identity.clone(), &seed());
        handshakes.allow(credentials.peers.clone());
        Self { handshakes, open: BTreeMap::new(), run: None }
    }

    /// Sets the keys that may connect; connections of others end.
    pub(crate) fn allow(&mut self, peers: &[PublicKey]) {
        self.handshakes.allow(peers.to_vec());
        self.open.retain(|_, open| open.session.peer.is_none_or(|peer| peers.contains(&peer)));
    }

    /// Where each path's packets come from.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (PathId, SocketAddr)> {
        self.open.values().map(|open| (open.path, open.from))
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
            self.follow(now);
            return Received::Nothing;
        }
        let mut is_anew = false;
        if !self.open.contains_key(&connection) {
            let Some(confirmed) = self.handshakes.handle_packet(from, connection, bytes, now)
            else {
                return Received::Nothing;
            };
            is_anew = self.confirmed(connection, confirmed);
        }
        let Some(open) = self.open.get_mut(&connection) else { return Received::Nothing };
        match open.session.opener.open(bytes) {
            Ok(text) => {
                open.from = from;
                Received::Text { path: open.path, text, is_anew }
            }
            Err(_) => Received::Nothing,
        }
    }

    /// A path has a new connection; whether its near end began anew.
    fn confirmed(&mut self, connection: u32, confirmed: Confirmed<Proposal>) -> bool {
        let Confirmed { from, session, kept: Proposal { path, run } } = confirmed;
        let is_anew = self.run.replace(run) != Some(run);
        self.open.retain(|_, open| !is_anew && open.path != path);
        self.open.insert(connection, Open { session, path, from });
        is_anew
    }

    fn follow(&mut self, now: Instant) {
        while let Some(event) = self.handshakes.poll_event() {
            let Event::Hello(hello) = event else { continue };
            match Proposal::parse(&hello.payload) {
                Ok(proposal) => {
                    let (connection, from) = (hello.connection, hello.from);
                    if self.open.contains_key(&connection) {
                        continue;
                    }
                    if let Err((why, _)) = self.handshakes.answer(*hello, &[], proposal, now) {
                        tracing::warn!(%from, %why, "hello of a bond not answered");
                    }
                }
                Err(why) => self.handshakes.refuse(*hello, &why.to_string(), now),
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.handshakes.poll_timeout().is_some_and(|at| at <= now) {
            self.handshakes.handle_timeout(now);
            self.follow(now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.handshakes.poll_timeout()
    }

    /// What is sent now for the connections themselves.
    pub(crate) fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let transmit = self.handshakes.poll_transmit()?;
        Some((transmit.to, transmit.bytes))
    }

    /// Seals a datagram for a path; `None` without a connection.
    pub(crate) fn seal(
        &mut self,
        now: Instant,
        path: PathId,
        text: &[u8],
    ) -> Option<(SocketAddr, Vec<u8>)> {
        let open = self.open.values_mut().find(|open| open.path == path)?;
        Some((open.from, open.session.sealer.packet(text, now).ok()?))
    }
}

//! The connections of one endpoint: which one a datagram belongs to, who may open one, which of them wait to be
//! accepted, and which have a silent peer.
//!
//! Datagrams come from a socket or a ring, and go with [`Endpoint::handle_datagram`] to the handshakes or to the
//! connection that they name. The caller owns the connections' modules, and opens a connection once it is
//! confirmed. After each `handle_*` the caller takes events and datagrams until there are none. The threads,
//! sockets and clocks of an endpoint are in `selvedge-comm-stack`; the simulator runs this code with its own.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use selvedge_data_net_secure::{Confirmed, Event, Handshakes, Identity, Key, Transmit};
use selvedge_units::{Duration, Instant};

use crate::module::Net;

/// The largest number of open connections.
const CONNECTIONS_MAX: usize = 1024;
/// The largest number of connections that wait to be accepted.
const UNACCEPTED_MAX: usize = 64;
/// The keepalive interval before a datagram of the other end has arrived.
const CONFIRM: Duration = Duration::from_millis(100);
/// The length of a keepalive, where nothing is sealed: the connection's number.
const ALIVE: usize = 4;

/// What an endpoint needs to know of a connection that it does not own.
pub trait Peer {
    /// The address of the other end.
    fn address(&self) -> SocketAddr;
    /// Whether its datagrams are sealed: then they prove their sender when they are opened, not by address.
    fn is_sealed(&self) -> bool;
    /// Whether it sends through shared memory; then only keepalives come through the socket.
    fn has_ring(&self) -> bool;
    /// Whether an authentic datagram was opened since the last call.
    fn was_heard(&mut self) -> bool;
    /// Whether so many forged datagrams came that the connection has to end.
    fn is_spent(&self) -> bool;
    /// The next sealed keepalive; `None` if none can be sealed any more.
    fn keepalive(&mut self, now: Instant) -> Option<Vec<u8>>;
    /// Opens a datagram that should be a sealed keepalive.
    fn handle_keepalive(&mut self, datagram: &[u8]);
}

/// What a datagram is, and what the caller does with it.
#[derive(Debug)]
pub enum Input<'a, C, H> {
    /// It belongs to no connection of this endpoint. The caller counts it.
    Stranger,
    /// Nothing is left to do, but events and datagrams may wait.
    Handled,
    /// It is for the modules of this connection.
    Packet(&'a mut C),
    /// It confirms this connection. The caller opens the connection and passes the datagram again.
    Confirmed(u32, Box<Confirmed<H>>),
}

/// Why there is no room for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoomError {
    /// The random number belongs to another connection.
    #[error("the same number twice ({0:08x}); try again")]
    SameNumber(u32),
    /// So many connections are open.
    #[error("too many connections ({0})")]
    TooMany(usize),
    /// The application accepts no connection at the moment; so many wait.
    #[error("too many connections wait to be accepted ({0})")]
    Unaccepted(usize),
}

#[derive(Debug)]
struct Open<C> {
    last_heard: Instant,
    /// An authentic datagram of the other end has arrived.
    is_confirmed: bool,
    /// When the next keepalive is due.
    keepalive_at: Instant,
    connection: C,
}

/// The connections. `C` is the caller's part of an open connection, `H` of a half-open one, and `A` what waits for
/// the application to accept it.
#[derive(Debug)]
pub struct Endpoint<C, H, A> {
    handshakes: Handshakes<H>,
    silence: Duration,
    open: BTreeMap<u32, Open<C>>,
    unaccepted: VecDeque<A>,
    accepts: bool,
    keepalives: VecDeque<Transmit>,
}

impl<C: Peer, H, A> Endpoint<C, H, A> {
    /// An endpoint without connections. A peer that was silent for `silence` is gone; keepalives are sent four times
    /// as often. The seed is random and used for nothing else.
    #[must_use]
    pub fn new(identity: Identity, seed: &Key, silence: Duration) -> Self {
        Self {
            handshakes: Handshakes::new(identity, seed),
            silence,
            open: BTreeMap::new(),
            unaccepted: VecDeque::new(),
            accepts: true,
            keepalives: VecDeque::new(),
        }
    }

    /// The handshakes: to connect, to propose, to answer and to refuse.
    #[must_use]
    pub const fn handshakes(&mut self) -> &mut Handshakes<H> {
        &mut self.handshakes
    }

    /// Handles a datagram that came through the socket. The seed is random and new each time; it is called for
    /// datagrams of handshakes only. O(log connections), but for handshakes.
    pub fn handle_datagram(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        seed: impl FnOnce() -> Key,
        now: Instant,
    ) -> Input<'_, C, H> {
        match Net::connection(bytes) {
            None => Input::Stranger,
            Some(0) => {
                self.handshakes.handle_datagram(from, bytes, &seed(), now);
                Input::Handled
            }
            Some(id) => self.handle_packet(id, Some(from), bytes, now),
        }
    }

    /// Handles a datagram of a connection that came from this address, or through the connection's ring.
    pub fn handle_packet(
        &mut self,
        id: u32,
        from: Option<SocketAddr>,
        bytes: &[u8],
        now: Instant,
    ) -> Input<'_, C, H> {
        let Some(open) = self.open.get_mut(&id) else {
            let confirmed = match from {
                Some(from) => self.handshakes.handle_packet(from, id, bytes, now),
                // Only a peer that could read the welcome has a ring to this end.
                None => self.handshakes.confirm(id),
            };
            return confirmed
                .map_or(Input::Stranger, |confirmed| Input::Confirmed(id, Box::new(confirmed)));
        };
        let connection = &mut open.connection;
        let (is_sealed, has_ring) = (connection.is_sealed(), connection.has_ring());
        if from.is_some_and(|from| from != connection.address()) {
            return Input::Stranger;
        }
        if is_sealed && has_ring && from.is_some() {
            connection.handle_keepalive(bytes);
            return Input::Handled;
        }
        if !is_sealed {
            (open.last_heard, open.is_confirmed) = (now, true);
            if bytes.len() == ALIVE {
                return Input::Handled;
            }
        }
        if from.is_none() == has_ring { Input::Packet(connection) } else { Input::Stranger }
    }

    /// Whether another host may open a connection of this number now.
    ///
    /// # Errors
    /// [`RoomError`].
    pub fn check_room(&self, id: u32) -> Result<(), RoomError> {
        if self.unaccepted.len() >= UNACCEPTED_MAX {
            return Err(RoomError::Unaccepted(self.unaccepted.len()));
        }
        self.check_number(id)
    }

    fn check_number(&self, id: u32) -> Result<(), RoomError> {
        if self.open.contains_key(&id) {
            return Err(RoomError::SameNumber(id));
        }
        match self.open.len() {
            count if count >= CONNECTIONS_MAX => Err(RoomError::TooMany(count)),
            _ => Ok(()),
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The caller's part, if there are too many connections, or there is one of this number.
    pub fn open(&mut self, id: u32, connection: C, now: Instant) -> Result<(), C> {
        if self.check_number(id).is_err() {
            return Err(connection);
        }
        let open = Open { last_heard: now, is_confirmed: false, keepalive_at: now, connection };
        self.open.insert(id, open);
        Ok(())
    }

    /// Ends a connection; returns the caller's part.
    pub fn remove(&mut self, id: u32) -> Option<C> {
        self.open.remove(&id).map(|open| open.connection)
    }

    /// The open connection of this number.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut C> {
        self.open.get_mut(&id).map(|open| &mut open.connection)
    }

    /// The open connections by number.
    pub fn connections(&self) -> impl Iterator<Item = (u32, &C)> {
        self.open.iter().map(|(&id, open)| (id, &open.connection))
    }

    /// Whether no connection is open, and none half open.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.open.is_empty() && self.handshakes.is_settled()
    }

    /// Makes a connection that another host opened wait to be accepted.
    ///
    /// # Errors
    /// What waits, if too many do, or the endpoint accepts none any more.
    pub fn enqueue_unaccepted(&mut self, waiting: A) -> Result<(), A> {
        if !self.accepts || self.unaccepted.len() >= UNACCEPTED_MAX {
            return Err(waiting);
        }
        self.unaccepted.push_back(waiting);
        Ok(())
    }

    /// The connection that has waited longest.
    pub fn accept(&mut self) -> Option<A> {
        self.unaccepted.pop_front()
    }

    /// Accepts no more; returns all that waits.
    pub fn stop_accepting(&mut self) -> VecDeque<A> {
        self.accepts = false;
        std::mem::take(&mut self.unaccepted)
    }

    /// Retransmits due datagrams of handshakes, and makes the keepalives that are due. Until a sealed datagram of the
    /// peer arrives, keepalives are frequent: one confirms that this end has the keys. Returns the connections with
    /// silent peers, which the caller removes. O(connections).
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<u32> {
        self.handshakes.handle_timeout(now);
        let mut gone = Vec::new();
        for (&id, open) in &mut self.open {
            if open.connection.was_heard() {
                (open.last_heard, open.is_confirmed) = (now, true);
            }
            if now.since(open.last_heard) >= self.silence || open.connection.is_spent() {
                gone.push(id);
                continue;
            }
            if now < open.keepalive_at {
                continue;
            }
            let keepalive = match open.connection.is_sealed() {
                true => open.connection.keepalive(now),
                false => Some(id.to_be_bytes().to_vec()),
            };
            if let Some(bytes) = keepalive {
                self.keepalives.push_back(Transmit { to: open.connection.address(), bytes });
            }
            let often = Duration(self.silence.0 / 4);
            open.keepalive_at = now + if open.is_confirmed { often } else { often.min(CONFIRM) };
        }
        gone
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); a later call only delays actions. O(connections).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = |open: &Open<C>| open.keepalive_at.min(open.last_heard + self.silence);
        self.open.values().map(due).chain(self.handshakes.poll_timeout()).min()
    }

    /// The next event of a handshake.
    pub fn poll_event(&mut self) -> Option<Event<H>> {
        self.handshakes.poll_event()
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.handshakes.poll_transmit().or_else(|| self.keepalives.pop_front())
    }
}

//! One connection's modules, and running them one after the other on the caller's time.
//!
//! [`ConnectionModules`] is what elements share. [`Stack`] runs a whole line by itself, on one thread and without
//! I/O: a simulation's end of a connection, and the reference for elements on threads. Call
//! [`Stack::handle_message`] and [`Stack::handle_datagram`] with what comes, and
//! [`Stack::handle_timeout`] once [`Stack::poll_timeout`] is due. After each of them, call
//! [`Stack::poll_transmit`] and [`Stack::poll_message`] until they return nothing.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge_units::{Bytes, Instant};

use crate::compose::{BuildError, Composition};
use crate::concurrency::{Concurrency, SingleThreaded};
use crate::deliver::Delivery;
use crate::message::{Buffers, Message};
use crate::module::{AnyModule, Call, Connection, Direction, Keys, Outputs, Reason, WorkerPool};

/// The modules of one connection, for any number of elements.
#[derive(Debug)]
pub struct ConnectionModules<C: Concurrency = SingleThreaded> {
    composition: Composition,
    connection: Connection<C>,
    modules: Vec<AnyModule<C>>,
    buffers: Buffers<C>,
}

/// Buffers kept for the next messages.
const BUFFERS: usize = 1024;

impl<C: Concurrency> ConnectionModules<C> {
    /// One end of connection `id`.
    pub fn new(
        composition: &Composition,
        id: u32,
        keys: Option<&Keys>,
    ) -> Result<Self, BuildError> {
        Self::with_worker_pool(composition, id, keys, None)
    }

    /// The same, where slaves share the encryption of large messages.
    pub fn with_worker_pool(
        composition: &Composition,
        id: u32,
        keys: Option<&Keys>,
        worker_pool: Option<&Arc<dyn WorkerPool>>,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            composition: composition.clone(),
            connection: Connection::new(id),
            modules: composition.build_with(keys, worker_pool)?,
            buffers: Buffers::new(BUFFERS),
        })
    }

    /// Its modules' names and arguments.
    #[must_use]
    pub const fn composition(&self) -> &Composition {
        &self.composition
    }

    /// The connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection<C> {
        &self.connection
    }

    /// The buffers of its messages.
    #[must_use]
    pub const fn buffers(&self) -> &Buffers<C> {
        &self.buffers
    }

    /// The modules, from the application down.
    #[must_use]
    pub fn modules(&self) -> &[AnyModule<C>] {
        &self.modules
    }

    /// What a module is given at this time.
    #[must_use]
    pub const fn call(&self, now: Instant) -> Call<'_, C> {
        Call { connection: &self.connection, now, buffers: &self.buffers }
    }

    /// The application's message with its ticket: the proxy's copy.
    #[must_use]
    pub fn message(&self, bytes: &[u8], ticket: u64, now: Instant) -> Message {
        Message::copy_of(bytes, &self.buffers).numbered(ticket, now)
    }

    /// The headers that the modules would put before the message of these parts, where that is all
    /// they would do; the parts themselves stay where they are.
    #[must_use]
    pub fn wrap(&self, parts: &[&[u8]], ticket: u64, now: Instant) -> Option<Message> {
        let mut header = Message::with_room(0, &self.buffers).numbered(ticket, now);
        let call = self.call(now);
        if self.modules.iter().all(|module| module.wrap(&mut header, parts, &call)) {
            return Some(header);
        }
        self.buffers.recycle(header);
        None
    }

    /// Why a message with this ticket can't be sent now, or nothing.
    #[must_use]
    pub fn check_send(&self, len: usize, ticket: u64) -> Option<SendError> {
        let (size, largest) = (Bytes(len as u64), self.composition.largest());
        if size > largest {
            return Some(SendError::TooLarge { size, largest });
        }
        if self.has_lost_peer() {
            return Some(SendError::PeerLost);
        }
        (!self.modules.iter().all(|module| module.takes(ticket))).then_some(SendError::Full)
    }

    /// Whether a module has given up the peer.
    #[must_use]
    pub fn has_lost_peer(&self) -> bool {
        self.modules.iter().any(|module| module.has_lost_peer())
    }
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The stack does not carry it.
    #[error(
        "a message of {size}, the stack carries {largest}; send less in one, or put frag in the stack"
    )]
    TooLarge {
        /// Its size.
        size: Bytes,
        /// The most.
        largest: Bytes,
    },
    /// Too much is on its way.
    #[error("the window is full; send again when the peer has acknowledged")]
    Full,
    /// The peer acknowledged nothing for too long.
    #[error("the peer is silent; connect again")]
    PeerLost,
    /// The peer has closed the connection.
    #[error("the peer has closed the connection; connect again")]
    Closed,
    /// It is held to its contract, which does not allow a message of this size.
    #[error(
        "a message of {size}, held to a contract of {largest}; send less, or state a larger contract"
    )]
    BeyondContract {
        /// Its size.
        size: Bytes,
        /// The contract's largest.
        largest: Bytes,
    },
}

/// Datagrams and messages that wait to be taken, at most, before more is refused.
const QUEUE_MAX: usize = 4096;

/// A line that runs by itself, without elements.
#[derive(Debug)]
pub struct Stack {
    line: ConnectionModules,
    next: u64,
    out: Outputs,
    /// What is to be handled next, last first: place of the module, way, message.
    work: Vec<(usize, Direction, Message)>,
    transmit: VecDeque<Message>,
    delivery: Delivery,
}

impl Stack {
    /// Runs this line.
    #[must_use]
    pub fn new(line: ConnectionModules) -> Self {
        let delivery = Delivery::new(line.composition().order());
        Self {
            line,
            next: 0,
            out: Outputs::default(),
            work: Vec::new(),
            transmit: VecDeque::new(),
            delivery,
        }
    }

    /// Its modules.
    #[must_use]
    pub const fn line(&self) -> &ConnectionModules {
        &self.line
    }

    /// Takes a message from the application.
    pub fn handle_message(&mut self, now: Instant, bytes: &[u8]) -> Result<(), SendError> {
        if let Some(error) = self.line.check_send(bytes.len(), self.next) {
            return Err(error);
        }
        if self.transmit.len() >= QUEUE_MAX {
            return Err(SendError::Full);
        }
        let message = self.line.message(bytes, self.next, now);
        self.next += 1;
        self.run(0, Direction::Down, message, now);
        Ok(())
    }

    /// Takes a datagram from the network.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        // A reliable transport must hear acknowledgements even if nobody takes what it delivers.
        let full = self.delivery.len() >= QUEUE_MAX;
        self.line.connection.set_full(full);
        let full = full && !self.line.composition.has("reliable");
        if full || self.transmit.len() >= 4 * QUEUE_MAX {
            return self.line.connection.count(Reason::NoRoom);
        }
        let mut message = Message::copy_of(datagram, &self.line.buffers);
        message.arrived = now;
        self.run(self.line.modules.len() - 1, Direction::Up, message, now);
    }

    /// Does what is due by now.
    pub fn handle_timeout(&mut self, now: Instant) {
        for place in 0..self.line.modules.len() {
            let line = &self.line;
            line.modules[place].handle_timeout(&line.call(now), &mut self.out);
            self.follow(place, now);
        }
    }

    /// When [`Stack::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.line.modules.iter().filter_map(|module| module.poll_timeout()).min()
    }

    /// The next datagram for the network. Give it back with [`Stack::recycle`].
    pub fn poll_transmit(&mut self) -> Option<Message> {
        self.transmit.pop_front()
    }

    /// The next message for the application. Give it back with [`Stack::recycle`].
    pub fn poll_message(&mut self) -> Option<Message> {
        self.delivery.pop()
    }

    /// A message whose bytes have been used.
    pub fn recycle(&self, message: Message) {
        self.line.buffers.recycle(message);
    }

    /// Whether everything that was sent has arrived, as far as the stack can know.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.transmit.is_empty() && self.line.modules.iter().all(|module| module.is_acknowledged())
    }

    fn run(&mut self, place: usize, direction: Direction, message: Message, now: Instant) {
        let line = &self.line;
        line.modules[place].handle(direction, message, &line.call(now), &mut self.out);
        self.follow(place, now);
    }

    /// Takes what came out at `place` on, each message to its end before the next: so order stays.
    fn follow(&mut self, place: usize, now: Instant) {
        self.collect_outputs(place, now);
        while let Some((place, direction, message)) = self.work.pop() {
            let line = &self.line;
            line.modules[place].handle(direction, message, &line.call(now), &mut self.out);
            self.collect_outputs(place, now);
        }
    }

    fn collect_outputs(&mut self, place: usize, now: Instant) {
        let (last, from) = (self.line.modules.len() - 1, self.work.len());
        let mut leaving = false;
        for (direction, message) in self.out.drain() {
            let next = match direction {
                Direction::Down if place == last => usize::MAX,
                Direction::Down => place + 1,
                Direction::Up if place == 0 => usize::MAX,
                Direction::Up => place - 1,
            };
            if next != usize::MAX {
                self.work.push((next, direction, message));
                continue;
            }
            leaving = true;
            match direction {
                Direction::Down => self.transmit.push_back(message),
                Direction::Up => self.delivery.push(message, &self.line.call(now)),
            }
        }
        debug_assert!(!leaving || place == 0 || place == last);
        self.work[from..].reverse();
    }
}

//! One connection's modules, and running them one after the other on the caller's thread.
//!
//! [`ConnectionModules`] is shared by elements. [`Stack`] runs a whole line by itself, on one
//! thread and without I/O: a simulation's end of a connection, and the reference for elements on
//! threads. Call [`Stack::handle_message`] and [`Stack::handle_datagram`] with the input, and
//! [`Stack::handle_timeout`] once [`Stack::poll_timeout`] is due. After each of them, call
//! [`Stack::poll_transmit`] and [`Stack::poll_message`] until they return `None`.

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

/// The number of buffers that are kept for reuse.
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

    /// The same, with worker threads that share the encryption of large messages.
    pub fn with_worker_pool(
        composition: &Composition,
        id: u32,
        keys: Option<&Keys>,
        worker_pool: Option<&Arc<dyn WorkerPool>>,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            composition: composition.clone(),
            connection: Connection::new(id),
            modules: composition.build(keys, worker_pool)?,
            buffers: Buffers::new(BUFFERS),
        })
    }

    /// The composition: its modules' names and arguments.
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

    /// The arguments of a module at this time.
    #[must_use]
    pub const fn call(&self, now: Instant) -> Call<'_, C> {
        Call { connection: &self.connection, now, buffers: &self.buffers }
    }

    /// The application's message with its ticket: the proxy's copy.
    #[must_use]
    pub fn message(&self, bytes: &[u8], ticket: u64, now: Instant) -> Message {
        Message::copy_of(bytes, &self.buffers).numbered(ticket, now)
    }

    /// The headers that the modules would prepend to the message of these parts, if they would do
    /// nothing else; the parts themselves are not copied.
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

    /// Why a message with this ticket can't be sent now, if it can't.
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
    /// The message is larger than the stack carries.
    #[error(
        "a message of {size}, the stack carries {largest}; send less in one, or put frag in the stack"
    )]
    TooLarge {
        /// Its size.
        size: Bytes,
        /// The largest size.
        largest: Bytes,
    },
    /// Too many messages are in flight.
    #[error("the window is full; send again when the peer has acknowledged")]
    Full,
    /// The peer acknowledged nothing for too long.
    #[error("the peer is silent; connect again")]
    PeerLost,
    /// The peer has closed the connection.
    #[error("the peer has closed the connection; connect again")]
    Closed,
    /// The contract does not allow a message of this size.
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

/// The largest number of datagrams and of messages that wait to be taken; more are refused.
const QUEUE_MAX: usize = 4096;

/// A line that runs by itself, without elements.
#[derive(Debug)]
pub struct Stack {
    line: ConnectionModules,
    next: u64,
    out: Outputs,
    /// A stack of messages still to be handled: place of the module, direction, message.
    work: Vec<(usize, Direction, Message)>,
    transmit: VecDeque<Message>,
    delivery: Delivery,
}

impl Stack {
    /// One end of a connection that runs this line.
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

    /// The modules.
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
        // A reliable transport must receive acknowledgements even if the application takes no messages.
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

    /// Runs what is due by now.
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

    /// The next datagram for the network. Return it with [`Stack::recycle`].
    pub fn poll_transmit(&mut self) -> Option<Message> {
        self.transmit.pop_front()
    }

    /// The next message for the application. Return it with [`Stack::recycle`].
    pub fn poll_message(&mut self) -> Option<Message> {
        self.delivery.pop()
    }

    /// Returns the buffers of a message that is no longer needed.
    pub fn recycle(&self, message: Message) {
        self.line.buffers.recycle(message);
    }

    /// Whether all sent messages have arrived, as far as the stack can know.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.transmit.is_empty() && self.line.modules.iter().all(|module| module.is_acknowledged())
    }

    fn run(&mut self, place: usize, direction: Direction, message: Message, now: Instant) {
        let line = &self.line;
        line.modules[place].handle(direction, message, &line.call(now), &mut self.out);
        self.follow(place, now);
    }

    /// Passes on the messages that left the module at `place`, each to its end before the next, to
    /// keep order.
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

//! The interface of all protocol modules, and its arguments.

use core::fmt;

use selvedge_units::Instant;

use crate::concurrency::{Concurrency, Counter, SingleThreaded};
use crate::message::{Buffers, Message};

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the application to the network.
    Down,
    /// From the network to the application.
    Up,
}

/// A module of a connection's stack.
pub trait Module<C: Concurrency>: fmt::Debug {
    /// Handles one message of one direction, and puts the resulting messages into `out`. Bounded work.
    fn handle(
        &self,
        direction: Direction,
        message: Message,
        call: &Call<'_, C>,
        out: &mut Outputs,
    ) {
        match direction {
            Direction::Down => self.down(message, call, out),
            Direction::Up => self.up(message, call, out),
        }
    }

    /// Handles a message from the module above.
    fn down(&self, message: Message, call: &Call<'_, C>, out: &mut Outputs);

    /// Handles a message from the module below.
    fn up(&self, message: Message, call: &Call<'_, C>, out: &mut Outputs);

    /// Prepends to `header` what [`Module::handle`] would prepend to a message of the header's
    /// bytes and these parts. Returns `false` if the module does more than that, or does not always
    /// do it. So a message need not be copied to get its headers.
    fn wrap(&self, header: &mut Message, parts: &[&[u8]], call: &Call<'_, C>) -> bool {
        let _ = (header, parts, call);
        false
    }

    /// The part of its work on a message that needs a lock of its state.
    fn critical(&self, direction: Direction) -> Critical {
        let _ = direction;
        Critical::Nothing
    }

    /// Runs what is due by now: retransmissions, acknowledgements, expiry.
    fn handle_timeout(&self, call: &Call<'_, C>, out: &mut Outputs) {
        let _ = (call, out);
    }

    /// When [`Module::handle_timeout`] has something to do next.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Whether the module accepts the message with this ticket now, within its memory.
    fn takes(&self, ticket: u64) -> bool {
        let _ = ticket;
        true
    }

    /// Whether all sent messages have arrived, as far as the module can know.
    fn is_acknowledged(&self) -> bool {
        true
    }

    /// Whether the module has given up the peer.
    fn has_lost_peer(&self) -> bool {
        false
    }
}

/// The part of a module's work on a message that only one element at a time can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Critical {
    /// Nothing, or next to nothing.
    #[default]
    Nothing,
    /// Marking a number as seen.
    Window,
    /// All of it, except the part that grows with the message's bytes.
    Whole,
}

/// The arguments of a module besides the message and its own state.
#[derive(Debug)]
pub struct Call<'a, C: Concurrency = SingleThreaded> {
    /// The connection.
    pub connection: &'a Connection<C>,
    /// The current time.
    pub now: Instant,
    /// Buffers for messages that the module makes or drops.
    pub buffers: &'a Buffers<C>,
}

impl<C: Concurrency> Call<'_, C> {
    /// Drops the message, for this reason.
    pub fn drop(&self, message: Message, why: Reason) {
        self.connection.count(why);
        self.buffers.recycle(message);
    }
}

/// The messages that leave a module, with their directions, in order.
#[derive(Debug, Default)]
pub struct Outputs {
    messages: Vec<(Direction, Message)>,
}

impl Outputs {
    /// Sends a message to the module below.
    pub fn down(&mut self, message: Message) {
        self.messages.push((Direction::Down, message));
    }

    /// Sends a message to the module above.
    pub fn up(&mut self, message: Message) {
        self.messages.push((Direction::Up, message));
    }

    /// Takes all messages.
    pub fn drain(&mut self) -> impl Iterator<Item = (Direction, Message)> + '_ {
        self.messages.drain(..)
    }

    /// Whether there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

selvedge_units::named! {
    /// Why a message was dropped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum Reason {
        /// A checksum or a stated length does not match the bytes.
        Corrupt = "corrupt",
        /// A header is invalid.
        Malformed = "malformed",
        /// The message was received before.
        Duplicate = "duplicate",
        /// Newer messages were delivered meanwhile.
        Late = "late",
        /// The nonce was used before.
        Replayed = "replayed",
        /// The message is not authentic.
        Forged = "forged",
        /// The message can't be encrypted, so it is not sent.
        Unsealed = "unsealed",
        /// The message is larger than this stack carries.
        TooLarge = "too large",
        /// The memory for incomplete messages is used up; the oldest is dropped.
        NoRoom = "no room",
        /// The message is beyond the granted window.
        OutOfWindow = "out of window",
        /// The message is for another connection.
        Stranger = "stranger",
        /// The sender was held to its contract.
        Policed = "policed",
    }
}

/// A connection: the state that all its modules share.
#[derive(Debug)]
pub struct Connection<C: Concurrency = SingleThreaded> {
    /// The number by which datagrams state their connection; the same on both hosts.
    pub id: u32,
    /// Whether the application has too much to read: 1, or 0.
    full: C::Counter,
    dropped: [C::Counter; Reason::ALL.len()],
}

impl<C: Concurrency> Connection<C> {
    /// A connection with all counts at zero.
    #[must_use]
    pub fn new(id: u32) -> Self {
        let zero = |_| C::Counter::new(0);
        Self { id, full: zero(Reason::Corrupt), dropped: Reason::ALL.map(zero) }
    }

    /// Whether the application has so much to read that it should get no more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load() != 0
    }

    /// Sets whether the application has too much to read.
    pub fn set_full(&self, full: bool) {
        self.full.store(u64::from(full));
    }

    /// Counts a dropped message.
    pub fn count(&self, why: Reason) {
        self.dropped[why as usize].add(1);
    }

    /// The number of messages that were dropped for this reason.
    #[must_use]
    pub fn dropped(&self, why: Reason) -> u64 {
        self.dropped[why as usize].load()
    }
}

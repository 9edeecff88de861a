//! What all protocol modules have in common: their interface, and what they are given.

use core::fmt;

use selvedge_units::Instant;

use crate::concurrency::{Concurrency, Counter, SingleThreaded};
use crate::message::{Buffers, Message};

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the application to the network.
    Down,
    /// From the network to the application.
    Up,
}

/// A module of a connection's stack.
pub trait Module<C: Concurrency>: fmt::Debug {
    /// Its name in the line of text.
    fn name(&self) -> &'static str;

    /// Takes one message in one direction and says by `out` what comes of it. Bounded work.
    fn handle(&self, direction: Direction, message: Message, call: &Call<'_, C>, out: &mut Outputs);

    /// Puts before `header` what [`Module::handle`] would put before a message of the header's bytes
    /// and these parts; `false` from a module that does more than that, or nothing always. So a
    /// message need not be copied to get its headers.
    fn wrap(&self, header: &mut Message, parts: &[&[u8]], call: &Call<'_, C>) -> bool {
        let _ = (header, parts, call);
        false
    }

    /// How much of its work on a message is behind a lock of its state.
    fn critical(&self, direction: Direction) -> Critical {
        let _ = direction;
        Critical::Nothing
    }

    /// Does what is due by now: retransmissions, acknowledgements, expiry.
    fn handle_timeout(&self, call: &Call<'_, C>, out: &mut Outputs) {
        let _ = (call, out);
    }

    /// When [`Module::handle_timeout`] has something to do next.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Whether it takes the message with this ticket now, without exceeding its memory.
    fn takes(&self, ticket: u64) -> bool {
        let _ = ticket;
        true
    }

    /// Whether nothing that was sent is still on its way, as far as it can know.
    fn is_acknowledged(&self) -> bool {
        true
    }

    /// Whether it has given up the peer.
    fn has_lost_peer(&self) -> bool {
        false
    }
}

/// What only one element at a time can do of a module's work on a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Critical {
    /// Nothing, or next to nothing.
    #[default]
    Nothing,
    /// Marking a number as seen.
    Window,
    /// All of it, but for what grows with its bytes.
    Whole,
}

/// What a module is given besides the message and its own state.
#[derive(Debug)]
pub struct Call<'a, C: Concurrency = SingleThreaded> {
    /// The connection.
    pub connection: &'a Connection<C>,
    /// The time.
    pub now: Instant,
    /// Buffers for messages that it makes, and for those that end with it.
    pub buffers: &'a Buffers<C>,
}

impl<C: Concurrency> Call<'_, C> {
    /// The message ends here, for this reason.
    pub fn drop(&self, message: Message, why: Reason) {
        self.connection.count(why);
        self.buffers.recycle(message);
    }
}

/// Where messages go from a module, in order.
#[derive(Debug, Default)]
pub struct Outputs {
    messages: Vec<(Direction, Message)>,
}

impl Outputs {
    /// To the module below.
    pub fn down(&mut self, message: Message) {
        self.messages.push((Direction::Down, message));
    }

    /// To the module above.
    pub fn up(&mut self, message: Message) {
        self.messages.push((Direction::Up, message));
    }

    /// Onward, whichever way it went.
    pub fn forward(&mut self, direction: Direction, message: Message) {
        self.messages.push((direction, message));
    }

    /// All, which empties it.
    pub fn drain(&mut self) -> impl Iterator<Item = (Direction, Message)> + '_ {
        self.messages.drain(..)
    }

    /// Whether nothing came.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

selvedge_units::named! {
    /// Why a message went no further.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum Reason {
        /// A checksum or a stated length does not agree with the bytes.
        Corrupt = "corrupt",
        /// A header makes no sense.
        Malformed = "malformed",
        /// It was received before.
        Duplicate = "duplicate",
        /// Newer ones were delivered meanwhile.
        Late = "late",
        /// Its nonce was used before.
        Replayed = "replayed",
        /// It does not authenticate.
        Forged = "forged",
        /// It can't be encrypted, so it is not sent.
        Unsealed = "unsealed",
        /// Larger than this stack takes.
        TooLarge = "too large",
        /// Memory for messages in parts is used up; the oldest goes.
        NoRoom = "no room",
        /// Beyond the window that was granted.
        OutOfWindow = "out of window",
        /// For another connection.
        Stranger = "stranger",
        /// Held to its contract.
        Policed = "policed",
    }
}

/// A connection: what all its modules share.
#[derive(Debug)]
pub struct Connection<C: Concurrency = SingleThreaded> {
    /// The number by which datagrams say whose they are; the same on both hosts.
    pub id: u32,
    /// Whether the application has too much to read: 1, or 0.
    full: C::Counter,
    dropped: [C::Counter; Reason::ALL.len()],
}

impl<C: Concurrency> Connection<C> {
    /// A connection with nothing counted.
    #[must_use]
    pub fn new(id: u32) -> Self {
        let zero = |_| C::Counter::new(0);
        Self { id, full: zero(Reason::Corrupt), dropped: Reason::ALL.map(zero) }
    }

    /// Whether the application has so much to read that it should get nothing more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load() != 0
    }

    /// Says so, or that there is room again.
    pub fn set_full(&self, full: bool) {
        self.full.store(u64::from(full));
    }

    /// Counts a message that went no further.
    pub fn count(&self, why: Reason) {
        self.dropped[why as usize].add(1);
    }

    /// How many went no further for this reason.
    #[must_use]
    pub fn dropped(&self, why: Reason) -> u64 {
        self.dropped[why as usize].load()
    }
}

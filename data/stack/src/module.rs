//! Protocol modules: one interface, and what they are given.
//!
//! A module gets a message, the connection, its protocol state (`self`) and the state of the
//! infrastructure, the same four for all (section 2.2). Stacks do not multiplex: a module instance
//! serves one connection, both ways. It may be run by several elements at once, so what state it
//! has is behind a lock that it holds as shortly as it can.

mod checksum;
mod compress;
mod crew;
mod encrypt;
mod fec;
mod frag;
mod net;
mod reliable;
mod ui;
mod unreliable;
mod window;

pub use checksum::Checksum;
pub use compress::Compress;
pub use crew::{Crew, Part, Task};
pub use encrypt::{CHUNK, Cipher, Encrypt, Key, Keys};
pub use fec::Fec;
pub use frag::{FRAGMENT_MIN, Frag};
pub use net::{DATAGRAM_MAX, Net};
pub use reliable::Reliable;
pub use ui::Ui;
pub use unreliable::Unreliable;

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge_units::Instant;

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
pub trait Module: Send + Sync + fmt::Debug {
    /// Its name in the line of text.
    fn name(&self) -> &'static str;

    /// Takes one message in one direction and says by `out` what comes of it. Bounded work.
    fn handle(&self, direction: Direction, message: Message, call: &Call<'_>, out: &mut Outputs);

    /// Puts before `header` what [`Module::handle`] would put before a message of the header's bytes
    /// and these parts; `false` from a module that does more than that, or nothing always. So a
    /// message need not be copied to get its headers.
    fn wrap(&self, header: &mut Message, parts: &[&[u8]], call: &Call<'_>) -> bool {
        let _ = (header, parts, call);
        false
    }

    /// How much of its work on a message is behind a lock of its state.
    fn critical(&self, direction: Direction) -> Critical {
        let _ = direction;
        Critical::Nothing
    }

    /// Does what is due by now: retransmissions, acknowledgements, expiry.
    fn tick(&self, call: &Call<'_>, out: &mut Outputs) {
        let _ = (call, out);
    }

    /// When [`Module::tick`] has something to do next.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Whether it takes the message with this ticket now, without exceeding its memory.
    fn takes(&self, ticket: u64) -> bool {
        let _ = ticket;
        true
    }

    /// Whether nothing that was sent is still on its way, as far as it can know.
    fn is_quiet(&self) -> bool {
        true
    }

    /// Whether it has given up the peer.
    fn is_dead(&self) -> bool {
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
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The connection.
    pub connection: &'a Connection,
    /// The time.
    pub now: Instant,
    /// Buffers for messages that it makes, and for those that end with it.
    pub buffers: &'a Buffers,
}

impl Call<'_> {
    /// The message ends here, for this reason.
    pub fn drop(&self, message: Message, why: Reason) {
        self.connection.count(why);
        self.buffers.give(message);
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
    pub fn on(&mut self, direction: Direction, message: Message) {
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

/// Why a message went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Reason {
    /// A checksum or a stated length does not agree with the bytes.
    Corrupt,
    /// A header makes no sense.
    Malformed,
    /// It was received before.
    Duplicate,
    /// Newer ones were delivered meanwhile.
    Late,
    /// Its nonce was used before.
    Replayed,
    /// It does not authenticate.
    Forged,
    /// Larger than this stack takes.
    TooLarge,
    /// Memory for messages in parts is used up; the oldest goes.
    NoRoom,
    /// Beyond the window that was granted.
    OutOfWindow,
    /// For another connection.
    Stranger,
    /// Held to its contract.
    Policed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Corrupt,
        Self::Malformed,
        Self::Duplicate,
        Self::Late,
        Self::Replayed,
        Self::Forged,
        Self::TooLarge,
        Self::NoRoom,
        Self::OutOfWindow,
        Self::Stranger,
        Self::Policed,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::Malformed => "malformed",
            Self::Duplicate => "duplicate",
            Self::Late => "late",
            Self::Replayed => "replayed",
            Self::Forged => "forged",
            Self::TooLarge => "too large",
            Self::NoRoom => "no room",
            Self::OutOfWindow => "out of window",
            Self::Stranger => "stranger",
            Self::Policed => "policed",
        }
    }
}

/// A connection: what all its modules share.
#[derive(Debug)]
pub struct Connection {
    /// The number by which datagrams say whose they are; the same on both hosts.
    pub id: u32,
    full: AtomicBool,
    dropped: [AtomicU64; Reason::ALL.len()],
}

impl Connection {
    /// A connection with nothing counted.
    #[must_use]
    pub fn new(id: u32) -> Self {
        Self { id, full: AtomicBool::new(false), dropped: Default::default() }
    }

    /// Whether the application has so much to read that it should get nothing more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Says so, or that there is room again.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Relaxed);
    }

    /// Counts a message that went no further.
    pub fn count(&self, why: Reason) {
        self.dropped[why as usize].fetch_add(1, Relaxed);
    }

    /// How many went no further for this reason.
    #[must_use]
    pub fn dropped(&self, why: Reason) -> u64 {
        self.dropped[why as usize].load(Relaxed)
    }
}

pub(crate) use net::{HEADER as NET_HEADER, PAYLOAD_MAX as NET_PAYLOAD_MAX};

/// How many bytes a module adds to a message of at most this size.
pub(crate) fn overhead(step: crate::compose::Step, size: usize) -> usize {
    use crate::compose::Step;
    match step {
        Step::Ui | Step::Net(_) => 0,
        Step::Unreliable { .. } => 8,
        Step::Reliable => 9,
        Step::Frag(_) => 14,
        Step::Checksum | Step::Compress => 4,
        Step::Fec { .. } => 9,
        Step::Encrypt(_) => 8 + 16 * size.div_ceil(CHUNK).max(1),
    }
}

/// Locks a module's state. A module that panicked, which would be a bug, must not take the others
/// with it; its state is as it left it.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

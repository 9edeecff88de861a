//! Protocol modules: one interface, and its arguments.
//!
//! A module gets a message, the connection, its protocol state (`self`) and the state of the
//! infrastructure, the same four for all (section 2.2). Stacks do not multiplex: a module instance
//! serves one connection, in both directions. Several elements may run it at once, so its state is
//! kept in the types of its [`Concurrency`], and changed as briefly as possible.

mod checksum;
mod compress;
mod encrypt;
mod fec;
mod frag;
mod interface;
mod net;
mod reliable;
mod ui;
mod unreliable;
mod worker_pool;

use core::ops::Deref;

pub use selvedge_data_net_secure::{Cipher, Key, Keys};

pub use self::checksum::Checksum;
pub use self::compress::Compress;
pub use self::encrypt::{CHUNK, Encrypt};
pub use self::fec::Fec;
pub use self::frag::{FRAGMENT_MIN, Frag};
pub use self::interface::{Call, Connection, Critical, Direction, Module, Outputs, Reason};
pub use self::net::{DATAGRAM_MAX, Net};
pub(crate) use self::net::{HEADER as NET_HEADER, PAYLOAD_MAX as NET_PAYLOAD_MAX};
pub use self::reliable::Reliable;
pub use self::ui::Ui;
pub use self::unreliable::Unreliable;
pub use self::worker_pool::{Chunk, Task, WorkerPool};
use crate::concurrency::{Concurrency, SingleThreaded};

/// A module of any kind: a place in a connection's stack. Modules with state have memory of their
/// own, so that elements that serve neighbours do not share cache lines.
#[derive(Debug)]
#[allow(missing_docs, reason = "each is the module of its name")]
pub enum AnyModule<C: Concurrency = SingleThreaded> {
    Ui(Ui),
    Unreliable(Box<Unreliable<C>>),
    Reliable(Box<Reliable<C>>),
    Frag(Box<Frag<C>>),
    Checksum(Checksum),
    Fec(Box<Fec<C>>),
    Compress(Compress),
    Encrypt(Box<Encrypt<C>>),
    Net(Net),
}

impl<C: Concurrency> Deref for AnyModule<C> {
    type Target = dyn Module<C>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Ui(module) => module,
            Self::Unreliable(module) => &**module,
            Self::Reliable(module) => &**module,
            Self::Frag(module) => &**module,
            Self::Checksum(module) => module,
            Self::Fec(module) => &**module,
            Self::Compress(module) => module,
            Self::Encrypt(module) => &**module,
            Self::Net(module) => module,
        }
    }
}

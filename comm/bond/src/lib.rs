//! A bond of several paths over UDP sockets.
//!
//! [`BondSender`] is the near end: a socket for each path, bound to its device, and a thread. [`BondReceiver`] is the far
//! end: one socket, and a thread that gives each stream's packets in order. `data/net/bond` decides which packet goes
//! where; every datagram travels through the secure layer (`data/net/secure`), on a connection of its own for each path.
//!
//! ```text
//! a link's engine -> BondSender -> a socket for each path -> BondReceiver -> packets of each stream
//!                        <- reports on the same path <-
//! ```
//!
//! Traffic that has two directions goes back by the same connections (`back.rs`).
//!
//! It realises Aurora's striping (1:3.4, 2:2.3) over the internet. The far end answers each path at the address from
//! which its latest authentic packet came, so that the bond follows a NAT that maps anew.

#![forbid(unsafe_code)]

mod answerer;
mod back;
mod caller;
mod deliver;
mod ect;
mod proposal;
mod receiver;
mod sender;

pub use deliver::Deliver;
pub use receiver::{BondReceiver, ReceiverView};
pub use sender::{BondSender, PathOptions, PathView, SenderOptions};

use selvedge_data_net_secure::{Identity, PublicKey};

/// How both ends know each other. Packets are always sealed.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// A secret or a static key; with [`Identity::Open`] an end does not start.
    pub identity: Identity,
    /// With a static key: the keys that may connect.
    pub peers: Vec<PublicKey>,
    /// With a static key, at the near end: the far end's key, if several may connect.
    pub peer: Option<PublicKey>,
}

/// Why an end can't start.
#[derive(Debug, thiserror::Error)]
pub enum BondError {
    /// Without a secret or a key.
    #[error("a bond needs a secret or a key at both ends")]
    Open,
    /// More paths than there are numbers.
    #[error("{0} paths; a bond has at most {most}", most = bond_paths_max())]
    Paths(usize),
    /// The socket of the far end.
    #[error(transparent)]
    Socket(#[from] selvedge_os::socket::SocketError),
    /// A thread, or the event that wakes it.
    #[error("can't start the thread of a bond: {0}")]
    Thread(#[from] std::io::Error),
}

const fn bond_paths_max() -> usize {
    PATHS_MAX
}

/// The most paths of a bond.
pub const PATHS_MAX: usize = 16;

//! Why there is no endpoint, no connection, or no message.

use std::io;
use std::net::SocketAddr;

use selvedge_data_net_secure::ProposeError;
use selvedge_data_stack::auto::RenegotiateError;
use selvedge_data_stack::compose::ComposeError;
use selvedge_data_stack::endpoint::RoomError;
use selvedge_os::SocketError;

use crate::reservation::ReservationError;
use crate::rings::RingError;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The line is not a valid stack.
    #[error("stack \"{line}\": {why}")]
    Stack {
        /// The line.
        line: String,
        /// The error in it.
        why: ComposeError,
    },
    /// This host can't keep the contract.
    #[error("this host refuses: {0}")]
    Local(#[from] RefusedHere),
    /// The other host can't keep the contract.
    #[error("{peer} refuses: {why}")]
    Remote {
        /// The other host.
        peer: SocketAddr,
        /// Its reason.
        why: String,
    },
    /// No host answers, or none with the same secret.
    #[error(
        "{0} does not answer; check the address, that it listens, and that both have the same secret, or \
         each the other's key"
    )]
    Silent(SocketAddr),
    /// The endpoint was dropped meanwhile.
    #[error("the endpoint was closed before {0} answered")]
    Over(SocketAddr),
}

/// Why this host makes no connection.
#[derive(Debug, thiserror::Error)]
pub enum RefusedHere {
    /// A contract is invalid, or does not fit.
    #[error(transparent)]
    Contract(#[from] RenegotiateError),
    /// The line of a hello is not a valid stack.
    #[error(transparent)]
    Stack(#[from] ComposeError),
    /// The contracts in a hello can't be parsed.
    #[error("the contract makes no sense")]
    Proposal,
    /// The key exchange failed.
    #[error(transparent)]
    Handshake(#[from] ProposeError),
    /// Shared memory can't be reached.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A welcome lacks the address that a stack over shared memory needs.
    #[error("the other end does not say where its memory is")]
    NoDoor,
    /// A hello lacks that address.
    #[error("net(shm), and the hello does not say where the memory is")]
    NoDoorInHello,
    /// There is no room for this connection, or its number belongs to another one.
    #[error("too many connections, or the same number twice; try again")]
    TooManyOrSameNumber,
    /// There is no room for this connection.
    #[error(transparent)]
    Room(#[from] RoomError),
}

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The socket can't be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A thread can't be started.
    #[error("cannot start a thread of the endpoint: {0}")]
    Thread(#[from] io::Error),
    /// The processors of its reservation do not exist.
    #[error(transparent)]
    Reservation(#[from] ReservationError),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// No message arrived in time.
    #[error("nothing came in time")]
    Timeout,
    /// The peer closed the connection.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer is gone.
    #[error("the peer is silent; connect again")]
    PeerLost,
}

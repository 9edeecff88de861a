//! Event channels inside one host: each source has a ring to each sink, in sealed memory that the
//! two share (the mailbox of `selvedge_data_memory`). The source wakes the sink only when the sink
//! sleeps. After Q-Fabric's chapters 3 and 4.
//!
//! Members meet by a channel's name, without a server: each has a socket in a directory of the user
//! ([`directory`]), and a new member connects to all present ones. [`Source`] and [`Sink`] carry bytes with
//! deadlines. [`LocalTransport`] carries whole exchanges of `selvedge-control-event`: formats, attributes,
//! filters. [`RingPeers`] are rings for a transport between hosts, for peers on the same host.
//! `docs/events-local.md` specifies sockets, messages and memory for peers in other languages.
//!
//! There is a ring for each pair rather than one for all. So each sink has its own bound and its
//! own overflow rule, and sees only its own events. A sink that is slow, stopped, killed or hostile
//! harms only its own ring.

#![forbid(unsafe_code)]

mod member;
mod message;
mod name;
mod ring;
mod ring_peers;
mod ring_reader;
mod ring_writer;
mod sink;
mod source;
mod transport;
mod waker;
mod waker_thread;

pub use member::PEERS_MAX;
pub use message::WakeMethod;
#[doc(hidden)]
pub use message::is_message;
pub use name::{NAME_MAX, channels, directory};
pub use ring::{PeerId, RingError, SinkOptions};
pub use ring_peers::{PutOutcome, RingEvent, RingPeers};
pub use sink::{Event, Sink, SinkCounts, WaitOutcome};
pub use source::{PublishError, SinkReport, Source, SourceCounts, SourceOptions};
pub use transport::LocalTransport;
pub use waker::Waker;

/// Why a channel can't be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The name is empty or too long.
    #[error("a channel's name has 1 to {NAME_MAX} bytes, this one has {0}")]
    Name(usize),
    /// The directory can't be made or used.
    #[error("channels can't meet in \"{path}\": {why}; set XDG_RUNTIME_DIR, or give a directory")]
    Directory {
        /// The directory.
        path: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// Other users could put sockets there.
    #[error(
        "\"{0}\" is not this user's alone; remove it, or give a directory that nobody else may write to"
    )]
    Foreign(String),
    /// Another member has been joining for two seconds.
    #[error("\"{0}\" is locked by a member that does not go on; end it, or give another directory")]
    Busy(String),
    /// The socket can't be made.
    #[error("can't listen at \"{path}\": {why}; a shorter directory may help")]
    Socket {
        /// Its path.
        path: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// The bound is zero.
    #[error("a sink's bound is at least 1")]
    Bound,
    /// A signal that can't carry a value.
    #[error("signal {0} is no real-time signal; choose one from SIGRTMIN to SIGRTMAX")]
    Signal(i32),
    /// Another error of the system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for JoinError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}

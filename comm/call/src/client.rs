//! A program's side: calls of a service, and its events.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use selvedge_comm_local::Waking;
use selvedge_os::clock::Clock;
use selvedge_os::eventfd::EventFd;
use selvedge_os::seqpacket::{self, Received};
use selvedge_units::{Instant, Span};

use crate::say::{Ask, Preference, Told, decode, encode};
use crate::segment::{Layout, Reader, SegmentError, Writer};
use crate::service::DATA_MAX;
use crate::subscription::Subscription;

/// How long a service may take to answer: so many looks, each so long. A machine that stood still for a while,
/// as a virtual one may, has spent one of them, and is not taken for a service that does.
const LOOKS: u32 = 50;
const LOOK: Span = Span::from_millis(100);

/// Why a service was not called.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is none of this name.
    #[error(
        "no service \"{name}\" in \"{directory}\": {why}; start its host, or look for its name there"
    )]
    Unknown {
        /// Its name.
        name: String,
        /// Where it was looked for.
        directory: String,
        /// What the system said.
        why: std::io::Error,
    },
    /// It will not.
    #[error("the service refuses: {0}")]
    Refused(String),
    /// It ended, or has ended the connection.
    #[error("the service is gone; open it again when it is back")]
    Gone,
    /// It said nothing for five seconds.
    #[error("the service has not answered within 5 s; see whether its host is stopped")]
    Silent,
    /// Its answer is none.
    #[error("the service's answer makes no sense; use a host of the same release")]
    Garbled,
    /// Too long.
    #[error("a call has at most {DATA_MAX} bytes, this one {0}")]
    TooLong(usize),
    /// Its memory will not do.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Something of this system's.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// What a service says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What it does.
    pub about: String,
    /// The format of its calls; empty if they are bytes.
    pub calls: String,
    /// The format of its events, likewise.
    pub events: String,
}

/// How a program wants a service's events, and makes its calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// The memory for its calls.
    pub up: Layout,
    /// The memory for events.
    pub down: Layout,
    /// How it is called when it sleeps.
    pub waking: Waking,
    /// Processor time for its events.
    pub preference: Option<Preference>,
}

/// When a deferred call is made, at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// With this program's next direct or generic call.
    NextCall,
    /// After this time, and not before.
    After(Span),
    /// Before the service's host hands out any event.
    BeforeDispatch,
}

/// An event of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceEvent<'a> {
    /// Its entry, if the memory is a bit pattern.
    pub entry: Option<u32>,
    /// When it is of no more use.
    pub deadline: Option<Instant>,
    /// What it says.
    pub data: &'a [u8],
}

/// A connection to a service.
#[derive(Debug)]
pub struct Client {
    pub(crate) socket: OwnedFd,
}

/// Calls a service by its name, once.
///
/// # Errors
/// [`ClientError`].
pub fn generic(directory: &Path, name: &str, data: &[u8]) -> Result<Vec<u8>, ClientError> {
    Client::open(directory, name)?.call(data)
}

impl Client {
    /// Finds a service by its name.
    ///
    /// # Errors
    /// [`ClientError::Unknown`].
    pub fn open(directory: &Path, name: &str) -> Result<Self, ClientError> {
        let socket = seqpacket::connect_to(&directory.join(name));
        let socket = socket.map_err(|why| ClientError::Unknown {
            name: name.to_owned(),
            directory: directory.display().to_string(),
            why,
        })?;
        Ok(Self { socket })
    }

    /// Calls it and waits for the reply: the generic call.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn call(&mut self, data: &[u8]) -> Result<Vec<u8>, ClientError> {
        if data.len() > DATA_MAX {
            return Err(ClientError::TooLong(data.len()));
        }
        let (bytes, _) = self.ask(&Ask::Call { data }, &[])?;
        match decode(&bytes) {
            Some(Told::Reply { data }) => Ok(data.to_vec()),
            Some(Told::Refused { why }) => Err(ClientError::Refused(why.to_owned())),
            _ => Err(ClientError::Garbled),
        }
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn describe(&mut self) -> Result<Description, ClientError> {
        let (bytes, _) = self.ask(&Ask::Describe, &[])?;
        match decode(&bytes) {
            Some(Told::Described { about, calls, events }) => {
                let [about, calls, events] = [about, calls, events].map(str::to_owned);
                Ok(Description { about, calls, events })
            }
            _ => Err(ClientError::Garbled),
        }
    }

    /// Subscribes: memory both ways, which the two share from now on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn subscribe(mut self, wish: Wish) -> Result<Subscription, ClientError> {
        let events = Reader::create(wish.down)?;
        let own = match wish.waking {
            Waking::Event => Some(EventFd::new()?),
            Waking::Futex | Waking::Signal { .. } => None,
        };
        let Wish { up, waking, preference, .. } = wish;
        let fds: Vec<BorrowedFd<'_>> =
            [events.file().as_fd()].into_iter().chain(own.as_ref().map(AsFd::as_fd)).collect();
        let (bytes, mut fds) = self.ask(&Ask::Subscribe { up, waking, preference }, &fds)?;
        let preferred = match decode(&bytes) {
            Some(Told::Subscribed { preferred }) => preferred,
            Some(Told::Refused { why }) => return Err(ClientError::Refused(why.to_owned())),
            _ => return Err(ClientError::Garbled),
        };
        let (Some(theirs), Some(memory)) = (fds.pop(), fds.pop()) else {
            return Err(ClientError::Garbled);
        };
        let theirs = EventFd::of(theirs)?;
        let calls = Writer::open(memory)?;
        let clock = Clock::shared();
        Ok(Subscription { client: self, calls, events, own, theirs, preferred, clock })
    }

    fn ask(
        &mut self,
        ask: &Ask<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), ClientError> {
        seqpacket::send(&self.socket, &encode(ask), fds).map_err(|_| ClientError::Gone)?;
        if !(0..LOOKS).any(|_| seqpacket::wait_readable(&self.socket, LOOK)) {
            // A late answer would be taken for that of the next call.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
            return Err(ClientError::Silent);
        }
        match seqpacket::receive(&self.socket) {
            Ok(Received::Message(bytes, fds)) => Ok((bytes, fds)),
            Ok(Received::TooLong) => Err(ClientError::Garbled),
            Ok(Received::Nothing | Received::End) | Err(_) => Err(ClientError::Gone),
        }
    }
}

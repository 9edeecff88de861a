//! A program's side: calls of a service, and its events.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use selvedge_os::seqpacket::{self, Received};
use selvedge_units::Duration;

use crate::message::{Request, Response, decode, encode};
use crate::segment::SegmentError;
use crate::service::DATA_MAX;

/// How long a service may take to answer: so many looks, each so long. A machine that stood still for a while,
/// as a virtual one may, has spent one of them, and is not taken for a service that does.
const POLLS_MAX: u32 = 50;
const POLL_EVERY: Duration = Duration::from_millis(100);

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
        let (bytes, _) = self.ask(&Request::Call { data }, &[])?;
        match decode(&bytes) {
            Some(Response::Reply { data }) => Ok(data.to_vec()),
            Some(Response::Refused { why }) => Err(ClientError::Refused(why.to_owned())),
            _ => Err(ClientError::Garbled),
        }
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn describe(&mut self) -> Result<Description, ClientError> {
        let (bytes, _) = self.ask(&Request::Describe, &[])?;
        match decode(&bytes) {
            Some(Response::Described { about, calls, events }) => {
                let [about, calls, events] = [about, calls, events].map(str::to_owned);
                Ok(Description { about, calls, events })
            }
            _ => Err(ClientError::Garbled),
        }
    }

    pub(crate) fn ask(
        &mut self,
        ask: &Request<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), ClientError> {
        seqpacket::send(&self.socket, &encode(ask), fds).map_err(|_| ClientError::Gone)?;
        if !(0..POLLS_MAX).any(|_| seqpacket::wait_readable(&self.socket, POLL_EVERY)) {
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

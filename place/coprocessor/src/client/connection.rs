//! One connection to a coprocessor: a question, then its answer.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use selvedge_os::seqpacket::{self as socket, Received};

use super::ANSWER;
use super::spawn::SpawnError;
use crate::message::{Envelope, PROTOCOL, Reply, Request};
use crate::segment::SegmentError;

/// Why a coprocessor can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "no coprocessor listens at \"{at}\": {why}; start selvedge-coproc, or leave out `socket`"
    )]
    Connect {
        /// The path.
        at: String,
        /// What the kernel said.
        why: io::Error,
    },
    /// It could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It will not.
    #[error("the coprocessor refuses: {0}")]
    Refused(String),
    /// Its answer is none.
    #[error("the coprocessor's answer makes no sense; use a selvedge-coproc of the same release")]
    Garbled,
    /// It said nothing for five seconds, or its connection broke.
    #[error("the coprocessor is gone; it is attached to again when it is back")]
    Gone,
    /// Its memory will not do.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Something of this system's.
    #[error("{0}")]
    System(#[source] io::Error),
}

/// A connection; one question at a time.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Connects to who listens at a path.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn open(path: &Path) -> Result<Self, ClientError> {
        let failed = |why| ClientError::Connect { at: path.display().to_string(), why };
        Ok(Self { socket: socket::connect_to(path).map_err(failed)? })
    }

    /// Asks, and waits for the answer and its descriptors.
    ///
    /// # Errors
    /// [`ClientError::Refused`], [`ClientError::Garbled`], [`ClientError::Gone`].
    pub fn ask(
        &mut self,
        request: Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ClientError> {
        let envelope = Envelope { v: PROTOCOL, request };
        let text = serde_json::to_vec(&envelope).map_err(|_| ClientError::Garbled)?;
        self.exchange(&text, fds)
    }

    /// The same for any bytes.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn exchange(
        &mut self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ClientError> {
        socket::send(&self.socket, bytes, fds).map_err(|_| ClientError::Gone)?;
        if !socket::wait_readable(&self.socket, ANSWER) {
            // A late answer would be taken for that of the next question.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
            return Err(ClientError::Gone);
        }
        match socket::receive(&self.socket) {
            Ok(Received::Message(bytes, fds)) => {
                let reply: Reply =
                    serde_json::from_slice(&bytes).map_err(|_| ClientError::Garbled)?;
                if reply.ok {
                    Ok((reply, fds))
                } else {
                    Err(ClientError::Refused(reply.error.unwrap_or_default()))
                }
            }
            Ok(Received::TooLong) => Err(ClientError::Garbled),
            Ok(Received::Nothing | Received::End) | Err(_) => Err(ClientError::Gone),
        }
    }

    /// Whether the other side is still there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = selvedge_os::clock::timespec(0);
        match poll(&mut fds, Some(&now)) {
            Ok(_) => {
                !fds[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR)
            }
            Err(error) => error == Errno::INTR,
        }
    }
}

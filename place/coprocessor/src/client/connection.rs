//! One connection to a coprocessor: a request, then its reply.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use selvedge_os::control::{self, ControlError};

use super::ANSWER;
use super::spawn::SpawnError;
use crate::message::{Reply, Request};
use crate::segment::SegmentError;

/// Why a coprocessor can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens.
    #[error(
        "no coprocessor listens at \"{at}\": {why}; start selvedge-coproc, or leave out `socket`"
    )]
    Connect {
        /// The path.
        at: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// The program could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The coprocessor refuses, or there is no reply. A coprocessor that is gone is attached to again when it
    /// is back.
    #[error("the coprocessor: {0}")]
    Control(#[from] ControlError),
    /// The memory is not usable.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// An error of the system.
    #[error("{0}")]
    System(#[source] io::Error),
}

impl ClientError {
    /// The error for a reply that lacks a required part.
    pub(super) fn lacks(what: &str) -> Self {
        ControlError::Malformed(format!("no {what} came")).into()
    }
}

/// A connection; one request at a time.
#[derive(Debug)]
pub struct Connection {
    /// The connection of the control protocol.
    pub control: control::Connection,
}

impl Connection {
    /// Connects to the coprocessor that listens at a path.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn open(path: &Path) -> Result<Self, ClientError> {
        let failed = |why| ClientError::Connect { at: path.display().to_string(), why };
        Ok(Self { control: control::Connection::open(path).map_err(failed)? })
    }

    /// Sends a request, and waits for the reply and its descriptors.
    ///
    /// # Errors
    /// [`ClientError::Control`].
    pub fn ask(
        &mut self,
        request: Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ClientError> {
        let reply = self.control.ask(&request, &[], fds, ANSWER)?;
        Ok((reply.body, reply.fds))
    }

    /// Whether the other side is still there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.control.is_open()
    }
}

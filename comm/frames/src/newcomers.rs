//! The path at which a node waits for programs, and those that have connected and said nothing yet.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use selvedge_os::seqpacket::{self, Received};

use crate::greeting::{Answer, Greeting, Role};

/// Programs that may have connected without a greeting.
const SILENT_MAX: usize = 8;

/// Why a node can't wait for programs at a path.
#[derive(Debug, thiserror::Error)]
#[error(
    "can't listen at \"{at}\": {why}; give another path, or end the program that listens there"
)]
pub struct ListenError {
    at: String,
    why: io::Error,
}

/// A listening path, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Newcomers {
    listener: OwnedFd,
    path: PathBuf,
    role: Role,
    silent: Vec<OwnedFd>,
}

impl Newcomers {
    pub(crate) fn listen(path: &Path, role: Role) -> Result<Self, ListenError> {
        let failed = |why| ListenError { at: path.display().to_string(), why };
        let listener = seqpacket::listen_at(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), role, silent: Vec::new() })
    }

    /// What becomes readable when a program comes or greets.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.listener.as_fd()).chain(self.silent.iter().map(AsFd::as_fd))
    }

    /// Takes those that have come, and passes `admit` those that have greeted.
    pub(crate) fn poll(&mut self, mut admit: impl FnMut(OwnedFd, Greeting)) {
        while let Ok(Some(socket)) = seqpacket::accept(&self.listener) {
            if self.silent.len() == SILENT_MAX {
                self.silent.remove(0);
            }
            self.silent.push(socket);
        }
        for socket in std::mem::take(&mut self.silent) {
            match seqpacket::receive(&socket) {
                Ok(Received::Nothing) => self.silent.push(socket),
                Ok(Received::Message(bytes, _)) => match Greeting::read(&bytes, self.role) {
                    Ok(greeting) => admit(socket, greeting),
                    Err(why) => refuse(&socket, why.to_string()),
                },
                Ok(Received::TooLong) => refuse(&socket, "the greeting is too long".to_owned()),
                Ok(Received::End) | Err(_) => {}
            }
        }
    }
}

/// Sends a program the reason why it is not connected.
pub(crate) fn refuse(socket: &OwnedFd, why: String) {
    tracing::warn!(why, "a program was refused");
    Answer::Refused(why).send(socket, None);
}

impl Drop for Newcomers {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

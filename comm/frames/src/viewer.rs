//! A program that gets the frames of one stream from a node.

use std::os::fd::OwnedFd;
use std::path::Path;

use selvedge_os::clock::Clock;
use selvedge_os::seqpacket;
use selvedge_units::Duration;

use crate::frame::FrameInfo;
use crate::greeting::{ConnectError, Greeting, Role, drain};
use crate::reader::{Corrupt, FrameReader};

/// Why no frame came, and none will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The node has gone, or has ended the connection.
    #[error("the node has gone; connect again")]
    Gone,
    /// The memory holds no frames of a node.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// A viewer that is connected to a node.
#[derive(Debug)]
pub struct Viewer {
    socket: OwnedFd,
    reader: FrameReader,
    encoding: Option<String>,
}

impl Viewer {
    /// Connects to the path of a stream's `to = "shm:PATH"`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        let (socket, segment, encoding) = Greeting::new(Role::Viewer, None).connect(path)?;
        Ok(Self { socket, reader: FrameReader::resume(segment)?, encoding })
    }

    /// The encoding of the stream, once a frame has passed the node.
    #[must_use]
    pub fn encoding(&self) -> Option<&str> {
        self.encoding.as_deref()
    }

    /// Waits for the next frame, at most this long; its bytes go into `to`. `None`: none came.
    ///
    /// # Errors
    /// [`ReadError`]; frames that came before are returned first.
    pub fn read(
        &mut self,
        patience: Duration,
        to: &mut Vec<u8>,
    ) -> Result<Option<FrameInfo>, ReadError> {
        let clock = Clock::shared();
        let until = clock.now() + patience;
        loop {
            if let Some(info) = self.reader.read(to)? {
                return Ok(Some(info));
            }
            let left = until.since(clock.now());
            if left == Duration::ZERO {
                return Ok(None);
            }
            if self.reader.prepare_sleep() {
                let rang = seqpacket::wait_readable(&self.socket, left);
                self.reader.wake();
                if rang && !drain(&self.socket) {
                    return self.reader.read(to)?.map(Some).ok_or(ReadError::Gone);
                }
            }
        }
    }
}

//! A program that gives a node the frames of one stream.

use std::os::fd::OwnedFd;
use std::path::Path;

use selvedge_os::seqpacket;

use crate::counts::{Board, Counts};
use crate::frame::FrameInfo;
use crate::greeting::{BELL, ConnectError, Greeting, Role, drain};
use crate::writer::{FrameWriter, Refused};

/// Why a frame did not go to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The frame is left out; the camera may go on.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The node has gone, or has ended the connection.
    #[error("the node has gone; connect again")]
    Gone,
}

/// A camera that is connected to a node.
#[derive(Debug)]
pub struct Camera {
    socket: OwnedFd,
    writer: FrameWriter,
    board: Board,
    number: u64,
    left_out: u64,
    key_requests: u64,
}

impl Camera {
    /// Connects to the path of a stream's source `shm:PATH`, with frames of this encoding, such as `H264`.
    ///
    /// # Errors
    /// [`ConnectError`]; another camera may be there.
    pub fn connect(path: &Path, encoding: &str) -> Result<Self, ConnectError> {
        let greeting = Greeting::new(Role::Camera, Some(encoding));
        let (socket, segment, _) = greeting.connect(path)?;
        let board = Board::of(&segment);
        let key_requests = board.read().key_requests;
        let writer = FrameWriter::new(segment)?;
        Ok(Self { socket, writer, board, number: 0, left_out: 0, key_requests })
    }

    /// Gives the node a frame, a whole access unit; `info.number` is counted here. Never waits.
    ///
    /// # Errors
    /// [`WriteError`]: a frame that does not fit is left out, and counted.
    pub fn write(&mut self, info: FrameInfo, bytes: &[u8]) -> Result<(), WriteError> {
        let number = self.number;
        self.number += 1;
        let written = self.writer.write(&FrameInfo { number, ..info }, bytes);
        // A full memory may mean that nobody reads it any more.
        if written.is_err() {
            self.left_out += 1;
        }
        let wakes = match written {
            Ok(wakes) => wakes,
            Err(why) if drain(&self.socket) => return Err(why.into()),
            Err(_) => return Err(WriteError::Gone),
        };
        if wakes && let Err(error) = seqpacket::send(&self.socket, &BELL, &[]) {
            // Where many wake-ups wait already, one more changes nothing.
            return match error.kind() {
                std::io::ErrorKind::WouldBlock => Ok(()),
                _ => Err(WriteError::Gone),
            };
        }
        Ok(())
    }

    /// Whether the node is still there.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        drain(&self.socket)
    }

    /// What became of the stream's frames, and the rate to encode at.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.board.read()
    }

    /// Frames that were left out here, since the node was behind.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether the node asked for a key picture since the last call.
    pub fn take_key_request(&mut self) -> bool {
        let now = self.board.read().key_requests;
        std::mem::replace(&mut self.key_requests, now) != now
    }
}

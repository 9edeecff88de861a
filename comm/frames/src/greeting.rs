//! The two messages that begin a connection: who comes, and the memory or the reason of a refusal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use selvedge_os::seqpacket::{self, Received};
use selvedge_units::Duration;
use serde::{Deserialize, Serialize};

use crate::segment::{Segment, SegmentError};

/// The version of these messages and of what follows.
const VERSION: u32 = 1;
/// How long a program waits for the node's answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The message that wakes the other end's reader.
pub(crate) const BELL: [u8; 1] = [1];

/// What a program wants to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It gives frames.
    Camera,
    /// It gets frames.
    Viewer,
}

/// The program's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Greeting {
    pub(crate) selvedge_frames: u32,
    pub(crate) role: Role,
    /// The encoding of a camera's frames, such as `H264`.
    pub(crate) encoding: Option<String>,
}

/// The node's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The memory comes along; the encoding of the stream, if it is known.
    Welcome {
        encoding: Option<String>,
    },
    Refused(String),
}

/// Why a program is not connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No node listens there, or this user may not connect.
    #[error("can't connect to \"{at}\": {why}; start a node whose stream names this path")]
    Absent {
        /// The path.
        at: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// The node refuses.
    #[error("the node refuses: {0}")]
    Refused(String),
    /// What listens there answers nothing, or something else.
    #[error("\"{0}\" does not answer as a node does; see which program listens there")]
    NoNode(String),
    /// The memory that came can't be used.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Why a program's greeting is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    /// It is no greeting.
    #[error("the greeting can't be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// Of another release.
    #[error("the program speaks version {0}, the node {VERSION}; use one release")]
    Version(u32),
    /// A viewer came to the path of a source.
    #[error("this path takes frames; connect a camera")]
    NotCamera,
    /// A camera came to the path of an output.
    #[error("this path gives frames; connect a viewer")]
    NotViewer,
}

impl Greeting {
    /// A program's greeting.
    #[must_use]
    pub fn new(role: Role, encoding: Option<&str>) -> Self {
        Self { selvedge_frames: VERSION, role, encoding: encoding.map(str::to_owned) }
    }

    pub(crate) fn read(bytes: &[u8], wanted: Role) -> Result<Self, GreetingError> {
        let greeting: Self = serde_json::from_slice(bytes)?;
        if greeting.selvedge_frames != VERSION {
            return Err(GreetingError::Version(greeting.selvedge_frames));
        }
        match (greeting.role == wanted, wanted) {
            (true, _) => Ok(greeting),
            (false, Role::Camera) => Err(GreetingError::NotCamera),
            (false, Role::Viewer) => Err(GreetingError::NotViewer),
        }
    }

    /// Connects, greets and waits for the answer: the socket, the memory, and the stream's encoding.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, path: &Path) -> Result<(OwnedFd, Segment, Option<String>), ConnectError> {
        let at = path.display().to_string();
        let absent = |why| ConnectError::Absent { at: at.clone(), why };
        let socket = seqpacket::connect_to(path).map_err(absent)?;
        let text = serde_json::to_vec(self).unwrap_or_default();
        seqpacket::send(&socket, &text, &[]).map_err(absent)?;
        if !seqpacket::wait_readable(&socket, TIMEOUT) {
            return Err(ConnectError::NoNode(at));
        }
        let Received::Message(bytes, fds) = seqpacket::receive(&socket).map_err(absent)? else {
            return Err(ConnectError::NoNode(at));
        };
        match serde_json::from_slice(&bytes) {
            Ok(Answer::Refused(why)) => Err(ConnectError::Refused(why)),
            Ok(Answer::Welcome { encoding }) => {
                let memory = fds.into_iter().next().ok_or(ConnectError::NoNode(at))?;
                Ok((socket, Segment::open(memory)?, encoding))
            }
            Err(_) => Err(ConnectError::NoNode(at)),
        }
    }
}

impl Answer {
    /// Sends it, with the memory. A program that does not read it has gone.
    pub(crate) fn send(&self, socket: &OwnedFd, segment: Option<&Segment>) {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        let files: Vec<_> = segment.iter().map(|segment| segment.memory().file().as_fd()).collect();
        let _ = seqpacket::send(socket, &bytes, &files);
    }
}

/// Takes all messages that have come; false if the other end has gone. They say no more than that it rang.
pub(crate) fn drain(socket: &OwnedFd) -> bool {
    // As many as a flood may cost one turn.
    for _ in 0..64 {
        match seqpacket::receive(socket) {
            Ok(Received::Nothing) => return true,
            Ok(Received::Message(..)) => {}
            Ok(Received::End | Received::TooLong) | Err(_) => return false,
        }
    }
    true
}

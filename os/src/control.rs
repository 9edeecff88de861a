//! Control messages between processes of this host: from programs to the coprocessor, the processor daemon,
//! processes with stacks and services, and between members of a channel.
//!
//! A message is one packet ([`seqpacket`]) with one JSON object, `{"v":1,...}`, of at most 16 kB; file
//! descriptors travel beside it. A response also has `"ok"`; a refusal is `{"v":1,"ok":false,"error":"..."}`.
//! Bytes that are not text follow the object behind a zero byte. A response that may be longer is
//! `{"v":1,"ok":true,"bytes":N}` with a descriptor of memory that holds N bytes of JSON ([`Long`]).
//!
//! No call blocks for longer than its caller allows: a peer that reads nothing counts as gone
//! ([`ControlError::Closed`]).

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{Shutdown, UCred, shutdown, sockopt::socket_peercred};
use selvedge_units::{Bytes, Duration};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::timespec;
use crate::seqpacket::{self, DESCRIPTORS_MAX, MESSAGE_MAX, Received};

/// The protocol's version: a message with another version is refused.
pub const VERSION: u32 = 1;
/// An unlimited timeout.
pub const FOREVER: Duration = Duration(u64::MAX);
/// The longest text of a refusal, in characters.
const ERROR_MAX: usize = 1000;
/// The parts of a wait. A machine that stalled, as a virtual one may, has used up only one of them.
const LOOKS: u64 = 50;

/// Why no message was received or sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The peer has closed the connection, or reads nothing.
    #[error("the other side is gone; connect again when it is back")]
    Closed,
    /// A message beyond the limits, of which this is that of bytes.
    #[error("the message is longer than {0} or bears more than {DESCRIPTORS_MAX} descriptors")]
    TooLong(Bytes),
    /// The text is not JSON, or not a known message.
    #[error("the message makes no sense: {0}; use programs of the same release")]
    Malformed(String),
    /// A message with another version.
    #[error("protocol version {theirs} is not {ours}; use programs of the same release")]
    Version {
        /// The version in the message, as JSON; `null` for none.
        theirs: String,
        /// [`VERSION`].
        ours: u32,
    },
    /// The peer refuses.
    #[error("{0}")]
    Refused(String),
    /// No response in time.
    #[error("no answer came within {0}; see whether the other side is stopped")]
    TimedOut(Duration),
}

/// A received message.
#[derive(Debug)]
pub struct Message<M> {
    /// Its object.
    pub body: M,
    /// The bytes behind it.
    pub data: Vec<u8>,
    /// The descriptors beside it.
    pub fds: Vec<OwnedFd>,
}

#[derive(Serialize)]
struct Envelope<'a, M> {
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    body: Option<&'a M>,
}

impl<M: Serialize> Envelope<'_, M> {
    fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("messages have names as keys")
    }
}

/// A message's text. The body is a struct, or an enum with a tag.
pub fn encode<M: Serialize>(body: &M) -> Vec<u8> {
    Envelope { v: VERSION, ok: None, error: None, body: Some(body) }.text()
}

/// A message from its text.
///
/// # Errors
/// [`ControlError::Malformed`], [`ControlError::Version`], and [`ControlError::Refused`] for a refusal.
pub fn decode<M: DeserializeOwned>(text: &[u8]) -> Result<M, ControlError> {
    let malformed = |error: serde_json::Error| ControlError::Malformed(error.to_string());
    let mut object: Map<String, Value> = serde_json::from_slice(text).map_err(malformed)?;
    let version = object.remove("v").unwrap_or_default();
    if version != VERSION {
        return Err(ControlError::Version { theirs: version.to_string(), ours: VERSION });
    }
    let (ok, error) = (object.remove("ok"), object.remove("error"));
    if ok == Some(Value::Bool(false)) {
        let why = error.as_ref().and_then(Value::as_str).unwrap_or_default();
        return Err(ControlError::Refused(why.to_owned()));
    }
    serde_json::from_value(Value::Object(object)).map_err(malformed)
}

/// Decodes bytes as a peer does, for tests and fuzzing; returns whether they are a message. A message that is
/// encoded and decoded again must stay the same.
#[doc(hidden)]
#[must_use]
pub fn is_message<M: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(message) = decode::<M>(bytes) else { return false };
    let text = encode(&message);
    let again: M = decode(&text).expect("our own text is a message");
    assert_eq!(encode(&again), text);
    true
}

/// The place of a response that lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Long {
    /// The number of bytes of JSON.
    pub bytes: usize,
}

impl Long {
    /// Writes a response into memory of its own.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn write<T: Serialize>(body: &T) -> io::Result<(Self, OwnedFd)> {
        let text = serde_json::to_vec(body)?;
        let mut file = File::from(memfd_create("selvedge answer", MemfdFlags::CLOEXEC)?);
        file.write_all(&text)?;
        Ok((Self { bytes: text.len() }, file.into()))
    }
}

impl Message<Long> {
    /// Reads the response, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`ControlError::TooLong`], [`ControlError::Malformed`].
    pub fn read<T: DeserializeOwned>(self, limit: Bytes) -> Result<T, ControlError> {
        let malformed = |why: &dyn Display| ControlError::Malformed(why.to_string());
        let [file] = <[_; 1]>::try_from(self.fds).map_err(|_| malformed(&"no memory came"))?;
        if self.body.bytes as u64 > limit.0 {
            return Err(ControlError::TooLong(limit));
        }
        let mut text = vec![0; self.body.bytes];
        File::from(file).read_exact_at(&mut text, 0).map_err(|error| malformed(&error))?;
        serde_json::from_slice(&text).map_err(|error| malformed(&error))
    }
}

/// Whether this is the user of this process, or root.
#[must_use]
pub fn is_ours(peer: &UCred) -> bool {
    peer.uid == rustix::process::geteuid() || peer.uid.is_root()
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for Connection {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl Connection {
    /// Connects to the listener at a path.
    pub fn open(path: &Path) -> io::Result<Self> {
        seqpacket::connect_to(path).map(Self::from)
    }

    /// Accepts the next connection of a listener; `None` if there is none now.
    pub fn accept(listener: &OwnedFd) -> io::Result<Option<Self>> {
        Ok(seqpacket::accept(listener)?.map(Self::from))
    }

    /// The process at the other end, as the kernel reports it.
    pub fn peer(&self) -> io::Result<UCred> {
        Ok(socket_peercred(&self.socket)?)
    }

    /// Sends a message, with bytes behind it and descriptors beside it.
    ///
    /// # Errors
    /// [`ControlError::Closed`].
    pub fn send<M: Serialize>(
        &self,
        body: &M,
        data: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        self.put(encode(body), data, fds)
    }

    /// Responds to a request: with a body, or with the reason for a refusal.
    ///
    /// # Errors
    /// [`ControlError::Closed`].
    pub fn answer<M: Serialize>(
        &self,
        answer: Result<&M, &dyn Display>,
        data: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        let error = answer.err().map(|why| why.to_string().chars().take(ERROR_MAX).collect());
        let envelope = Envelope { v: VERSION, ok: Some(answer.is_ok()), error, body: answer.ok() };
        self.put(envelope.text(), data, fds)
    }

    fn put(
        &self,
        mut text: Vec<u8>,
        data: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        if !data.is_empty() {
            text.push(0);
            text.extend_from_slice(data);
        }
        seqpacket::send(&self.socket, &text, fds).map_err(|_| ControlError::Closed)
    }

    /// Takes the next message; `None` if there is none now.
    ///
    /// # Errors
    /// All but [`ControlError::TimedOut`].
    pub fn receive<M: DeserializeOwned>(&self) -> Result<Option<Message<M>>, ControlError> {
        match seqpacket::receive(&self.socket) {
            Ok(Received::Nothing) => Ok(None),
            Ok(Received::End) | Err(_) => Err(ControlError::Closed),
            Ok(Received::TooLong) => Err(ControlError::TooLong(Bytes(MESSAGE_MAX as u64))),
            Ok(Received::Message(mut bytes, fds)) => {
                // No JSON text holds a zero byte.
                let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
                let data = bytes.split_off((end + 1).min(bytes.len()));
                bytes.truncate(end);
                Ok(Some(Message { body: decode(&bytes)?, data, fds }))
            }
        }
    }

    /// Waits for the next message, at most this long.
    pub fn wait<M: DeserializeOwned>(
        &self,
        patience: Duration,
    ) -> Result<Message<M>, ControlError> {
        let look = Duration(patience.0 / LOOKS);
        if (0..LOOKS).any(|_| seqpacket::wait_readable(&self.socket, look))
            && let Some(message) = self.receive()?
        {
            return Ok(message);
        }
        Err(ControlError::TimedOut(patience))
    }

    /// Sends a request, and waits for the response. A connection without a response in time is closed: a late
    /// response would be taken for that of the next request.
    pub fn ask<M: Serialize, R: DeserializeOwned>(
        &self,
        body: &M,
        data: &[u8],
        fds: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<Message<R>, ControlError> {
        self.send(body, data, fds)?;
        self.wait(patience).inspect_err(|error| {
            if matches!(error, ControlError::TimedOut(_)) {
                self.end();
            }
        })
    }

    /// Closes the connection, for both sides.
    pub fn end(&self) {
        // It may have been closed already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Whether the peer is still there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        match poll(&mut fds, Some(&timespec(0))) {
            Ok(_) => {
                !fds[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR)
            }
            Err(error) => error == Errno::INTR,
        }
    }
}

#[cfg(test)]
mod tests;

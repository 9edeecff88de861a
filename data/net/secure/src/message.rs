//! Datagrams of the handshake: those of connection 0.
//!
//! | offset | what, big-endian |
//! |---|---|
//! | 0 | 0, `u32`: no connection |
//! | 4 | the version, 1 |
//! | 5 | 1 probe, 2 echo, 3 hello, 4 welcome, 5 unknown |
//! | 6 | how the ends authenticate each other: 0 not at all, 1 by a secret, 2 by static keys |
//! | 7 | the connection, `u32`, chosen by the initiator |
//! | 11 | the body |
//!
//! A probe's body is a nonce of 8 bytes, the time of sending as `u64`, and 16 zeros; an echo's the same with
//! a cookie in place of the zeros. A hello's is a cookie and a Noise message, a welcome's a Noise message.
//! The message for an unknown connection has no body.

use crate::cookie::COOKIE;

/// Present in each datagram, and bound into each handshake.
pub(crate) const VERSION: u8 = 1;
/// A hello's Noise message has at least this length, so that no answer is longer than the hello;
pub(crate) const HELLO_MIN: usize = 512;
/// no datagram of the handshake is longer than this.
pub const LONGEST: usize = 1400;
/// The first bytes of a datagram of the handshake.
pub(crate) const FRONT: usize = 11;
/// The most bytes that Noise and the headers take of a hello with static keys.
const AROUND: usize = FRONT + COOKIE + 96 + 1;
/// The longest payload of either end's Noise message.
pub(crate) const PAYLOAD_MAX: usize = LONGEST - AROUND;

/// Why a proposal or answer is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// The payload is longer than the room.
    #[error("{0} bytes in a handshake; there is room for {PAYLOAD_MAX}")]
    TooLong(usize),
    /// No such attempt is under way.
    #[error("connection {0:08x} is not being made")]
    Unknown(u32),
    /// With static keys, no peer was named.
    #[error("the other end's key is not known; add it to the peers, and name the peer")]
    WhichPeer,
    /// The cipher fails.
    #[error("the key exchange can't be made")]
    Noise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Probe = 1,
    Echo = 2,
    Hello = 3,
    Welcome = 4,
    Unknown = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: Kind,
    pub(crate) pattern: u8,
    pub(crate) connection: u32,
    pub(crate) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns `None` for bytes that are not a message of this version.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (front, body) = bytes.split_first_chunk::<FRONT>()?;
        let [0, 0, 0, 0, VERSION, kind, pattern, a, b, c, d] = *front else { return None };
        let kind = match kind {
            1 => Kind::Probe,
            2 => Kind::Echo,
            3 => Kind::Hello,
            4 => Kind::Welcome,
            5 => Kind::Unknown,
            _ => return None,
        };
        let connection = u32::from_be_bytes([a, b, c, d]);
        (bytes.len() <= LONGEST && connection != 0).then_some(Self {
            kind,
            pattern,
            connection,
            body,
        })
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0, VERSION, self.kind as u8, self.pattern];
        bytes.extend_from_slice(&self.connection.to_be_bytes());
        bytes.extend_from_slice(self.body);
        bytes
    }
}

//! The secure datagram layer: it authenticates the other end, and seals packets so that no attacker on the
//! path can read, change, replay or forge one.
//!
//! [`Handshakes`] makes connections for one endpoint: the caller passes datagrams of the handshake to
//! `handle_datagram`, sends the datagrams of `poll_transmit`, reads events from `poll_event`, and calls
//! `handle_timeout` at the time of `poll_timeout`. The handshake is Noise (revision 34) by `snow`. It gives
//! each connection a [`Session`]: a [`Sealer`] for sent packets, an [`Opener`] for received ones, with
//! AES-256-GCM by `ring`. Time and randomness are arguments; there is no I/O. `docs/security.md` has the wire
//! format and the threat model.

#![deny(unsafe_code)]

mod aead;
mod cookie;
mod handshakes;
mod key;
mod message;
mod noise;
mod packet;
mod window;
mod wiped;

pub use self::aead::{AeadKey, Cipher, TAG};
pub use self::handshakes::{Confirmed, Counts, Event, Handshakes, Hello, Session, Transmit};
pub use self::key::{Key, KeyError, Keys, PublicKey};
pub use self::message::{LONGEST, ProposeError};
pub use self::noise::Identity;
pub use self::packet::{HEADER, OVERHEAD, OpenError, Opener, SealError, Sealer};
pub use self::window::{SequenceStatus, Window};

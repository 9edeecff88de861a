//! The secure datagram layer: it authenticates the other end, and seals packets so that no attacker on the
//! way can read, change, replay or forge one.
//!
//! [`Handshakes`] makes connections for one endpoint: datagrams of the handshake come in by
//! `handle_datagram`, what is to be sent leaves by `poll_transmit`, what happened by `poll_event`, and
//! `poll_timeout` gives the time of the next call of `handle_timeout`. The handshake is Noise (revision 34) by `snow`. It gives each
//! connection a [`Session`]: a [`Sealer`] for what it sends, an [`Opener`] for what it receives, with
//! AES-256-GCM by `ring`. Time and randomness are arguments; there is no I/O. `docs/security.md` has the
//! wire format and the threat model.

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

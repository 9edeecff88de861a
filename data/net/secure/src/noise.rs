//! The Noise patterns, by `snow`, and how an end authenticates itself.
//!
//! | an end has | pattern | its guarantee |
//! |---|---|---|
//! | nothing | `NNpsk0`, with zeros for the secret | damaged hellos are noticed; an attacker who changes packets is not |
//! | a secret | `NNpsk0` | the other end has the secret, too; ends that share it can pose as each other |
//! | a static key | `IK` | which key the other end has; each can be revoked by itself |
//!
//! `IK` rather than `XX`: both ends know each other's key before (they are paired), so its first message
//! carries the proposal, encrypted to the right receiver, and one round trip is enough. The initiator's key
//! is hidden from eavesdroppers. `XX` would take one more message, to learn a key that is looked up in a list
//! anyway.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};

use crate::key::{Key, Keys, PublicKey};
use crate::message::VERSION;

/// How an end authenticates itself.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Not at all: its packets are not sealed.
    Open,
    /// By a secret that all ends share.
    Secret(Key),
    /// By its own static key, to ends that know its public key.
    Static(Key),
}

impl Identity {
    pub(crate) const fn pattern(&self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Secret(_) => 1,
            Self::Static(_) => 2,
        }
    }

    /// Whether packets are sealed.
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        !matches!(self, Self::Open)
    }

    /// One end of a handshake before its first message. The seed is its ephemeral key. An initiator with a
    /// static key states the responder's.
    pub(crate) fn begin(
        &self,
        connection: u32,
        seed: &Key,
        initiator: bool,
        peer: Option<&PublicKey>,
    ) -> Result<HandshakeState, Error> {
        let name = match self {
            Self::Open | Self::Secret(_) => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
            Self::Static(_) => "Noise_IK_25519_ChaChaPoly_BLAKE2s",
        };
        let mut prologue = *b"selvedge secure\0\0\0\0\0";
        prologue[15] = VERSION;
        prologue[16..].copy_from_slice(&connection.to_be_bytes());
        let resolver = Box::new(Seeded(seed.clone()));
        let mut builder = Builder::with_resolver(name.parse()?, resolver).prologue(&prologue)?;
        match self {
            Self::Open => builder = builder.psk(0, &[0; 32])?,
            Self::Secret(secret) => builder = builder.psk(0, &secret.0)?,
            Self::Static(own) => builder = builder.local_private_key(&own.0)?,
        }
        if let Some(PublicKey(peer)) = peer {
            builder = builder.remote_public_key(peer)?;
        }
        if initiator { builder.build_initiator() } else { builder.build_responder() }
    }
}

/// The keys of this end once the handshake is over.
pub(crate) fn keys(state: &mut HandshakeState, initiator: bool) -> Keys {
    let (first, second) = state.dangerously_get_raw_split();
    let keys = Keys { send: Key(first), receive: Key(second) };
    if initiator { keys } else { keys.swapped() }
}

/// The same primitives, with the caller's randomness.
struct Seeded(Key);

impl CryptoResolver for Seeded {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Returns its bytes once: each end has one ephemeral key.
struct Once(Option<Key>);

impl Random for Once {
    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), Error> {
        let seed = self.0.take().filter(|seed| seed.0.len() == into.len()).ok_or(Error::Rng)?;
        into.copy_from_slice(&seed.0);
        Ok(())
    }
}

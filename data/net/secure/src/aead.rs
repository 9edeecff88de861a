//! Authenticated encryption in place, by `ring`: ChaCha20-Poly1305 (RFC 8439) and AES-256-GCM.

use core::fmt;

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize;

use crate::key::Key;
use crate::wiped::Wiped;

/// Bytes of a tag.
pub const TAG: usize = 16;

selvedge_units::named! {
    /// The cipher.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Cipher {
        /// ChaCha20-Poly1305.
        ChaCha20 = "chacha20",
        /// AES-256-GCM.
        Aes256 = "aes256",
    }
}

/// A cipher with a key, for one direction. The user counts nonces: none is used twice.
pub struct AeadKey(Wiped<LessSafeKey>);

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AeadKey(..)")
    }
}

impl AeadKey {
    /// This key, expanded.
    #[must_use]
    pub fn new(cipher: Cipher, key: &Key) -> Self {
        let algorithm = match cipher {
            Cipher::ChaCha20 => &CHACHA20_POLY1305,
            Cipher::Aes256 => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, &key.0);
        Self(Wiped::new(LessSafeKey::new(key.expect("both ciphers have keys of 32 bytes"))))
    }

    /// Encrypts in place, and authenticates `bound` as well. `None` if the cipher fails; then nothing of the
    /// text is left, so that it can't be sent by mistake.
    #[must_use]
    pub fn seal(&self, nonce: [u8; 12], bound: &[u8], text: &mut [u8]) -> Option<[u8; TAG]> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(bound), text);
        #[cfg(test)]
        let sealed = if failing::is_on() { Err(ring::error::Unspecified) } else { sealed };
        let Ok(tag) = sealed else {
            text.zeroize();
            return None;
        };
        let mut bytes = [0; TAG];
        bytes.copy_from_slice(tag.as_ref());
        Some(bytes)
    }

    /// Decrypts in place; returns whether the text is authentic. If not, the content of `text` is worthless.
    #[must_use]
    pub fn open(&self, nonce: [u8; 12], bound: &[u8], text: &mut [u8], tag: [u8; TAG]) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place_separate_tag(nonce, Aad::from(bound), tag.into(), text, 0..).is_ok()
    }
}

/// For tests: an AEAD that fails; that of `ring` fails only for texts above 64 GiB.
#[cfg(test)]
pub(crate) mod failing {
    use core::cell::Cell;

    thread_local!(static ON: Cell<bool> = const { Cell::new(false) });

    pub(super) fn is_on() -> bool {
        ON.get()
    }

    /// Makes sealing fail on this thread while `run` runs.
    pub(crate) fn while_failing<R>(run: impl FnOnce() -> R) -> R {
        ON.set(true);
        let result = run();
        ON.set(false);
        result
    }
}

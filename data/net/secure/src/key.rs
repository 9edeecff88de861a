//! Keys: 32 bytes that are not printed and are wiped when they are dropped; public keys as text; and keys
//! derived by HKDF-SHA256 (RFC 5869).

use core::fmt;
use core::str::FromStr;

use ring::hkdf::{HKDF_SHA256, Prk};
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use zeroize::Zeroize;

/// A secret key. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Key {
    /// The public key of a static key (X25519).
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut public = [0; 32];
        if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
            dh.set(&self.0);
            public.copy_from_slice(dh.pubkey());
        }
        PublicKey(public)
    }

    /// Another key, for this use; this key can't be computed from it.
    pub(crate) fn derived(&self, label: &'static str) -> Self {
        let mut key = Self([0; 32]);
        Prk::new_less_safe(HKDF_SHA256, &self.0)
            .expand(&[label.as_bytes()], HKDF_SHA256)
            .and_then(|bytes| bytes.fill(&mut key.0))
            .expect("HKDF-SHA256 gives 32 bytes");
        key
    }
}

/// Bytes that are not a key, as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no key; a key is 64 hexadecimal digits")]
pub struct KeyError(String);

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut key = Self([0; 32]);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let sound = pairs.len() == key.0.len() && rest.is_empty();
        let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
        for (byte, [high, low]) in key.0.iter_mut().zip(pairs) {
            let value = digit(*high).zip(digit(*low)).filter(|_| sound);
            // A mistyped secret must stay secret.
            let (high, low) = value.ok_or_else(|| KeyError("***".to_owned()))?;
            *byte = high * 16 + low;
        }
        if sound { Ok(key) } else { Err(KeyError("***".to_owned())) }
    }
}

/// The public part of a static key, which identifies its owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let shown = || text.chars().take(80).flat_map(char::escape_debug).collect();
        Ok(Self(text.parse::<Key>().map_err(|_| KeyError(shown()))?.0))
    }
}

/// The keys of one end, as the key exchange returns them; a pair of keys serves one connection only.
#[derive(Clone, Debug)]
pub struct Keys {
    /// For packets that this end sends.
    pub send: Key,
    /// For packets that it receives.
    pub receive: Key,
}

impl Keys {
    /// The keys of the other end.
    #[must_use]
    pub fn swapped(self) -> Self {
        Self { send: self.receive, receive: self.send }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_hexadecimal_digits_are_a_key() {
        let text = "00ff".repeat(16);
        let key: Key = text.parse().expect("it is one");
        assert_eq!((key.0[0], key.0[31]), (0, 255));
        assert_eq!(text.to_uppercase().parse(), Ok(key.clone()));
        assert_eq!(PublicKey(key.0).to_string(), text);
        for wrong in ["", "00", &text[1..], &format!("{text}0"), &text.replace("ff", "+f")] {
            assert!(wrong.parse::<Key>().is_err(), "{wrong}");
        }
        let error = "00\x1b".parse::<PublicKey>().expect_err("it is short").to_string();
        assert!(error.contains("00\\u{1b}"), "{error}");
        assert!(!"5ecre7".parse::<Key>().expect_err("it is short").to_string().contains("5ecre7"));
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    #[test]
    fn derived_keys_differ_by_label_and_stay() {
        let key = Key([7; 32]);
        assert_eq!(key.derived("a"), key.derived("a"));
        assert_ne!(key.derived("a"), key.derived("b"));
    }
}

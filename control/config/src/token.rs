//! The token that a client sends to be admitted to a node's page: one rule for node files, clients and
//! documents.

use std::fmt;
use std::str::FromStr;

/// Texts that earlier versions of the examples and messages had in place of a token of one's own.
const PUBLISHED: [&str; 2] = ["replace-this-token", "at-least-16-characters"];

/// The token that a client sends to be admitted: 16 to 256 of the characters that `Authorization:
/// Bearer` takes (RFC 6750, 2.1), and none that was ever published as an example.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// As it is sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A token never stands in a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// Why a text is not a token. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Too short, too long, or with characters that can't be sent.
    #[error("not a token; write 16 to 256 of A-Z, a-z, 0-9 and -._~+/=")]
    Form,
    /// A published example.
    #[error(
        "an example that everybody knows; write one of your own, as openssl rand -hex 16 makes"
    )]
    Published,
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
        if !(16..=256).contains(&text.len()) || !text.bytes().all(good) {
            return Err(TokenError::Form);
        }
        if PUBLISHED.contains(&text) {
            return Err(TokenError::Published);
        }
        Ok(Self(text.to_owned()))
    }
}

//! The file with what both ends of a stack share: 64 hexadecimal digits.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest such file.
const LONGEST: u64 = 4096;

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file can't be read.
    #[error("{}: {why}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// It holds something else.
    #[error(
        "{}: not a secret; write 64 hexadecimal digits, as `openssl rand -hex 32` makes them",
        .0.display()
    )]
    Malformed(PathBuf),
}

/// Reads it; blanks around the digits don't count.
///
/// # Errors
/// [`SecretError`].
pub fn secret(path: &Path) -> Result<[u8; 32], SecretError> {
    let mut bytes = Vec::new();
    // One byte more than is allowed: a longer file is malformed, not cut.
    File::open(path)
        .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
        .map_err(|why| SecretError::Read { path: path.to_owned(), why })?;
    let text = (bytes.len() as u64 <= LONGEST).then(|| bytes.trim_ascii());
    text.and_then(digits).ok_or_else(|| SecretError::Malformed(path.to_owned()))
}

fn digits(text: &[u8]) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_chunks::<2>();
    let mut secret = [0; 32];
    if pairs.len() != secret.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(pairs) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn only_64_hexadecimal_digits_are_a_secret() {
        let text = "00ff".repeat(16);
        let digits = |text: &str| digits(text.as_bytes());
        assert_eq!(digits(&text).map(|secret| (secret[0], secret[31])), Some((0, 255)));
        assert_eq!(digits(&text.to_uppercase()), digits(&text));
        for wrong in ["", "00", &text[1..], &format!("{text}0"), &text.replace("ff", "+f")] {
            assert_eq!(digits(wrong), None, "{wrong}");
        }
    }
}

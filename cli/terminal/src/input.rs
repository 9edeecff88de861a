//! Files that a user names: read whole, but no more than a limit, whatever their stated length.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Why a file is not read; the text does not name it.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It can't be opened or read.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It is longer than the limit.
    #[error("the file is too long; at most {0} bytes are read")]
    TooLong(u64),
    /// It is not UTF-8 text.
    #[error("byte {0} is not UTF-8; give a text in UTF-8")]
    NotUtf8(usize),
}

/// The text of a file of at most `most` bytes. Pipes and devices have no length that could be checked
/// before, and some have no end.
pub fn text(path: &Path, most: u64) -> Result<String, InputError> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(InputError::TooLong(most));
    }
    String::from_utf8(bytes).map_err(|error| InputError::NotUtf8(error.utf8_error().valid_up_to()))
}

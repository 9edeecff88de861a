//! Files that a user names: read whole, but no more than a limit, whatever their length is said to be.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The text of a file of at most so many bytes. Pipes and devices have no length that could be
/// looked at before, and some have no end.
///
/// # Errors
/// What is wrong, without the file's name.
pub fn text(path: &Path, most: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!("the file is too long; at most {most} bytes are read"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("byte {at} is not UTF-8; give a text in UTF-8")
    })
}

//! What can be wrong with a file that a network names. It stands apart since the mistakes of all files
//! include it, and reading a network reports those.

use selvedge_units::Bytes;

/// Why a file that a network names is no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is not there, or can't be read, for this reason.
    #[error("can't be read: {0}; write the path of a file that can")]
    Unreadable(String),
    /// It has more than this, by itself or together with all that were read before.
    #[error("is too long, by itself or with the files before it: {0} are read; cut it")]
    TooLong(Bytes),
    /// It should be a text.
    #[error("is not a text in UTF-8; write the path of one")]
    NotText,
}

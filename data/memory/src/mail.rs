//! A mailbox: messages of any length from one writer to one reader, which need not trust each other and may
//! sleep. It carries events inside a host; `mail/block.rs` states the layout.
//!
//! The writer publishes `tail` with release order after it has written any number of messages. When there is
//! no room it gets an error. If the mailbox overwrites, it instead moves `low` beyond the oldest messages,
//! then writes over them. The reader copies a message out and reads `low` afterwards: a message that was
//! overwritten meanwhile is discarded (a seqlock). So a reader that is slow, stopped or dead blocks no
//! writer, and the writer need not read the reader's counters.
//!
//! Each side keeps its own counters private and uses the other's only after a check. Whatever a hostile side
//! writes, the other reads garbage at worst, or [`MailboxError::Corrupt`].
//!
//! The writer wakes a sleeping reader by its [`Bell`](crate::Bell).

mod block;
mod reader;
mod writer;

pub use self::block::MailboxSpec;
use self::block::Shared;
#[cfg(not(loom))]
pub use self::block::mailbox_region;
pub use self::reader::{MailboxMessage, MailboxReader};
pub use self::writer::MailboxWriter;

/// How often a reader tries again when a message is overwritten while it reads.
const TRIES: usize = 8;

/// Why a message was not written, or none can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    /// There is no room, and the mailbox does not overwrite.
    #[error("the mailbox is full; come again when some was read")]
    Full,
    /// The message can never fit.
    #[error("a message of {len} bytes does not fit, at most {most}; ask for more room")]
    TooLong {
        /// The bytes of the message.
        len: usize,
        /// The most bytes.
        most: usize,
    },
    /// The other side wrote invalid values: nothing in it can be used any more.
    #[error("the other side broke the mailbox; it is not used any more")]
    Corrupt,
}

/// A mailbox in this process.
#[must_use]
pub fn mailbox(spec: MailboxSpec) -> (MailboxWriter, MailboxReader) {
    let (ours, theirs) = Shared::pair(spec.clamped());
    (MailboxWriter::of(ours), MailboxReader::of(theirs))
}

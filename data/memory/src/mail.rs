//! A mailbox: messages of any length from one writer to one reader, who need not trust each other
//! and may sleep. The way of events inside a host; `mail/block.rs` states the layout.
//!
//! The writer publishes `tail` with release order after it has written messages, as many at a time as
//! it likes. When there is no room it is told so - or, if the mailbox overwrites, it moves `low` beyond
//! the oldest messages, then writes over them; the reader copies a message out and looks at `low`
//! afterwards: what was overwritten meanwhile is not believed (a seqlock). So a reader that is slow,
//! stopped or dead holds nobody up, and costs the writer no look at what the reader writes.
//!
//! Each side keeps its own counters to itself and believes the other's only after a check. Whatever a
//! hostile side writes, the other reads garbage at worst, or [`MailboxError::Corrupt`].
//!
//! A reader that sleeps is called by its [`Bell`](crate::Bell).

mod block;
mod reader;
mod writer;

pub use self::block::MailboxSpec;
use self::block::Shared;
#[cfg(not(loom))]
pub use self::block::mailbox_region;
pub use self::reader::{MailboxMessage, MailboxReader};
pub use self::writer::MailboxWriter;

/// How often a reader tries anew when it is overwritten while it reads.
const TRIES: usize = 8;

/// Why a message was not put in, or none can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    /// There is no room, and the mailbox does not overwrite.
    #[error("the mailbox is full; come again when some was read")]
    Full,
    /// The message can never fit.
    #[error("a message of {len} bytes does not fit, at most {most}; ask for more room")]
    TooLong {
        /// Its bytes.
        len: usize,
        /// The most.
        most: usize,
    },
    /// What the other side wrote makes no sense: believe nothing more.
    #[error("the other side broke the mailbox; it is not used any more")]
    Corrupt,
}

/// A mailbox in this process.
#[must_use]
pub fn mailbox(spec: MailboxSpec) -> (MailboxWriter, MailboxReader) {
    let (ours, theirs) = Shared::pair(spec.clamped());
    (MailboxWriter::of(ours), MailboxReader::of(theirs))
}

//! A shared-memory segment of a subscription, for one direction; its reader creates it. The paper has one
//! for each direction, "to minimize the need for synchronization"; and two layouts, bit pattern and ring.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | a header: `SLVGECAL`, version 2, kind 0 ring, 1 bit pattern | its maker, once |
//! | 24 | u64: ring: capacity in bytes; bit pattern: entries | its maker, once |
//! | 32 | u64: ring: bound; bit pattern: bytes of an entry | its maker, once |
//! | 128 | u64 `flag`: counts what was written | writer |
//! | 256 | u64 `wakes_at`: when the reader looks at the latest, by `CLOCK_MONOTONIC`; 0: awake | reader |
//! | 384 | u32: the [`Bell`] of a bit pattern's reader: 0 awake, 1 asleep, 2 notified | both |
//! | 512 | the ring (a mailbox, with a bell of its own), or bits and entries | |

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use selvedge_data_memory::{
    Bell, MailboxError, MailboxReader, MailboxSpec, MailboxWriter, Region, RegionError,
    mailbox_region,
};
use selvedge_os::memory::{Memfd, MemoryError};
use selvedge_units::Instant;
use serde::{Deserialize, Serialize};

use crate::bit_pattern::{
    BODY, BitPatternError, BitPatternReader, BitPatternSpec, BitPatternWriter,
};

const MAGIC: [u8; 8] = *b"SLVGECAL";
const VERSION: u32 = 2;
/// The offsets of the two numbers of the data part's layout.
const FIRST: usize = 24;
const SECOND: usize = 32;
const FLAG: usize = 128;
const WAKES_AT: usize = 256;
/// The largest number of entries of a bit pattern, and of bytes of a segment.
const ENTRIES_MAX: u32 = 65_536;
const LEN_MAX: usize = 16 << 20;

/// The layout of a segment's data part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Layout {
    /// Messages one after the other; a write to a full ring returns an error.
    Ring {
        /// Bytes, with 24 for each message beside its own; rounded up to a power of two.
        room: u32,
        /// The largest number of waiting messages.
        bound: u32,
    },
    /// Entries with a bit each: the writer uses the next free one, or one whose number is a
    /// priority or type. A named entry is replaced if it was not read.
    Bits {
        /// The number of entries, 1 to 65536.
        entries: u32,
        /// Bytes of each entry.
        size: u32,
    },
}

impl Default for Layout {
    fn default() -> Self {
        Self::Ring { room: 64 * 1024, bound: 256 }
    }
}

/// Why a segment can't be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The memory can't be created, or is invalid.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The segment is too large, or has no entries.
    #[error("a segment has 1 to {ENTRIES_MAX} entries and at most {LEN_MAX} bytes; ask for less")]
    Size,
    /// The header is invalid.
    #[error("the segment's header is corrupt; pass the memory that was handed out")]
    Header,
    /// The ring is invalid.
    #[error(transparent)]
    Ring(#[from] RegionError),
}

/// Why a message was not put into a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// There is no room.
    #[error("there is no room; come again when some was read")]
    Full,
    /// The message is too long, or names an entry that does not exist.
    #[error("it is too long for the segment, or there is no such entry; subscribe with more room")]
    Outside,
    /// The reader corrupted the segment.
    #[error("the other side broke the segment; subscribe anew")]
    Broken,
}

impl Layout {
    fn check(self) -> Result<Self, SegmentError> {
        let made = match self {
            Self::Ring { room, bound } => {
                let spec = MailboxSpec {
                    capacity: u64::from(room),
                    bound: bound.into(),
                    overwrites: false,
                };
                let spec = spec.clamped();
                Self::Ring { room: spec.capacity as u32, bound: spec.bound as u32 }
            }
            Self::Bits { entries, size } => Self::Bits {
                entries,
                size: size.checked_next_multiple_of(8).ok_or(SegmentError::Size)?,
            },
        };
        let sound = match made {
            Self::Ring { room, .. } => mailbox_region(room.into()) + BODY <= LEN_MAX,
            Self::Bits { entries, size } => {
                (1..=ENTRIES_MAX).contains(&entries)
                    && u64::from(entries) * (u64::from(size) + 16) < LEN_MAX as u64 / 2
            }
        };
        if sound { Ok(made) } else { Err(SegmentError::Size) }
    }

    fn len(self) -> usize {
        match self {
            Self::Ring { room, .. } => BODY + mailbox_region(room.into()),
            Self::Bits { entries, size } => BitPatternSpec { entries, size }.len(),
        }
    }

    /// The kind, and the two numbers after the header.
    fn numbers(self) -> (u32, [u64; 2]) {
        match self {
            Self::Ring { room, bound } => (0, [room.into(), bound.into()]),
            Self::Bits { entries, size } => (1, [entries.into(), size.into()]),
        }
    }
}

#[derive(Debug)]
enum Read {
    Ring(MailboxReader),
    Bits(BitPatternReader),
}

/// The reading end, which owns the memory.
#[derive(Debug)]
pub(crate) struct Reader {
    memory: Arc<Memfd>,
    body: Read,
}

impl Reader {
    pub(crate) fn create(layout: Layout) -> Result<Self, SegmentError> {
        let layout = layout.check()?;
        let memory = Arc::new(Memfd::create("selvedge ecall", layout.len())?);
        let body = match layout {
            Layout::Ring { room, bound } => {
                let region: Arc<dyn Region> = memory.clone();
                let (capacity, bound) = (u64::from(room), u64::from(bound));
                let spec = MailboxSpec { capacity, bound, overwrites: false };
                Read::Ring(MailboxReader::create(&region, BODY, spec)?)
            }
            Layout::Bits { entries, size } => Read::Bits(BitPatternReader::new(
                Arc::clone(&memory),
                BitPatternSpec { entries, size },
            )),
        };
        let (kind, [first, second]) = layout.numbers();
        memory.put(FIRST, first);
        memory.put(SECOND, second);
        memory.put_header(MAGIC, VERSION, kind);
        Ok(Self { memory, body })
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        self.memory.file()
    }

    /// Takes the next message; returns its entry, if it has one, and its tag. Its content is
    /// [`bytes`](Self::bytes).
    pub(crate) fn take(&mut self) -> Result<Option<(Option<u32>, u64)>, MailboxError> {
        match &mut self.body {
            Read::Ring(ring) => Ok(ring.take()?.map(|mail| (None, mail.tag))),
            Read::Bits(board) => Ok(board.take().map(|(entry, tag)| (Some(entry), tag))),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.body {
            Read::Ring(ring) => ring.last().bytes,
            Read::Bits(board) => board.bytes(),
        }
    }

    pub(crate) fn has_message(&self) -> bool {
        match &self.body {
            Read::Ring(ring) => ring.has_message(),
            Read::Bits(board) => board.has_message(),
        }
    }

    /// Prepares to sleep until `until` at the latest; false if there is a message.
    pub(crate) fn prepare_sleep(&self, until: Instant) -> bool {
        self.memory.put(WAKES_AT, until.0);
        let quiet = match &self.body {
            Read::Ring(ring) => ring.prepare_sleep(),
            Read::Bits(board) => board.prepare_sleep(),
        };
        if !quiet {
            self.memory.put(WAKES_AT, 0);
        }
        quiet
    }

    pub(crate) fn finish_sleep(&self) {
        self.memory.put(WAKES_AT, 0);
        match &self.body {
            Read::Ring(ring) => ring.finish_sleep(),
            Read::Bits(board) => board.finish_sleep(),
        }
    }

    pub(crate) fn bell(&self) -> &Bell {
        match &self.body {
            Read::Ring(ring) => ring.bell(),
            Read::Bits(board) => board.bell(),
        }
    }

    /// The paper's `flag`.
    pub(crate) fn flag(&self) -> u64 {
        self.memory.word(FLAG)
    }
}

#[derive(Debug)]
enum Write {
    Ring(MailboxWriter),
    Bits(BitPatternWriter),
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Writer {
    memory: Arc<Memfd>,
    body: Write,
    flag: u64,
}

impl Writer {
    /// Opens memory that the reader has created; its header is read once.
    pub(crate) fn open(file: OwnedFd) -> Result<Self, SegmentError> {
        let memory = Arc::new(Memfd::open(file, BODY + 8..=LEN_MAX)?);
        let header = memory.header(MAGIC, VERSION, 2).map_err(MemoryError::from)?;
        let [first, second] = [FIRST, SECOND].map(|at| memory.word(at));
        let number = |word: u64| u32::try_from(word).map_err(|_| SegmentError::Header);
        let (first, second) = (number(first)?, number(second)?);
        let layout = match header.kind {
            0 => Layout::Ring { room: first, bound: second },
            _ => Layout::Bits { entries: first, size: second },
        };
        if layout.check()? != layout || layout.len() != memory.len() {
            return Err(SegmentError::Header);
        }
        let body = match layout {
            Layout::Ring { room, .. } => {
                let region: Arc<dyn Region> = memory.clone();
                let writer = MailboxWriter::within(&region, BODY)?;
                if writer.spec().capacity != u64::from(room) || writer.spec().overwrites {
                    return Err(SegmentError::Header);
                }
                Write::Ring(writer)
            }
            Layout::Bits { entries, size } => Write::Bits(BitPatternWriter::new(
                Arc::clone(&memory),
                BitPatternSpec { entries, size },
            )),
        };
        Ok(Self { memory, body, flag: 0 })
    }

    /// Writes a message without waking the reader. A ring's reader sees it only after
    /// [`publish_silently`](Self::publish_silently).
    pub(crate) fn put(
        &mut self,
        entry: Option<u32>,
        tag: u64,
        bytes: &[u8],
    ) -> Result<(), PutError> {
        match &mut self.body {
            Write::Ring(ring) => ring.put(tag, bytes).map_err(|error| match error {
                MailboxError::Full => PutError::Full,
                MailboxError::TooLong { .. } => PutError::Outside,
                MailboxError::Corrupt => PutError::Broken,
            })?,
            Write::Bits(board) => board.put(entry, tag, bytes).map_err(|error| match error {
                BitPatternError::Full => PutError::Full,
                BitPatternError::Outside => PutError::Outside,
            })?,
        }
        self.flag += 1;
        Ok(())
    }

    /// Publishes the written messages without a wake-up.
    pub(crate) fn publish_silently(&mut self) {
        self.memory.put(FLAG, self.flag);
        if let Write::Ring(ring) = &mut self.body {
            ring.publish_silently();
        }
    }

    /// Publishes the written messages; returns true if the reader sleeps: then this caller must wake it.
    #[must_use = "the reader waits for the call"]
    pub(crate) fn flush(&mut self) -> bool {
        self.memory.put(FLAG, self.flag);
        match &mut self.body {
            Write::Ring(ring) => ring.flush(),
            Write::Bits(board) => board.flush(),
        }
    }

    pub(crate) fn bell(&self) -> &Bell {
        match &self.body {
            Write::Ring(ring) => ring.bell(),
            Write::Bits(board) => board.bell(),
        }
    }

    /// Whether the reader will look before `due` without being woken.
    pub(crate) fn polls_before(&self, due: Instant) -> bool {
        // A reader that is about to sleep sees the published messages, or its wake-up time is seen here.
        fence(Ordering::SeqCst);
        self.memory.atomic(WAKES_AT).load(Ordering::Acquire) <= due.0
    }
}

//! The beginning of every layout in shared memory: its type, its version, and its length. The side that lays
//! memory out writes a header last; the side that maps it checks the header before anything else.
//!
//! | offset | what |
//! |---|---|
//! | 0 | 8 bytes of magic: which layout this is |
//! | 8 | u32: the layout's version |
//! | 12 | u32: its kind, where a layout has several; else 0 |
//! | 16 | u64: bytes of the whole layout, this header included |
//! | 24 | the layout's own numbers |
//!
//! All numbers are native-endian: both sides run on one machine.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};

/// The first 24 bytes of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the layout.
    pub magic: [u8; 8],
    /// Its version.
    pub version: u32,
    /// Its kind: less than the layout's number of kinds.
    pub kind: u32,
    /// Bytes of the whole layout.
    pub length: u64,
}

/// Why memory does not hold the expected layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It begins with other bytes.
    #[error(
        "the segment begins with other bytes ({}) than {}; pass the memory that was handed out",
        .is.escape_ascii(),
        .wanted.escape_ascii()
    )]
    Magic {
        /// These bytes.
        is: [u8; 8],
        /// The bytes that this program expects.
        wanted: [u8; 8],
    },
    /// It is of another version.
    #[error(
        "the segment is of layout version {is}, this program's is {wanted}; use both of one release"
    )]
    Version {
        /// The layout's version.
        is: u32,
        /// This program's version.
        wanted: u32,
    },
    /// A number in it is out of range.
    #[error(
        "the segment's header is corrupt: {what} is {value}; pass the memory that was handed out"
    )]
    Number {
        /// The number.
        what: &'static str,
        /// Its value.
        value: u64,
    },
}

impl Header {
    /// Bytes of a header.
    pub const SIZE: usize = 24;

    /// The header as words in memory.
    #[must_use]
    pub const fn words(self) -> [u64; 3] {
        let second = self.version as u64 | (self.kind as u64) << 32;
        [u64::from_ne_bytes(self.magic), second, self.length]
    }

    /// The header in these words.
    #[must_use]
    pub const fn of([magic, second, length]: [u64; 3]) -> Self {
        let (version, kind) = (second as u32, (second >> 32) as u32);
        Self { magic: magic.to_ne_bytes(), version, kind, length }
    }

    /// Reads each word once.
    #[cfg(not(loom))]
    #[must_use]
    pub fn read(from: &[AtomicU64; 3]) -> Self {
        Self::of(from.each_ref().map(|word| word.load(Ordering::Acquire)))
    }

    /// Writes the header, the magic last: the other side sees all earlier writes.
    #[cfg(not(loom))]
    pub fn write(self, to: &[AtomicU64; 3]) {
        for (word, value) in to.iter().zip(self.words()).rev() {
            word.store(value, Ordering::Release);
        }
    }

    /// Checks that it has this magic and version, and one of `kinds` kinds.
    pub fn check(self, magic: [u8; 8], version: u32, kinds: u32) -> Result<Self, HeaderError> {
        if self.magic != magic {
            return Err(HeaderError::Magic { is: self.magic, wanted: magic });
        }
        if self.version != version {
            return Err(HeaderError::Version { is: self.version, wanted: version });
        }
        if self.kind >= kinds {
            return Err(HeaderError::Number { what: "its kind", value: self.kind.into() });
        }
        Ok(self)
    }

    /// Checks that the layout has this length.
    ///
    /// # Errors
    /// [`HeaderError::Number`].
    pub fn check_length(self, wanted: usize) -> Result<Self, HeaderError> {
        if self.length == wanted as u64 {
            return Ok(self);
        }
        Err(HeaderError::Number { what: "its length", value: self.length })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MINE: Header = Header { magic: *b"SLVGTEST", version: 7, kind: 1, length: 4096 };

    #[test]
    fn what_is_written_is_read() {
        let words = [const { AtomicU64::new(0) }; 3];
        MINE.write(&words);
        assert_eq!(Header::read(&words), MINE);
        let bytes: alloc::vec::Vec<u8> =
            MINE.words().into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(bytes.len(), Header::SIZE);
        assert_eq!((&bytes[..8], bytes[8], bytes[12]), (&b"SLVGTEST"[..], 7, 1));
    }

    #[test]
    fn every_number_is_checked_and_named() {
        let check = |header: Header| {
            header.check(MINE.magic, 7, 2).and_then(|header| header.check_length(4096))
        };
        assert_eq!(check(MINE), Ok(MINE));
        for (wrong, text) in [
            (Header { magic: *b"SLVGELSE", ..MINE }, "(SLVGELSE) than SLVGTEST"),
            (Header { version: 6, ..MINE }, "version 6, this program's is 7"),
            (Header { kind: 2, ..MINE }, "its kind is 2"),
            (Header { length: 4095, ..MINE }, "its length is 4095"),
        ] {
            let error = alloc::string::ToString::to_string(&check(wrong).unwrap_err());
            assert!(error.contains(text), "{error}");
        }
    }
}

//! The writer's side of a user ring buffer: calls to a program in the kernel that need no answer, from
//! `Watch::post` to `bpf/posts.h`, without a system call; Q-Fabric's deferred calls (section 3.2.1).
//!
//! Layout of the kernel's `ring_buffer_desc`: a page that the kernel writes (how far it has read),
//! a page that this process writes (how far it has written), then the data, mapped twice in a row.
//! A record is a length with two flag bits, four bytes for the kernel, and the bytes, padded to 8.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use selvedge_os::memory::{Access, Mapping};

/// The bytes before each record: length, flags and the kernel's four bytes.
const HEADER: u64 = 8;
/// `struct post`, in bytes.
pub(crate) const POST: usize = 16;

/// A writer of records.
#[derive(Debug)]
pub(crate) struct ChangeRing {
    /// The kernel's page.
    reader: Mapping,
    /// This process's page, and the data twice.
    writer: Mapping,
    page: usize,
    size: u64,
    /// How far this process has written, whatever its page contains.
    written: u64,
}

impl ChangeRing {
    /// Whether this kernel supports such rings, and this process may create them.
    pub(crate) fn are_supported() -> bool {
        libbpf_rs::MapType::UserRingBuf.is_supported().unwrap_or(false)
    }

    /// Maps a ring of `size` bytes of data, a power of two.
    pub(crate) fn new(map: &impl AsFd, size: usize) -> std::io::Result<Self> {
        let page = rustix::param::page_size();
        let reader = Mapping::new(map, 0, page, Access::Read)?;
        let writer = Mapping::new(map, page as u64, page + 2 * size, Access::ReadWrite)?;
        Ok(Self { reader, writer, page, size: size as u64, written: 0 })
    }

    /// Bytes that the kernel has not taken yet.
    pub(crate) fn waiting(&self) -> u64 {
        let read = self.reader.atomic(0).load(Ordering::Acquire);
        self.written.wrapping_sub(read)
    }

    /// Puts a record into the ring for the kernel; `false` if there is no room. Never waits.
    pub(crate) fn put(&mut self, record: &[u8]) -> bool {
        let whole = (record.len() as u64 + HEADER).next_multiple_of(8);
        // If more waits than the ring holds, another process has overwritten the pages.
        if self.size.checked_sub(self.waiting()).is_none_or(|room| room < whole) {
            return false;
        }
        let at = self.page + (self.written % self.size) as usize;
        self.writer.atomic(at).store(record.len() as u64, Ordering::Relaxed);
        // Past the end it continues in the second mapping, which shows the beginning.
        for (index, part) in record.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            let word = u64::from_ne_bytes(word);
            self.writer.atomic(at + 8 + index * 8).store(word, Ordering::Relaxed);
        }
        self.written += whole;
        self.writer.atomic(0).store(self.written, Ordering::Release);
        true
    }

    /// Overwrites the length of the first record.
    #[cfg(test)]
    pub(crate) fn corrupt_length(&self, length: u64) {
        self.writer.atomic(self.page).store(length, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 128;
    const PAGE: usize = 64;

    fn change_ring() -> ChangeRing {
        let alone = |size| Mapping::private(size).unwrap();
        let (reader, writer) = (alone(PAGE), alone(PAGE + 2 * SIZE));
        ChangeRing { reader, writer, page: PAGE, size: SIZE as u64, written: 0 }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_it_is_read() {
        let mut change_ring = change_ring();
        let mut read = 0;
        for round in 0..20_u8 {
            for _ in 0..5 {
                assert!(change_ring.put(&[round; POST]));
            }
            assert!(!change_ring.put(&[round; POST]), "5 of 24 bytes are in 128");
            assert_eq!(change_ring.waiting(), 120);
            let at = PAGE + (read % SIZE as u64) as usize;
            assert_eq!(change_ring.writer.atomic(at).load(Ordering::Relaxed), POST as u64);
            let word = change_ring.writer.atomic(at + 8).load(Ordering::Relaxed);
            assert_eq!(word.to_ne_bytes(), [round; 8]);
            read += 120;
            change_ring.reader.atomic(0).store(read, Ordering::Release);
        }
        // An impossible position.
        change_ring.reader.atomic(0).store(read + 1000, Ordering::Release);
        assert!(!change_ring.put(&[1; POST]));
    }
}

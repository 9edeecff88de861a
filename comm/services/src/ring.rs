//! The reader's side of a BPF ring buffer, without a system call for each look.
//!
//! Layout of the kernel's `ring_buffer_desc`: a page that the reader writes (how far it has read), a page
//! that the kernel writes (how far it has written), then the data, mapped twice in a row. A record is a
//! length with two flag bits, four bytes of the kernel, and the bytes, padded to 8. Lengths are checked as
//! if the kernel were not trusted: any other owner of the map can write the reader's page.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use selvedge_os::memory::{Access, Mapping};

const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
const RECORD_HEADER: u64 = 8;

/// A reader of records.
#[derive(Debug)]
pub(crate) struct Ring {
    map: OwnedFd,
    /// The reader's page.
    reader: Mapping,
    /// The kernel's page, and the data twice.
    writer: Mapping,
    page: usize,
    size: u64,
}

impl Ring {
    /// Maps a ring of `size` bytes of data, a power of two.
    pub(crate) fn new(map: impl AsFd, size: usize) -> std::io::Result<Self> {
        let map = map.as_fd().try_clone_to_owned()?;
        let page = rustix::param::page_size();
        let reader = Mapping::new(&map, 0, page, Access::ReadWrite)?;
        let writer = Mapping::new(&map, page as u64, page + 2 * size, Access::Read)?;
        Ok(Self { map, reader, writer, page, size: size as u64 })
    }

    /// The descriptor that can be polled for reading.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Copies the next record's bytes, as far as `into` has room; returns their number. At most as
    /// many calls in a row return a record as the ring holds, whatever is written.
    pub(crate) fn pop(&mut self, into: &mut [u8]) -> Option<usize> {
        // Discarded records are skipped; each is at least 8 bytes.
        for _ in 0..=self.size / RECORD_HEADER {
            let read = self.reader.atomic(0).load(Ordering::Relaxed);
            let written = self.writer.atomic(0).load(Ordering::Acquire);
            let waiting = written.wrapping_sub(read);
            if waiting == 0 {
                return None;
            }
            if waiting > self.size || !read.is_multiple_of(8) {
                // Another process has overwritten the page; start again at the kernel's position.
                self.reader.atomic(0).store(written, Ordering::Release);
                return None;
            }
            let at = self.page + (read % self.size) as usize;
            let length = self.writer.atomic_u32(at).load(Ordering::Acquire);
            if length & BUSY != 0 {
                return None;
            }
            let bytes = u64::from(length & !(BUSY | DISCARD));
            let whole = (bytes + RECORD_HEADER).next_multiple_of(8);
            if whole > waiting {
                self.reader.atomic(0).store(written, Ordering::Release);
                return None;
            }
            let taken = if length & DISCARD == 0 {
                let taken = into.len().min(bytes as usize);
                self.writer.read(at + RECORD_HEADER as usize, &mut into[..taken]);
                Some(taken)
            } else {
                None
            };
            self.reader.atomic(0).store(read.wrapping_add(whole), Ordering::Release);
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// Skips all waiting records.
    pub(crate) fn clear(&self) {
        let written = self.writer.atomic(0).load(Ordering::Acquire);
        self.reader.atomic(0).store(written, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 128;

    fn ring() -> Ring {
        let map = std::fs::File::open("/dev/null").unwrap().into();
        let page = 64;
        let alone = |size| Mapping::private(size).unwrap();
        let (reader, writer) = (alone(page), alone(page + 2 * SIZE));
        Ring { map, reader, writer, page, size: SIZE as u64 }
    }

    fn put(ring: &Ring, flags: u32, bytes: &[u8]) {
        let written = ring.writer.atomic(0).load(Ordering::Relaxed);
        let whole = (bytes.len() + 8).next_multiple_of(8);
        let from = (written % SIZE as u64) as usize;
        let mut record = vec![0; whole];
        record[..4].copy_from_slice(&(bytes.len() as u32 | flags).to_ne_bytes());
        record[8..8 + bytes.len()].copy_from_slice(bytes);
        for (index, word) in record.chunks(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap());
            let at = (from + index * 8) % SIZE;
            for copy in [0, SIZE] {
                ring.writer.atomic(ring.page + copy + at).store(word, Ordering::Relaxed);
            }
        }
        ring.writer.atomic(0).store(written + whole as u64, Ordering::Release);
    }

    #[test]
    fn records_come_in_order_over_the_end() {
        let mut ring = ring();
        let mut into = [0; 32];
        for round in 0..20_u8 {
            put(&ring, 0, &[round; 20]);
            put(&ring, DISCARD, &[99; 9]);
            put(&ring, 0, &[round + 1; 3]);
            assert_eq!(ring.pop(&mut into), Some(20));
            assert_eq!(into[..20], [round; 20]);
            assert_eq!(ring.pop(&mut into), Some(3));
            assert_eq!(into[..3], [round + 1; 3]);
            assert_eq!(ring.pop(&mut into), None);
        }
        put(&ring, BUSY, &[1; 8]);
        assert_eq!(ring.pop(&mut into), None);
        ring.clear();
        put(&ring, 0, &[5; 40]);
        assert_eq!(ring.pop(&mut into), Some(32), "as far as there is room");
    }

    proptest! {
        /// Whatever another process writes into the pages: no panic, no endless loop, and the ring
        /// still works.
        #[test]
        fn any_bytes_are_survived(
            pages in proptest::collection::vec(any::<u64>(), 8 + 2 * SIZE / 8),
            read in any::<u64>(),
            near in any::<bool>(),
        ) {
            let mut ring = ring();
            let bytes: Vec<u8> = pages.iter().flat_map(|word| word.to_ne_bytes()).collect();
            ring.writer.write(0, &bytes);
            let read = if near { pages[0].wrapping_sub(read % 256) } else { read };
            ring.reader.atomic(0).store(read, Ordering::Relaxed);
            let mut into = [0; 104];
            for _ in 0..64 {
                let _ = ring.pop(&mut into);
            }
            ring.writer.atomic(0).store(0, Ordering::Relaxed);
            ring.clear();
            put(&ring, 0, &[7; 8]);
            prop_assert_eq!(ring.pop(&mut into), Some(8));
        }
    }
}

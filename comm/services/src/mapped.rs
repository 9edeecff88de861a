//! Memory that the kernel, or other processes, write at the same time: a map's value in this
//! process. It is touched by atomic operations only, and nothing that is read from it is believed.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A shared mapping, or memory that stands for one in tests.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u64>,
    size: usize,
    /// Whether it is to be unmapped; else it was allocated.
    mapped: bool,
}

// SAFETY: the memory belongs to this value, and is touched by atomic operations only.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `size` bytes of a descriptor from `offset` on.
    pub(crate) fn new(
        of: impl AsFd,
        size: usize,
        offset: usize,
        writable: bool,
    ) -> std::io::Result<Self> {
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let descriptor = of.as_fd().as_raw_fd();
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let start = unsafe {
            let null = std::ptr::null_mut();
            libc::mmap(null, size, access, libc::MAP_SHARED, descriptor, offset as libc::off_t)
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, size, mapped: true })
    }

    /// So many bytes of this process alone, all zero; for tests, and to stand in for a map.
    #[cfg(test)]
    pub(crate) fn alone(size: usize) -> Self {
        let words = vec![0_u64; size.div_ceil(8)].into_boxed_slice();
        let start = NonNull::new(Box::into_raw(words).cast()).expect("a box is somewhere");
        Self { start, size: size.div_ceil(8) * 8, mapped: false }
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The eight bytes at `at`, a multiple of 8.
    ///
    /// # Panics
    /// If they are not inside.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.size, "a word inside");
        // SAFETY: inside of the memory, aligned, alive as long as `self`, and only ever touched
        // by atomic operations in this process.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at / 8)) }
    }

    /// The four bytes at `at`, a multiple of 4.
    ///
    /// # Panics
    /// If they are not inside.
    #[inline]
    pub(crate) fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.size, "a half word inside");
        // SAFETY: as `word`.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast::<u32>().add(at / 4)) }
    }

    /// Copies words in; what is beyond the end is left out.
    pub(crate) fn write(&self, bytes: &[u8]) {
        for (index, part) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            if index * 8 + 8 <= self.size {
                self.word(index * 8).store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
        }
    }

    /// Copies words out, from `at` on, a multiple of 8; as many as there are.
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) {
        for (index, part) in bytes.chunks_mut(8).enumerate() {
            let from = at + index * 8;
            if from + 8 <= self.size {
                let word = self.word(from).load(Ordering::Relaxed).to_ne_bytes();
                part.copy_from_slice(&word[..part.len()]);
            }
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: mapped by `new` with this size, and unmapped only here.
            let done = unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
            debug_assert_eq!(done, 0, "a mapping of ours can be unmapped");
        } else {
            let words = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.size / 8);
            // SAFETY: made by `alone` out of a box of this length, and freed only here.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let memory = Mapped::alone(20);
        assert_eq!(memory.size(), 24);
        memory.write(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let mut back = [0; 12];
        memory.read(0, &mut back);
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0]);
        assert_eq!(memory.half(8).load(Ordering::Relaxed), u32::from_ne_bytes([9, 10, 0, 0]));
        // Beyond the end nothing happens.
        memory.write(&[7; 64]);
        let mut long = [0; 64];
        memory.read(16, &mut long);
        assert_eq!(long[..8], [7; 8]);
        assert_eq!(long[8..], [0; 56]);
    }

    #[test]
    #[should_panic(expected = "a word inside")]
    fn nothing_outside_is_touched() {
        Mapped::alone(16).word(16);
    }
}

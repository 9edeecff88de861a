//! Memory that processes share, or that the kernel shares with one. Memfds are sealed so that no process can
//! take mapped memory away (which would end the other process by SIGBUS). The users of the memory know its
//! layout.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use selvedge_data_memory::{Bell, Header, HeaderError, Region};

/// The file system of memfds of huge pages, `HUGETLBFS_MAGIC`.
const HUGETLBFS: rustix::fs::FsWord = 0x9584_58f6;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Why shared memory can't be created or used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel refused to create or map it.
    #[error("can't {doing} shared memory: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// It does not hold the expected layout.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Its size could change while it is mapped.
    #[error("the segment is not sealed against shrinking; pass the memfd that was handed out")]
    Unsealed,
    /// Its pages may be gone when they are touched.
    #[error("the segment is of huge pages, which may run out; pass an ordinary memfd")]
    HugePages,
    /// It does not have an allowed length.
    #[error("the segment's header is corrupt: its length is {0}")]
    Length(u64),
}

fn failed(doing: &'static str) -> impl Fn(rustix::io::Errno) -> MemoryError {
    move |source| MemoryError::System { doing, source: source.into() }
}

/// Mapped memory that the kernel or other processes may write at the same time. It is accessed by atomic
/// operations only, and every value read from it must be checked.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is accessed through atomics only, except by those who take `base` and answer for it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Whether mapped memory may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may only be read; a write ends the process.
    Read,
    /// It may be read and written.
    ReadWrite,
}

/// A sealed memfd, mapped; others map it by its file.
#[derive(Debug)]
pub struct Memfd {
    mapping: Mapping,
    file: OwnedFd,
}

// SAFETY: mapped until dropped, at a page's beginning, sealed so that it cannot shrink; references
// are made to atomics in it only.
unsafe impl Region for Memfd {
    fn base(&self) -> NonNull<u8> {
        self.mapping.base
    }

    fn len(&self) -> usize {
        self.mapping.len
    }
}

impl std::ops::Deref for Memfd {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

impl Memfd {
    /// New memory of `len` bytes, all zero.
    ///
    /// # Errors
    /// [`MemoryError::System`].
    pub fn create(name: &str, len: usize) -> Result<Self, MemoryError> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(failed("make"))?;
        ftruncate(&file, len as u64).map_err(failed("size"))?;
        fcntl_add_seals(&file, SEALS).map_err(failed("seal"))?;
        Self::map(file, len)
    }

    /// Maps memory that another process created; its length must be in this range.
    pub fn open(file: OwnedFd, lens: std::ops::RangeInclusive<usize>) -> Result<Self, MemoryError> {
        // A file that is not a memfd has no seals.
        let seals = fcntl_get_seals(&file).map_err(|_| MemoryError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::Unsealed);
        }
        // Holes may be punched into it, and the next access ends the process when no huge page is left.
        let system = rustix::fs::fstatfs(&file).map_err(failed("look at"))?;
        if system.f_type == HUGETLBFS {
            return Err(MemoryError::HugePages);
        }
        let size = rustix::fs::fstat(&file).map_err(failed("look at"))?.st_size;
        let wrong = || MemoryError::Length(size.cast_unsigned());
        let len = usize::try_from(size).ok().filter(|len| lens.contains(len)).ok_or_else(wrong)?;
        Self::map(file, len)
    }

    fn map(file: OwnedFd, len: usize) -> Result<Self, MemoryError> {
        let mapping = Mapping::new(&file, 0, len, Access::ReadWrite)
            .map_err(|source| MemoryError::System { doing: "map", source })?;
        Ok(Self { mapping, file })
    }

    /// The file by which another process maps it.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on. Only for a file that never shrinks: a kernel's map, or a
    /// sealed memfd.
    pub fn new(file: impl AsFd, offset: u64, len: usize, access: Access) -> io::Result<Self> {
        let rights = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // Populated: no page fault is left for the path of a frame.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, rights, flags, file, offset) }?;
        Ok(Self::of(base, len))
    }

    /// `len` bytes of this process, all zero: for the kernel to share, or in place of shared ones in tests.
    pub fn private(len: usize) -> io::Result<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, rights, MapFlags::PRIVATE) }?;
        Ok(Self::of(base, len))
    }

    fn of(base: *mut std::ffi::c_void, len: usize) -> Self {
        let base = NonNull::new(base.cast()).expect("nothing is mapped at address 0");
        Self { base, len }
    }

    /// Its beginning, for a user who states at each access why nobody else accesses the same bytes, or all do
    /// so by atomics.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The number of bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.len
    }

    /// Copies bytes in, from `at` on, a multiple of 8, a word at a time; the last word is padded with zeros.
    /// Bytes beyond the end are left out.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (index, part) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            if at + index * 8 + 8 <= self.len {
                self.atomic(at + index * 8).store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
        }
    }

    /// Copies bytes out, from `at` on, a multiple of 8; as many as there are.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        for (index, part) in bytes.chunks_mut(8).enumerate() {
            if at + index * 8 + 8 <= self.len {
                let word = self.word(at + index * 8).to_ne_bytes();
                part.copy_from_slice(&word[..part.len()]);
            }
        }
    }

    /// Reads a word once. `at` is a multiple of 8, and the word lies inside.
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        self.atomic(at).load(Ordering::Relaxed)
    }

    /// Writes a word, after all earlier writes.
    pub fn put(&self, at: usize, word: u64) {
        self.atomic(at).store(word, Ordering::Release);
    }

    /// A word.
    ///
    /// # Panics
    /// If it does not lie inside, or not at a multiple of 8.
    #[must_use]
    #[inline]
    pub fn atomic(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "inside");
        // SAFETY: inside, aligned, and mapped as long as `self`.
        unsafe { self.base.add(at).cast::<AtomicU64>().as_ref() }
    }

    /// Half a word.
    ///
    /// # Panics
    /// If it does not lie inside, or not at a multiple of 4.
    #[must_use]
    #[inline]
    pub fn atomic_u32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len, "inside");
        // SAFETY: inside, aligned, and mapped as long as `self`.
        unsafe { self.base.add(at).cast::<AtomicU32>().as_ref() }
    }

    /// A doorbell state in it.
    ///
    /// # Panics
    /// As [`atomic_u32`](Self::atomic_u32).
    #[must_use]
    pub fn bell(&self, at: usize) -> &Bell {
        Bell::of(self.atomic_u32(at))
    }

    /// The header at its beginning, of this magic, version and number of kinds, and of its length.
    pub fn header(&self, magic: [u8; 8], version: u32, kinds: u32) -> Result<Header, HeaderError> {
        Header::read(self.beginning()).check(magic, version, kinds)?.check_length(self.len)
    }

    /// Writes a header at its beginning, after all earlier writes.
    pub fn put_header(&self, magic: [u8; 8], version: u32, kind: u32) {
        let length = self.len as u64;
        Header { magic, version, kind, length }.write(self.beginning());
    }

    fn beginning(&self) -> &[AtomicU64; 3] {
        assert!(self.len >= Header::SIZE, "inside");
        // SAFETY: inside, aligned, and mapped as long as `self`.
        unsafe { self.base.cast::<[AtomicU64; 3]>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` or `private`; all borrows of it have ended. It fails only for an address that
        // is not mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let memory = Mapping::private(24).unwrap();
        memory.write(0, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let mut back = [0; 12];
        memory.read(0, &mut back);
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0]);
        let half = memory.atomic_u32(8).load(Ordering::Relaxed);
        assert_eq!(half, u32::from_ne_bytes([9, 10, 0, 0]));
        // Beyond the end nothing happens.
        memory.write(0, &[7; 64]);
        let mut long = [0; 64];
        memory.read(16, &mut long);
        assert_eq!(long[..8], [7; 8]);
        assert_eq!(long[8..], [0; 56]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memory files")]
    fn huge_pages_are_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let Ok(huge) = memfd_create("huge", flags) else {
            eprintln!("SKIPPED: this kernel has no huge pages");
            return;
        };
        let len = 4 << 20;
        ftruncate(&huge, len as u64).unwrap();
        fcntl_add_seals(&huge, SEALS).unwrap();
        let refused = Memfd::open(huge, 0..=len).unwrap_err();
        assert!(matches!(refused, MemoryError::HugePages), "{refused}");
    }

    #[test]
    #[should_panic(expected = "inside")]
    fn nothing_outside_is_touched() {
        let _ = Mapping::private(16).unwrap().atomic(16);
    }
}

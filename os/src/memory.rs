//! Memory that processes share: memfds, sealed so that nobody can take mapped memory away (which would
//! end the other process by SIGBUS). What lies in them is the business of who maps them.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use selvedge_data_memory::{Bell, Header, HeaderError, Region};

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Why shared memory can't be had or used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel would not make or map it.
    #[error("can't {doing} shared memory: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// It does not hold the layout that it should.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Its size could change under us.
    #[error("the segment is not sealed against shrinking; pass the memfd that was handed out")]
    Unsealed,
    /// It has another length than it may.
    #[error("the segment's header is corrupt: its length is {0}")]
    Length(u64),
}

fn failed(doing: &'static str) -> impl Fn(rustix::io::Errno) -> MemoryError {
    move |source| MemoryError::System { doing, source: source.into() }
}

/// Mapped memory, and the memfd that others map it by.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: the memory is reached through atomics and volatile copies only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

// SAFETY: mapped until dropped, at a page's beginning, sealed so that it cannot shrink; references
// are made to atomics in it only.
unsafe impl Region for Mapping {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Mapping {
    /// New memory of so many bytes, all zero.
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

    /// Maps memory that another process made; its length must be one of these.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn open(file: OwnedFd, lens: std::ops::RangeInclusive<usize>) -> Result<Self, MemoryError> {
        // What is no memfd has no seals.
        let seals = fcntl_get_seals(&file).map_err(|_| MemoryError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::Unsealed);
        }
        let size = rustix::fs::fstat(&file).map_err(failed("look at"))?.st_size;
        let wrong = || MemoryError::Length(size.cast_unsigned());
        let len = usize::try_from(size).ok().filter(|len| lens.contains(len)).ok_or_else(wrong)?;
        Self::map(file, len)
    }

    fn map(file: OwnedFd, len: usize) -> Result<Self, MemoryError> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // Populated: no page fault is left for the way of a frame.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, rights, flags, &file, 0) }
            .map_err(failed("map"))?;
        let base = NonNull::new(base.cast()).expect("nothing is mapped at address 0");
        Ok(Self { base, len, file })
    }

    /// For another process to map it by.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Reads a word once. `at` is a multiple of 8, and the word lies inside.
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        self.atomic(at).load(Ordering::Relaxed)
    }

    /// Writes a word, after all that was written before it.
    pub fn put(&self, at: usize, word: u64) {
        self.atomic(at).store(word, Ordering::Release);
    }

    /// A word.
    ///
    /// # Panics
    /// If it does not lie inside, or not at a multiple of 8.
    #[must_use]
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
    pub fn atomic_u32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len, "inside");
        // SAFETY: inside, aligned, and mapped as long as `self`.
        unsafe { self.base.add(at).cast::<AtomicU32>().as_ref() }
    }

    /// A bell in it.
    ///
    /// # Panics
    /// As [`atomic_u32`](Self::atomic_u32).
    #[must_use]
    pub fn bell(&self, at: usize) -> &Bell {
        Bell::of(self.atomic_u32(at))
    }

    /// The header at its beginning, of this magic, version and number of kinds, and of its length.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn header(&self, magic: [u8; 8], version: u32, kinds: u32) -> Result<Header, HeaderError> {
        Header::read(self.beginning()).check(magic, version, kinds)?.check_length(self.len)
    }

    /// Writes a header at its beginning, after all that was written before it.
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
        // SAFETY: mapped by `map`; whoever borrowed from it has gone. It fails for what is no
        // mapping only.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

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
use selvedge_data_memory::Region;

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
    /// Something else.
    #[error(
        "the segment is not one of this program's: it begins with other bytes; pass the memfd that was handed out"
    )]
    Magic,
    /// Another version of the layout.
    #[error(
        "the segment is of layout version {is}, this program's is {wanted}; use both of one release"
    )]
    Version {
        /// Its own.
        is: u32,
        /// This program's.
        wanted: u32,
    },
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

    /// Whether it begins with these bytes and then this version.
    ///
    /// # Errors
    /// [`MemoryError::Magic`] or [`MemoryError::Version`].
    pub fn begins(&self, magic: [u8; 8], wanted: u32) -> Result<(), MemoryError> {
        if self.word(0).to_ne_bytes() != magic {
            return Err(MemoryError::Magic);
        }
        match self.word(8) as u32 {
            is if is == wanted => Ok(()),
            is => Err(MemoryError::Version { is, wanted }),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`; whoever borrowed from it has gone. It fails for what is no
        // mapping only.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

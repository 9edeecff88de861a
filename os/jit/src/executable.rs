//! Memory with machine code in it: written, then sealed against writing, then executed.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Why there is no memory for machine code.
#[derive(Debug, thiserror::Error)]
pub enum ExecutableError {
    /// There is nothing to execute.
    #[error("there is no machine code to execute")]
    Empty,
    /// The memory could not be mapped.
    #[error("no memory of {size} bytes for machine code: {errno}")]
    Map {
        /// The requested size.
        size: usize,
        /// The error.
        errno: rustix::io::Errno,
    },
    /// Memory must not be made executable here.
    #[error(
        "memory must not be made executable here: {0}; run the handler in the kernel, or by the \
         evaluator"
    )]
    Protect(rustix::io::Errno),
}

/// Machine code that can be called at its first byte.
#[derive(Debug)]
pub(crate) struct Executable {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone and is never written after `new`.
unsafe impl Send for Executable {}
// SAFETY: as above; reading and executing from several threads is harmless.
unsafe impl Sync for Executable {}

impl Executable {
    pub(crate) fn new(code: &[u8]) -> Result<Self, ExecutableError> {
        if code.is_empty() {
            return Err(ExecutableError::Empty);
        }
        let size = code.len().next_multiple_of(4096);
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        let mapped = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE)
        };
        let mapped = mapped.map_err(|errno| ExecutableError::Map { size, errno })?;
        let start = NonNull::new(mapped.cast::<u8>()).ok_or(ExecutableError::Empty)?;
        // From here on it is unmapped in every case.
        let executable = Self { start, size };
        // SAFETY: the mapping has at least `code.len()` writable bytes, and no other owner.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), start.as_ptr(), code.len()) };
        // SAFETY: the mapping is ours, whole; nothing refers to it as memory.
        unsafe { mprotect(mapped, size, MprotectFlags::READ | MprotectFlags::EXEC) }
            .map_err(ExecutableError::Protect)?;
        Ok(executable)
    }

    pub(crate) fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size, and unmapped only here.
        let done = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        debug_assert!(done.is_ok(), "a mapping of ours can be unmapped");
    }
}

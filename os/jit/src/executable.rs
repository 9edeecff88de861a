//! Memory with machine code in it: written, then sealed against writing, then executed.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use crate::mapped::Mapped;

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
pub(crate) struct Executable(Mapped);

impl Executable {
    pub(crate) fn new(code: &[u8]) -> Result<Self, ExecutableError> {
        if code.is_empty() {
            return Err(ExecutableError::Empty);
        }
        let size = code.len().next_multiple_of(4096);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE) };
        let start = mapped.map_err(|errno| ExecutableError::Map { size, errno })?;
        // SAFETY: just mapped with this size, to be read and written, and ours alone. It is not written
        // after `new`.
        let mut mapped = unsafe { Mapped::of(start, size) }.ok_or(ExecutableError::Empty)?;
        mapped.bytes_mut()[..code.len()].copy_from_slice(code);
        // SAFETY: the mapping is ours, whole; nothing refers to it as memory.
        unsafe { mprotect(start, size, MprotectFlags::READ | MprotectFlags::EXEC) }
            .map_err(ExecutableError::Protect)?;
        Ok(Self(mapped))
    }

    pub(crate) fn start(&self) -> *const u8 {
        self.0.start()
    }
}

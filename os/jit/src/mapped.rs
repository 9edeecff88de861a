//! Memory that is mapped into this process, and unmapped when its owner is dropped.

use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::mm::munmap;

/// A mapping.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone (see `of`), and to no thread.
unsafe impl Send for Mapped {}
// SAFETY: as above; a shared borrow only reads or executes it.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Takes over a mapping of `size` bytes; `None` if it lies at address 0.
    ///
    /// # Safety
    /// It is mapped whole and has no other owner. It is readable for [`Self::bytes`], and writable for
    /// [`Self::bytes_mut`]. Nothing else writes to it while this value is borrowed.
    pub(crate) unsafe fn of(start: *mut c_void, size: usize) -> Option<Self> {
        Some(Self { start: NonNull::new(start.cast())?, size })
    }

    pub(crate) fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped with this size for as long as `self` lives; nothing writes to it while it is
        // borrowed, see `of`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped with this size (see `of`), and unmapped only here.
        let done = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        debug_assert!(done.is_ok(), "a mapping of ours can be unmapped");
    }
}

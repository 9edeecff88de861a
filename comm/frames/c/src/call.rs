//! The boundary to C: null checks, the text of the last error, and no panic beyond it.

use core::ffi::{CStr, c_char, c_int};
use std::cell::RefCell;
use std::ffi::CString;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Error;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps an error's text for this thread.
pub(crate) fn keep(code: Error, error: &impl Display) -> Error {
    let text = CString::new(error.to_string()).unwrap_or_default();
    LAST.with(|last| last.replace(text));
    code
}

/// The text that was kept last; valid until the next error of this thread.
pub(crate) fn last() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Makes a call.
pub(crate) fn call(work: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Error::Panic));
    done.unwrap_or_else(|error| error as c_int)
}

/// Makes a handle and gives it to the caller.
///
/// # Safety
/// `to` must be null or writable.
pub(crate) unsafe fn hand_over<T>(
    to: *mut *mut T,
    make: impl FnOnce() -> Result<T, Error>,
) -> c_int {
    call(|| {
        if to.is_null() {
            return Err(Error::Null);
        }
        let handle = Box::into_raw(Box::new(make()?));
        // SAFETY: not null, and the caller promises room for a pointer.
        unsafe { to.write(handle) };
        Ok(0)
    })
}

/// Frees a handle.
///
/// # Safety
/// `handle` must be null or come from [`hand_over`], and not be used again.
pub(crate) unsafe fn free_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the handle was made by Box::into_raw, and the caller gives it up.
        let handle = unsafe { Box::from_raw(handle) };
        let _dropped = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// A text of the caller.
///
/// # Safety
/// `from` must be null or a text that ends in a zero, and live as long as what is returned.
pub(crate) unsafe fn text<'t>(from: *const c_char) -> Result<&'t str, Error> {
    if from.is_null() {
        return Err(Error::Null);
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| Error::Value)
}

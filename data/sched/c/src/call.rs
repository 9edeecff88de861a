//! The boundary to C: null checks, and no panic beyond it.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::types::Error;

/// A handle that a panic makes useless.
pub(crate) trait Breakable {
    /// Whether a call has panicked.
    fn broken(&self) -> bool;
    /// Records that one has.
    fn set_broken(&mut self);
}

fn code(done: Result<c_int, Error>) -> c_int {
    done.unwrap_or_else(|error| error as c_int)
}

/// Calls a function with a handle that it may change.
///
/// # Safety
/// `handle` must be null or a live handle that no other thread uses now.
pub(crate) unsafe fn answer<T: Breakable>(
    handle: *mut T,
    call: impl FnOnce(&mut T) -> Result<c_int, Error>,
) -> c_int {
    // SAFETY: null is checked by as_mut; the rest is the caller's promise.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return Error::Null as c_int };
    if handle.broken() {
        return Error::Panic as c_int;
    }
    match catch_unwind(AssertUnwindSafe(|| call(handle))) {
        Ok(done) => code(done),
        Err(_) => {
            handle.set_broken();
            Error::Panic as c_int
        }
    }
}

/// Calls a function with a handle that it does not change.
///
/// # Safety
/// `handle` must be null or a live handle that no other thread changes now.
pub(crate) unsafe fn shared<T: Breakable>(
    handle: *const T,
    call: impl FnOnce(&T) -> Result<c_int, Error>,
) -> c_int {
    // SAFETY: null is checked by as_ref; the rest is the caller's promise.
    let Some(handle) = (unsafe { handle.as_ref() }) else { return Error::Null as c_int };
    if handle.broken() {
        return Error::Panic as c_int;
    }
    catch_unwind(AssertUnwindSafe(|| call(handle))).map_or(Error::Panic as c_int, code)
}

/// Makes a handle and gives it to the caller.
///
/// # Safety
/// `to` must be null or writable.
pub(crate) unsafe fn hand_over<T>(
    to: *mut *mut T,
    make: impl FnOnce() -> Result<T, Error>,
) -> c_int {
    if to.is_null() {
        return Error::Null as c_int;
    }
    let made = catch_unwind(AssertUnwindSafe(|| make().map(Box::new)));
    match made.unwrap_or(Err(Error::Panic)) {
        Ok(handle) => {
            // SAFETY: not null, and the caller promises room for a pointer.
            unsafe { to.write(Box::into_raw(handle)) };
            0
        }
        Err(error) => error as c_int,
    }
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

/// # Safety
/// `from` must be null or point to a `T` of the C caller.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Result<T, Error> {
    // SAFETY: null is checked by as_ref; the rest is the caller's promise.
    unsafe { from.as_ref() }.copied().ok_or(Error::Null)
}

/// # Safety
/// `to` must be null or have room for a `T`.
pub(crate) unsafe fn write<T>(to: *mut T, value: T) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::Null);
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes the value unless `to` is null.
///
/// # Safety
/// `to` must be null or have room for a `T`.
pub(crate) unsafe fn write_if<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { to.write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;
    use selvedge_data_sched::{Discipline, Scheduler};

    #[test]
    fn a_panic_ends_here_and_breaks_the_handle() {
        let sched = Scheduler::new(Discipline::Dwcs);
        let mut handle = Handle { sched, nodes: 0, present: Vec::new(), broken: false };
        // SAFETY: the handle lives, and no other thread knows it.
        let answers = unsafe {
            let panicked = answer(&raw mut handle, |_| panic!("a bug"));
            [panicked, answer(&raw mut handle, |_| Ok(0)), shared(&raw const handle, |_| Ok(0))]
        };
        assert_eq!(answers, [Error::Panic as c_int; 3]);
    }
}

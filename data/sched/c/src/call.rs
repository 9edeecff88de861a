//! The boundary to C: null checks, and no panic beyond it.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Handle;
use crate::types::Error;

fn code(done: Result<c_int, Error>) -> c_int {
    done.unwrap_or_else(|error| error as c_int)
}

/// Calls a function with a handle that it may change.
///
/// # Safety
/// `sched` must be null or a live handle that no other thread uses now.
pub(crate) unsafe fn answer(
    sched: *mut Handle,
    call: impl FnOnce(&mut Handle) -> Result<c_int, Error>,
) -> c_int {
    // SAFETY: null is checked by as_mut; the rest is the caller's promise.
    let Some(handle) = (unsafe { sched.as_mut() }) else { return Error::Null as c_int };
    if handle.broken {
        return Error::Panic as c_int;
    }
    match catch_unwind(AssertUnwindSafe(|| call(handle))) {
        Ok(done) => code(done),
        Err(_) => {
            handle.broken = true;
            Error::Panic as c_int
        }
    }
}

/// Calls a function with a handle that it does not change.
///
/// # Safety
/// `sched` must be null or a live handle that no other thread changes now.
pub(crate) unsafe fn shared(
    sched: *const Handle,
    call: impl FnOnce(&Handle) -> Result<c_int, Error>,
) -> c_int {
    // SAFETY: null is checked by as_ref; the rest is the caller's promise.
    let Some(handle) = (unsafe { sched.as_ref() }) else { return Error::Null as c_int };
    if handle.broken {
        return Error::Panic as c_int;
    }
    catch_unwind(AssertUnwindSafe(|| call(handle))).map_or(Error::Panic as c_int, code)
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

//! The scheduler and its aggregates for C: opaque handles, integers with their unit in the name, errors by return code. The
//! header `include/selvedge_sched.h` is written by hand; the tests keep it and this file in agreement.
//!
//! C calls this crate, which calls [`selvedge_sched`]. Pointers can only be checked for null. Streams and
//! heads are checked before the call, so that no misuse panics. If the library panics all the same, the panic
//! stops here: the call returns [`Error::Panic`], and so do all later ones on that handle, whose state is not
//! to be trusted.

mod aggregate;
mod call;
mod make;
mod types;

use core::ffi::{c_char, c_int};

use selvedge_data_sched::{Head, Scheduler, StreamIndex, Verdict};
use selvedge_units::{Bytes, Instant};

pub use aggregate::*;
use call::{Breakable, answer, read, shared, write, write_if};
pub use make::{selvedge_sched_free, selvedge_sched_new, selvedge_sched_new_tree};
pub use types::{
    Contract, Counters, Error, Expiry, HeadFrame, NONE, Node, Served, StreamletCounts,
};

/// A scheduler and what is needed to check a call before it is made.
#[derive(Debug)]
pub struct Handle {
    sched: Scheduler,
    /// The number of nodes in its tree.
    nodes: u32,
    /// Which indexes are streams.
    present: Vec<bool>,
    /// A call has panicked.
    broken: bool,
}

impl Breakable for Handle {
    fn broken(&self) -> bool {
        self.broken
    }

    fn set_broken(&mut self) {
        self.broken = true;
    }
}

impl Handle {
    fn stream(&self, stream: u32) -> Result<StreamIndex, Error> {
        match self.present.get(stream as usize) {
            Some(true) => Ok(StreamIndex(stream)),
            _ => Err(Error::Stream),
        }
    }

    /// The index of a stream that has a head.
    fn headed(&self, stream: u32) -> Result<StreamIndex, Error> {
        let s = self.stream(stream)?;
        if self.sched.head_deadline(s).is_some() { Ok(s) } else { Err(Error::Head) }
    }
}

/// The most streams that one block holds.
const BLOCK_MAX: usize = 64;

fn frame(head: HeadFrame) -> Head {
    Head {
        deadline: (head.deadline_ns != NONE).then_some(Instant(head.deadline_ns)),
        size: Bytes(head.size_bytes),
        ..Head::arrived(Instant(head.arrival_ns))
    }
}

/// Adds a stream.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_add(
    sched: *mut Handle,
    contract: *const Contract,
    stream: *mut u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(sched, |handle| {
            let contract = read(contract)?.checked(handle.nodes)?;
            if stream.is_null() {
                return Err(Error::Null);
            }
            let added = handle.sched.add(&contract).0;
            let place = added as usize;
            if place == handle.present.len() {
                handle.present.push(true);
            } else {
                handle.present[place] = true;
            }
            write(stream, added)?;
            Ok(0)
        })
    }
}

/// Removes a stream.
///
/// # Safety
/// `sched` must be null or a scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_remove(sched: *mut Handle, stream: u32) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(sched, |handle| {
            let s = handle.stream(stream)?;
            handle.sched.remove(s);
            handle.present[stream as usize] = false;
            Ok(0)
        })
    }
}

/// Enqueues a stream's next head.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_push_head(
    sched: *mut Handle,
    stream: u32,
    head: *const HeadFrame,
    deadline_ns: *mut u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(sched, |handle| {
            let head = read(head)?;
            let s = handle.stream(stream)?;
            if handle.sched.head_deadline(s).is_some() {
                return Err(Error::Head);
            }
            write_if(deadline_ns, handle.sched.enqueue_head(s, frame(head)).0);
            Ok(0)
        })
    }
}

/// The next frame whose deadline has come.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_poll_expired(
    sched: *mut Handle,
    now_ns: u64,
    expiry: *mut Expiry,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(sched, |handle| {
            if expiry.is_null() {
                return Err(Error::Null);
            }
            let Some(missed) = handle.sched.poll_expired(Instant(now_ns)) else { return Ok(0) };
            let (dropped, next_ns) = match missed.verdict {
                Verdict::Dropped => (1, NONE),
                Verdict::Kept { deadline } => (0, deadline.0),
            };
            let record = Expiry {
                deadline_ns: missed.deadline.0,
                next_ns,
                misses: missed.misses,
                stream: missed.stream.0,
                dropped,
                violation: missed.violation.into(),
            };
            write(expiry, record)?;
            Ok(1)
        })
    }
}

/// The stream whose head goes first.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_choose(
    sched: *const Handle,
    now_ns: u64,
    stream: *mut u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        shared(sched, |handle| match handle.sched.choose(Instant(now_ns)) {
            Some(chosen) => write(stream, chosen.0).map(|()| 1),
            None => Ok(0),
        })
    }
}

/// Serves a stream's head.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_serve(
    sched: *mut Handle,
    stream: u32,
    served: *mut Served,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(sched, |handle| {
            let s = handle.headed(stream)?;
            let frame = handle.sched.dequeue(s);
            write_if(served, Served { deadline_ns: frame.deadline.0, late: frame.late.into() });
            Ok(0)
        })
    }
}

/// Serves a stream's head and enqueues the next one.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_serve_and_push(
    sched: *mut Handle,
    stream: u32,
    next: *const HeadFrame,
    served: *mut Served,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(sched, |handle| {
            let next = frame(read(next)?);
            let s = handle.headed(stream)?;
            let frame = handle.sched.dequeue_and_enqueue(s, next);
            write_if(served, Served { deadline_ns: frame.deadline.0, late: frame.late.into() });
            Ok(0)
        })
    }
}

/// The streams whose heads go first, in order.
///
/// # Safety
/// Pointers must be null or as the header states; `streams` has room for `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_choose_block(
    sched: *mut Handle,
    streams: *mut u32,
    capacity: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(sched, |handle| {
            if streams.is_null() {
                return Err(Error::Null);
            }
            let mut block = [StreamIndex(0); BLOCK_MAX];
            let len = handle.sched.choose_block(&mut block[..capacity.min(BLOCK_MAX)]);
            for (n, chosen) in block[..len].iter().enumerate() {
                write(streams.wrapping_add(n), chosen.0)?;
            }
            Ok(len as c_int)
        })
    }
}

/// Drops a stream's head.
///
/// # Safety
/// `sched` must be null or a scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_forfeit(sched: *mut Handle, stream: u32) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(sched, |handle| {
            let s = handle.headed(stream)?;
            Ok(handle.sched.drop_head(s).into())
        })
    }
}

/// The deadline of a stream's head.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_head_deadline(
    sched: *const Handle,
    stream: u32,
    deadline_ns: *mut u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        shared(sched, |handle| {
            let s = handle.stream(stream)?;
            let Some(deadline) = handle.sched.head_deadline(s) else { return Ok(0) };
            write_if(deadline_ns, deadline.0);
            Ok(1)
        })
    }
}

/// A stream's counters.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_counters(
    sched: *const Handle,
    stream: u32,
    counters: *mut Counters,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        shared(sched, |handle| {
            let counted = handle.sched.counters(handle.stream(stream)?);
            write(counters, counted.into()).map(|()| 0)
        })
    }
}

/// The earliest instant at which the state changes without a call.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_next_event(
    sched: *const Handle,
    now_ns: u64,
    at_ns: *mut u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        shared(sched, |handle| match handle.sched.next_event(Instant(now_ns)) {
            Some(at) => write(at_ns, at.0).map(|()| 1),
            None => Ok(0),
        })
    }
}

/// The meaning of a return value.
#[unsafe(no_mangle)]
pub extern "C" fn selvedge_error_text(code: c_int) -> *const c_char {
    types::text(code).as_ptr()
}

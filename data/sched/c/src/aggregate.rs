//! Aggregation for C: many streamlets in one stream of a scheduler, in sets that share it by weight. The
//! caller's queues hold the frames; sets, streamlets and heads are checked before each call.

use core::ffi::c_int;

use selvedge_data_sched::aggregate::{Aggregate, SetError, SetIndex, StreamletIndex};
use selvedge_units::Bytes;

use crate::call::{Breakable, answer, free_handle, hand_over, shared, write};
use crate::types::{Error, StreamletCounts};

/// An aggregate.
#[derive(Debug)]
pub struct AggregateHandle {
    aggregate: Aggregate,
    /// A call has panicked.
    broken: bool,
}

impl Breakable for AggregateHandle {
    fn broken(&self) -> bool {
        self.broken
    }

    fn set_broken(&mut self) {
        self.broken = true;
    }
}

impl AggregateHandle {
    fn set(&self, set: u32) -> Result<SetIndex, Error> {
        let index = u8::try_from(set).map(SetIndex).map_err(|_| Error::Set)?;
        if self.aggregate.has_set(index) { Ok(index) } else { Err(Error::Set) }
    }

    fn streamlet(&self, streamlet: u32) -> Result<StreamletIndex, Error> {
        let index = StreamletIndex(streamlet);
        if self.aggregate.has_streamlet(index) { Ok(index) } else { Err(Error::Stream) }
    }

    fn headed(&self) -> Result<(), Error> {
        self.aggregate.head().map(drop).ok_or(Error::Head)
    }
}

/// An aggregate without sets.
///
/// # Safety
/// `aggregate` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_new(aggregate: *mut *mut AggregateHandle) -> c_int {
    let make = || Ok(AggregateHandle { aggregate: Aggregate::new(), broken: false });
    // SAFETY: passed on from the caller.
    unsafe { hand_over(aggregate, make) }
}

/// Frees an aggregate.
///
/// # Safety
/// `aggregate` must be null or come from [`selvedge_aggregate_new`], and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_free(aggregate: *mut AggregateHandle) {
    // SAFETY: passed on from the caller.
    unsafe { free_handle(aggregate) }
}

/// Adds a set.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_add_set(
    aggregate: *mut AggregateHandle,
    weight: u16,
    set: *mut u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            if set.is_null() {
                return Err(Error::Null);
            }
            let added = handle.aggregate.add_set(weight).map_err(|error| match error {
                SetError::Weightless => Error::Value,
                SetError::TooMany | SetError::Measure(_) => Error::Set,
            })?;
            write(set, u32::from(added.0))?;
            Ok(0)
        })
    }
}

/// Removes a set without streamlets.
///
/// # Safety
/// `aggregate` must be null or an aggregate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_remove_set(
    aggregate: *mut AggregateHandle,
    set: u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            let set = handle.set(set)?;
            if handle.aggregate.set_streamlets(set) > 0 {
                return Err(Error::Set);
            }
            handle.aggregate.remove_set(set);
            Ok(0)
        })
    }
}

/// Adds a streamlet to a set.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_add(
    aggregate: *mut AggregateHandle,
    set: u32,
    streamlet: *mut u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            let set = handle.set(set)?;
            if streamlet.is_null() {
                return Err(Error::Null);
            }
            write(streamlet, handle.aggregate.add(set).0)?;
            Ok(0)
        })
    }
}

/// Removes a streamlet; whether its frame was the head.
///
/// # Safety
/// `aggregate` must be null or an aggregate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_remove(
    aggregate: *mut AggregateHandle,
    streamlet: u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            let streamlet = handle.streamlet(streamlet)?;
            Ok(c_int::from(handle.aggregate.remove(streamlet).was_head))
        })
    }
}

/// Counts a frame that came.
///
/// # Safety
/// `aggregate` must be null or an aggregate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_arrive(
    aggregate: *mut AggregateHandle,
    streamlet: u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            let streamlet = handle.streamlet(streamlet)?;
            handle.aggregate.arrive(streamlet);
            Ok(0)
        })
    }
}

/// Chooses the streamlet whose frame is the next head.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_promote_head(
    aggregate: *mut AggregateHandle,
    streamlet: *mut u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            if streamlet.is_null() {
                return Err(Error::Null);
            }
            if handle.headed().is_ok() {
                return Err(Error::Head);
            }
            let Some(head) = handle.aggregate.promote_head() else { return Ok(0) };
            write(streamlet, head.0)?;
            Ok(1)
        })
    }
}

/// Counts the head as sent.
///
/// # Safety
/// `aggregate` must be null or an aggregate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_sent(
    aggregate: *mut AggregateHandle,
    size_bytes: u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            handle.headed()?;
            handle.aggregate.sent(Bytes(size_bytes));
            Ok(0)
        })
    }
}

/// Counts the head as dropped.
///
/// # Safety
/// `aggregate` must be null or an aggregate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_dropped(aggregate: *mut AggregateHandle) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            handle.headed()?;
            handle.aggregate.dropped();
            Ok(0)
        })
    }
}

/// Counts a waiting frame as dropped.
///
/// # Safety
/// `aggregate` must be null or an aggregate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_drop_waiting(
    aggregate: *mut AggregateHandle,
    streamlet: u32,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        answer(aggregate, |handle| {
            let streamlet = handle.streamlet(streamlet)?;
            if handle.aggregate.waiting(streamlet) == 0 {
                return Err(Error::Head);
            }
            handle.aggregate.drop_waiting(streamlet);
            Ok(0)
        })
    }
}

/// Reads a streamlet's counts.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_streamlet_counts(
    aggregate: *const AggregateHandle,
    streamlet: u32,
    counts: *mut StreamletCounts,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        shared(aggregate, |handle| {
            let streamlet = handle.streamlet(streamlet)?;
            write(counts, handle.aggregate.streamlet_tally(streamlet).into())?;
            Ok(0)
        })
    }
}

/// Reads a set's counts.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_set_counts(
    aggregate: *const AggregateHandle,
    set: u32,
    counts: *mut StreamletCounts,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        shared(aggregate, |handle| {
            let set = handle.set(set)?;
            write(counts, handle.aggregate.set_tally(set).into())?;
            Ok(0)
        })
    }
}

/// Reads the delay bound of a set, in turns.
///
/// # Safety
/// Pointers must be null or as the header states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_aggregate_turns(
    aggregate: *const AggregateHandle,
    set: u32,
    turns: *mut u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        shared(aggregate, |handle| {
            let set = handle.set(set)?;
            write(turns, handle.aggregate.turns(set).ok_or(Error::Set)?)?;
            Ok(0)
        })
    }
}

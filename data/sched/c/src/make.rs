//! Making and freeing a scheduler: from a discipline's name, or from a tree of weights.

use core::ffi::{CStr, c_char, c_int};

use selvedge_data_sched::{Discipline, Scheduler, Tree};

use crate::Handle;
use crate::call::{free_handle, hand_over};
use crate::types::{Error, Node, tree};

/// A scheduler without streams, of the discipline with this name.
///
/// # Safety
/// `discipline` must be null or a C string, `sched` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_new(
    discipline: *const c_char,
    sched: *mut *mut Handle,
) -> c_int {
    let make = || {
        if discipline.is_null() {
            return Err(Error::Null);
        }
        // SAFETY: not null, and the caller promises a string that ends with a null byte.
        let name = unsafe { CStr::from_ptr(discipline) };
        let discipline = name.to_str().ok().and_then(Discipline::from_name);
        let sched = Scheduler::new(discipline.ok_or(Error::Discipline)?);
        Ok(Handle { sched, nodes: 0, present: Vec::new(), broken: false })
    };
    // SAFETY: passed on from the caller.
    unsafe { hand_over(sched, make) }
}

/// A scheduler without streams that shares a link by a tree of weights (`hwfq`).
///
/// # Safety
/// `nodes` must be null or point to `count` nodes, `sched` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_new_tree(
    nodes: *const Node,
    count: usize,
    remap_ns: u64,
    sched: *mut *mut Handle,
) -> c_int {
    let make = || {
        let listed = match (nodes.is_null(), count) {
            (_, 0) => &[][..],
            (true, _) => return Err(Error::Null),
            (false, 1..=Tree::NODES_MAX) => {
                // SAFETY: not null, and the caller promises `count` nodes.
                unsafe { core::slice::from_raw_parts(nodes, count) }
            }
            _ => return Err(Error::Tree),
        };
        let tree = tree(listed, remap_ns)?;
        let (sched, nodes) = (Scheduler::with_tree(&tree), count as u32);
        Ok(Handle { sched, nodes, present: Vec::new(), broken: false })
    };
    // SAFETY: passed on from the caller.
    unsafe { hand_over(sched, make) }
}

/// Frees a scheduler.
///
/// # Safety
/// `sched` must be null or come from [`selvedge_sched_new`] or [`selvedge_sched_new_tree`], and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selvedge_sched_free(sched: *mut Handle) {
    // SAFETY: passed on from the caller.
    unsafe { free_handle(sched) }
}

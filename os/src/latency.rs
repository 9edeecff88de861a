//! Requests to the kernel to run a thread soon after it wakes: the engine keeps its promises at its wake-ups,
//! and needs little of the processor in all.
//!
//! Linux's fair class (EEVDF) lets a thread request a shorter slice (since 6.12). It then has earlier virtual
//! deadlines and overtakes threads with long slices. That needs no privilege; a better nice value does, and
//! is used where it is granted. Real-time classes are left to the coprocessor placement.

use crate::sched::set_attributes;

/// The shortest slice that the kernel grants, in nanoseconds.
const SLICE_NANOS: u64 = 100_000;
/// Requested where it is allowed.
const NICE: i32 = -10;

/// The settings that the kernel granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeLatency {
    /// A short slice and a better nice value.
    Nice,
    /// A short slice.
    ShortSlice,
    /// Nothing: an older kernel, or a sandbox.
    None,
}

/// Requests the settings for this thread; never fails, only grants less.
pub fn ask() -> WakeLatency {
    if set(NICE) {
        WakeLatency::Nice
    } else if set(0) {
        WakeLatency::ShortSlice
    } else {
        WakeLatency::None
    }
}

fn set(nice: i32) -> bool {
    let fill = |attributes: &mut libc::sched_attr| {
        (attributes.sched_nice, attributes.sched_runtime) = (nice, SLICE_NANOS);
    };
    set_attributes(0, libc::SCHED_OTHER, fill).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_is_in_force() {
        // On a thread of its own, so that the test runner keeps its niceness.
        std::thread::spawn(|| {
            let granted = ask();
            // SAFETY: no pointers; 0 means this thread.
            let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            assert_eq!(nice == NICE, granted == WakeLatency::Nice);
        })
        .join()
        .unwrap();
    }
}

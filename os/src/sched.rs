//! Scheduling classes of threads, by the calls that rustix lacks. In both, thread 0 is the caller.

use std::io;

use selvedge_units::Duration;

use crate::check;

/// Puts a thread into a class, such as `SCHED_FIFO`, with this priority.
pub fn set_class(thread: i32, policy: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads `parameters`, which lives through the call.
    check(unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) })
}

/// Puts a thread into a class with the attributes that `fill` writes. Allocates nothing.
pub fn set_attributes(
    thread: i32,
    policy: i32,
    fill: impl FnOnce(&mut libc::sched_attr),
) -> io::Result<()> {
    // SAFETY: `sched_attr` is plain data, for which all bytes zero are a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = policy as u32;
    fill(&mut attributes);
    let flags: libc::c_uint = 0;
    // SAFETY: the kernel reads `size` bytes of `attributes`, which lives through the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, flags) })
}

/// Reserves `service` of each `period` for a thread by `SCHED_DEADLINE`. Its forks start in the ordinary class.
///
/// # Errors
/// `EPERM` without the right, and for a thread that is pinned to a part of its scheduling domain; `EBUSY` if the
/// kernel has promised too much already; `EINVAL` for times that it does not accept (a service of less than 1024 ns,
/// a period of less than 100 us or more than 4 s).
pub fn reserve(thread: i32, period: Duration, service: Duration) -> io::Result<()> {
    set_attributes(thread, libc::SCHED_DEADLINE, |attributes| {
        attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        attributes.sched_runtime = service.0;
        attributes.sched_deadline = period.0;
        attributes.sched_period = period.0;
    })
}

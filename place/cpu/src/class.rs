//! Linux's scheduling classes, as far as they are used here. The only unsafe code of this crate.

use std::io;

use rustix::process::{Pid, geteuid};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
pub use selvedge_os::sched::reserve;
use selvedge_os::sched::set_class;
use selvedge_units::Duration;

/// A thread's or process's number; 0 is the caller.
pub type Tid = i32;

/// A class, and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// SCHED_FIFO at this priority, 1 to 99.
    Fifo(i32),
    /// SCHED_OTHER: the class of programs that request no other.
    Other,
    /// SCHED_IDLE: only time that no other thread uses.
    Idle,
}

/// Puts a thread into a class.
///
/// # Errors
/// `EPERM` without the right, `ESRCH` if the thread is gone.
pub fn set(thread: Tid, class: Class) -> io::Result<()> {
    let (policy, priority) = match class {
        Class::Fifo(priority) => (libc::SCHED_FIFO, priority),
        Class::Other => (libc::SCHED_OTHER, 0),
        Class::Idle => (libc::SCHED_IDLE, 0),
    };
    set_class(thread, policy, priority)
}

/// The policy that a thread has, such as `libc::SCHED_FIFO`.
///
/// # Errors
/// `ESRCH` if the thread is gone.
#[allow(unsafe_code)]
pub fn policy(thread: Tid) -> io::Result<i32> {
    // SAFETY: no pointers.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    check(policy.min(0)).map(|()| policy)
}

/// Confines a thread, and all that it will start, to one processor.
///
/// # Errors
/// `ESRCH` if the thread is gone, `EINVAL` if there is no such processor for it.
pub fn confine(thread: Tid, cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(Pid::from_raw(thread), &set)?)
}

/// Confines all threads of a process, and all that they will start, to one processor. Threads that end
/// meanwhile are left out.
pub fn confine_process(process: Tid, cpu: usize) {
    // A thread that starts meanwhile has its starter's mask, and is found at the second look.
    for _ in 0..2 {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        for thread in threads.flatten() {
            if let Some(Ok(thread)) = thread.file_name().to_str().map(str::parse) {
                // The thread is gone, or another program confined it elsewhere: it stays where it is.
                let _ = confine(thread, cpu);
            }
        }
    }
}

/// The processors that this process may use, lowest first.
#[must_use]
pub fn processors() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// The target whose processor time is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockTarget {
    /// All threads of a process, those that have ended included.
    Process(Tid),
    /// One thread of this process.
    Thread(Tid),
}

/// The processor time that a target has used; `None` if it is gone.
#[must_use]
#[allow(unsafe_code)]
pub fn time_of(whose: ClockTarget) -> Option<Duration> {
    // The numbers of these clocks are part of Linux's interface (CPUCLOCK_SCHED, per thread).
    let id = match whose {
        ClockTarget::Process(pid) => !pid << 3 | 2,
        ClockTarget::Thread(tid) => !tid << 3 | 6,
    };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes into `time`, which lives through the call.
    let done = unsafe { libc::clock_gettime(id, &raw mut time) };
    let nanos = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
    (done == 0).then_some(Duration(nanos))
}

/// This thread's number.
#[must_use]
pub fn this_thread() -> Tid {
    gettid().as_raw_nonzero().get()
}

/// This user's number.
#[must_use]
pub fn this_user() -> u32 {
    geteuid().as_raw()
}

/// Orphans among this process's descendants become its children: no process leaves a task by forking twice.
#[allow(unsafe_code)]
pub fn adopt_orphans() {
    // SAFETY: no pointers; fails on no kernel since 3.4.
    let _ = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1_u64, 0_u64, 0_u64, 0_u64) };
}

/// Sends a signal to a process.
///
/// # Errors
/// `ESRCH` if it is gone.
#[allow(unsafe_code)]
pub fn signal(pid: Tid, number: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::kill(pid, number) })
}

/// Puts a command's process into its class before it begins.
#[allow(unsafe_code)]
pub fn set_class_at_start(
    command: &mut std::process::Command,
    enter: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    use std::os::unix::process::CommandExt;
    // SAFETY: callers pass system calls only, which neither allocate nor lock.
    unsafe { command.pre_exec(enter) };
}

fn check(done: i32) -> io::Result<()> {
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_where_it_was_put() {
        let done = std::thread::spawn(|| {
            set(0, Class::Idle).unwrap();
            let idle = policy(0).unwrap();
            // Refused without the right, which changes nothing.
            let raised = set(0, Class::Fifo(1)).is_ok();
            (idle, raised, policy(0).unwrap())
        });
        let (idle, raised, last) = done.join().unwrap();
        assert_eq!(idle, libc::SCHED_IDLE);
        assert_eq!(last, if raised { libc::SCHED_FIFO } else { libc::SCHED_IDLE });
    }

    #[test]
    fn processor_time_grows_with_work_and_ends_with_the_process() {
        let me = ClockTarget::Thread(this_thread());
        let before = time_of(me).unwrap();
        while time_of(me).unwrap() <= before {}
        let pid = std::process::id().cast_signed();
        assert!(time_of(ClockTarget::Process(pid)).unwrap() >= time_of(me).unwrap());
        assert_eq!(time_of(ClockTarget::Process(i32::MAX - 1)), None);
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert_eq!(set(i32::MAX - 1, Class::Other).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(confine(0, usize::MAX).is_err());
        assert!(reserve(0, Duration(10), Duration(5)).is_err());
        assert!(!processors().is_empty());
    }
}

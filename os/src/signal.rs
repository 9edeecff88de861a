//! Real-time signals with a value, from this process to another. A descriptor refers to the target, so that
//! no later process with its number can receive them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use selvedge_units::Duration;

use crate::check;
use crate::clock::timespec;

/// `siginfo_t` of a queued signal, as the kernel lays it out.
#[repr(C, align(8))]
struct Queued {
    number: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    pid: i32,
    uid: u32,
    value: u64,
    _rest: [u64; 12],
}

const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());

/// Whether the signal carries a value.
#[must_use]
pub fn is_real_time(number: i32) -> bool {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number)
}

/// A process; the descriptor never refers to a later one with the same number.
///
/// # Errors
/// If no process has this number.
pub fn process(pid: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Queues a signal; 0 only checks whether that is allowed.
///
/// # Errors
/// If the process has ended, belongs to another user, or has as many waiting signals as it may.
pub fn send(to: impl AsFd, number: i32, value: u64) -> io::Result<()> {
    let info = Queued {
        number,
        errno: 0,
        code: libc::SI_QUEUE,
        _pad: 0,
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        uid: rustix::process::getuid().as_raw(),
        value,
        _rest: [0; 12],
    };
    // SAFETY: the descriptor is open, and `info` is as large as the kernel reads.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            to.as_fd().as_raw_fd(),
            number,
            std::ptr::from_ref(&info),
            0,
        )
    })
}

/// Prevents a signal from ending or interrupting this thread, so that it can be waited for.
///
/// # Errors
/// If there is no such signal.
pub fn block(number: i32) -> io::Result<()> {
    let set = only(number);
    // SAFETY: `set` is a signal set; the old one is not requested.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for a blocked signal; returns its value.
pub fn wait(number: i32, most: Duration) -> Option<u64> {
    let set = only(number);
    let limit = timespec(most.0);
    let limit = libc::timespec { tv_sec: limit.tv_sec, tv_nsec: limit.tv_nsec };
    let mut info =
        Queued { number: 0, errno: 0, code: 0, _pad: 0, pid: 0, uid: 0, value: 0, _rest: [0; 12] };
    let into = (&raw mut info).cast::<libc::siginfo_t>();
    // SAFETY: all three are valid, and `info` is as large as a `siginfo_t`.
    let got = unsafe { libc::sigtimedwait(&raw const set, into, &raw const limit) };
    (got == number).then_some(info.value)
}

fn only(number: i32) -> libc::sigset_t {
    // SAFETY: a signal set is bits, of which all patterns are values; `number` was checked, or the
    // call refuses it and the set stays empty.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, number);
        set
    }
}

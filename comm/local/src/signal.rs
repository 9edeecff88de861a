//! Real-time signals with a value: to a process held by a descriptor, so that no other can get them by
//! having its number. The only unsafe code of this crate.
#![expect(unsafe_code, reason = "neither call has a safe wrapper")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use selvedge_os::clock::timespec;
use selvedge_units::Duration;

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

/// Whether a sink may ask for it.
pub fn is_real_time(number: i32) -> bool {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number)
}

/// The process at the other end of a socket: later ones of its number are others.
pub fn peer(pid: Pid) -> std::io::Result<OwnedFd> {
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Queues a signal; false if it can't be, such as when too many wait.
pub fn send(to: BorrowedFd<'_>, number: i32, value: u64) -> bool {
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
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            to.as_fd().as_raw_fd(),
            number,
            std::ptr::from_ref(&info),
            0,
        )
    };
    sent == 0
}

/// Keeps a signal from ending or interrupting this thread, so that it can be waited for.
pub fn block(number: i32) -> std::io::Result<()> {
    let set = only(number);
    // SAFETY: `set` is a signal set; the old one is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Waits for a signal that was blocked; its value.
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

//! Real-time signals with a value, to a process that is held by descriptor, so that another one
//! that gets its number later is never meant.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::ServiceError;

/// Whom to tell of events, and by which signal.
#[derive(Debug)]
pub struct Target {
    process: OwnedFd,
    signal: i32,
}

/// `siginfo_t` of a queued signal, with the padding that the kernel expects.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    pid: i32,
    uid: u32,
    value: u64,
    rest: [u64; 12],
}

const SI_QUEUE: i32 = -1;

impl Target {
    /// A process, and a signal from `SIGRTMIN` to `SIGRTMAX`.
    ///
    /// # Errors
    /// If there is no such process, or the signal carries no value.
    pub fn new(pid: u32, signal: i32) -> Result<Self, ServiceError> {
        let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
        if !(first..=last).contains(&signal) {
            return Err(ServiceError::Signal { given: signal, first, last });
        }
        // SAFETY: takes numbers only; what it gives is a descriptor of ours.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if opened < 0 {
            return Err(ServiceError::Process { pid, why: io::Error::last_os_error() });
        }
        // SAFETY: just opened, and nobody else's.
        let process = unsafe { OwnedFd::from_raw_fd(opened as i32) };
        let target = Self { process, signal };
        target.queue(0, None).map_err(|why| ServiceError::Process { pid, why })?;
        Ok(target)
    }

    /// Queues the signal with a value.
    ///
    /// # Errors
    /// If the process has ended, or has as many signals waiting as it may.
    pub fn send(&self, value: u64) -> io::Result<()> {
        self.queue(self.signal, Some(value))
    }

    fn queue(&self, signal: i32, value: Option<u64>) -> io::Result<()> {
        let info = Info {
            signal,
            errno: 0,
            code: SI_QUEUE,
            padding: 0,
            pid: std::process::id() as i32,
            // SAFETY: has no conditions.
            uid: unsafe { libc::getuid() },
            value: value.unwrap_or(0),
            rest: [0; 12],
        };
        let info: *const Info = if value.is_some() { &raw const info } else { std::ptr::null() };
        let process = self.process.as_raw_fd();
        // SAFETY: the kernel reads 128 bytes, which `Info` has, or nothing.
        let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, signal, info, 0) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

const _: () = assert!(size_of::<Info>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    static CAME: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    extern "C" fn note(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes a filled-in `siginfo_t`.
        let value = unsafe { (*info).si_value() };
        CAME.store(value.sival_ptr as u64, std::sync::atomic::Ordering::SeqCst);
    }

    #[test]
    fn a_value_arrives_with_the_signal() {
        let signal = libc::SIGRTMIN() + 3;
        // SAFETY: a handler for a signal that nothing else uses; it stores a number.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            action.sa_sigaction = note as *const () as usize;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        assert_eq!(done, 0);
        let target = Target::new(std::process::id(), signal).unwrap();
        target.send(0xfeed_0000_0001).unwrap();
        // Some thread of this process takes it, at the latest when it next runs.
        let began = std::time::Instant::now();
        while CAME.load(std::sync::atomic::Ordering::SeqCst) != 0xfeed_0000_0001 {
            assert!(began.elapsed().as_secs() < 60);
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_has_ended_is_sent_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let target = Target::new(child.id(), libc::SIGRTMAX());
        child.wait().unwrap();
        if let Ok(target) = target {
            assert!(target.send(1).is_err());
        }
    }

    #[test]
    fn what_carries_no_value_is_refused() {
        let error = Target::new(std::process::id(), libc::SIGTERM).unwrap_err();
        assert!(matches!(error, ServiceError::Signal { given: libc::SIGTERM, .. }));
        assert!(matches!(
            Target::new(u32::MAX >> 1, libc::SIGRTMIN()).unwrap_err(),
            ServiceError::Process { .. }
        ));
    }
}

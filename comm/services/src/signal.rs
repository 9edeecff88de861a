//! Real-time signals with a value. The target process is held by descriptor, so that a later
//! process with the same number never gets them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::Pid;
use selvedge_os::signal;

use crate::error::ServiceError;

/// The process that is notified of events, and the signal.
#[derive(Debug)]
pub struct Target {
    process: OwnedFd,
    number: i32,
}

impl Target {
    /// A process, and a signal from `SIGRTMIN` to `SIGRTMAX`.
    ///
    /// # Errors
    /// If there is no such process, or the signal carries no value.
    pub fn new(pid: u32, number: i32) -> Result<Self, ServiceError> {
        if !signal::is_real_time(number) {
            let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
            return Err(ServiceError::Signal { given: number, first, last });
        }
        let failed = |why| ServiceError::Process { pid, why };
        let none = || failed(io::ErrorKind::NotFound.into());
        let known = Pid::from_raw(pid.cast_signed()).ok_or_else(none)?;
        let process = signal::process(known).map_err(failed)?;
        signal::send(&process, 0, 0).map_err(failed)?;
        Ok(Self { process, number })
    }

    /// Queues the signal with a value.
    ///
    /// # Errors
    /// If the process has ended, or has as many signals waiting as it may.
    pub fn send(&self, value: u64) -> io::Result<()> {
        signal::send(&self.process, self.number, value)
    }
}

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

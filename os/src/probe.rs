//! The abilities of this machine, found by trying: each probe does one thing once, on threads, sockets and
//! memory of its own, and undoes it. For `selvedge doctor`.

mod cpu;
mod wire;

pub use cpu::{
    deadline, fifo, lateness, lock_memory, own_lateness, pin, sched_ext, shared_memory, wake_ups,
};
pub use wire::{af_xdp, gso, io_uring, sendmmsg, txtime};

/// The result, or the missing part.
pub type Outcome = Result<String, Unavailable>;

/// A feature that does not work here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The error.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

impl Unavailable {
    /// An error, and its remedy.
    #[must_use]
    pub fn new(why: impl ToString, remedy: &str) -> Self {
        Self { why: why.to_string(), remedy: remedy.to_owned() }
    }

    /// The system's last error.
    fn last(remedy: &str) -> Self {
        Self::new(std::io::Error::last_os_error(), remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_answers_and_leaves_the_thread_as_it_was() {
        // SAFETY: no pointers; 0 means this thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let probes = [
            deadline,
            fifo,
            lock_memory,
            pin,
            sched_ext,
            shared_memory,
            wake_ups,
            af_xdp,
            gso,
            io_uring,
            sendmmsg,
            txtime,
        ];
        for probe in probes {
            match probe() {
                Ok(found) => assert!(!found.is_empty()),
                Err(Unavailable { why, remedy }) => assert!(!why.is_empty() && !remedy.is_empty()),
            }
        }
        assert_eq!(policy(), before);
    }

    #[test]
    fn plain_sending_works_everywhere() {
        assert!(sendmmsg().is_ok());
        assert!(shared_memory().is_ok());
    }
}

//! What this machine can do, found out by doing it: each probe tries a thing once, on threads,
//! sockets and memory of its own, and undoes it. For `selvedge doctor`.

mod cpu;
mod wire;

pub use cpu::{deadline, fifo, lateness, lock_memory, pin, sched_ext, shared_memory, wake_ups};
pub use wire::{af_xdp, gso, io_uring, sendmmsg, txtime};

/// What was found, or what is missing.
pub type Outcome = Result<String, Unavailable>;

/// Something that does not work here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// What happened.
    pub why: String,
    /// What would help.
    pub remedy: String,
}

impl Unavailable {
    /// What happened, and what would help.
    #[must_use]
    pub fn new(why: impl ToString, remedy: &str) -> Self {
        Self { why: why.to_string(), remedy: remedy.to_owned() }
    }

    /// The system's last error as what happened.
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

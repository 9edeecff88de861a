//! Asking the kernel to leave the engine's thread alone: a core, no page faults, a real-time class.
//! What is refused is said, and done without.

use std::fmt;

use rustix::mm::{MlockAllFlags, mlockall};
use selvedge_os::clock::pin_to_core;
use selvedge_os::latency;

/// What the thread is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealtimeRequest {
    /// The core that it is to run on.
    pub core: Option<usize>,
    /// No page of the process may be taken away.
    pub lock: bool,
    /// The class that it is to run in.
    pub class: SchedClass,
}

/// A scheduling class of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedClass {
    /// `SCHED_FIFO`: runs until it sleeps, before all that is not real-time.
    #[default]
    Fifo,
    /// `SCHED_DEADLINE`: so many nanoseconds of every so many.
    Deadline {
        /// Nanoseconds that it may run.
        runtime: u64,
        /// Nanoseconds of a period.
        period: u64,
    },
    /// The class of everyone, with a short slice.
    Fair,
}

/// The priority that `SCHED_FIFO` is asked for: above ordinary real-time work, below the kernel's
/// own watchdogs and migrations.
const FIFO_PRIORITY: libc::c_int = 40;

/// What the thread got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealtimeGrant {
    got: Vec<String>,
    /// What was refused, with the reason.
    pub refused: Vec<String>,
}

impl fmt::Display for RealtimeGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.got.join(", "))?;
        if !self.refused.is_empty() {
            write!(f, "; without {}", self.refused.join(", "))?;
        }
        Ok(())
    }
}

/// Asks for this thread; never fails, only gets less.
#[must_use]
pub fn ask(realtime_request: RealtimeRequest) -> RealtimeGrant {
    let mut granted = RealtimeGrant { got: Vec::new(), refused: Vec::new() };
    if let Some(core) = realtime_request.core {
        let why = (!pin_to_core(core)).then(|| "the kernel refuses".to_owned());
        granted.note(format!("core {core}"), why);
    }
    if realtime_request.lock {
        let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE);
        let why = locked
            .err()
            .map(|error| format!("{error}; raise RLIMIT_MEMLOCK or grant CAP_IPC_LOCK"));
        granted.note("locked memory".into(), why);
    }
    let real_time = match realtime_request.class {
        SchedClass::Fair => false,
        SchedClass::Fifo => {
            let remedy = "raise RLIMIT_RTPRIO or grant CAP_SYS_NICE";
            granted.note(format!("SCHED_FIFO {FIFO_PRIORITY}"), refused(fifo(), remedy))
        }
        SchedClass::Deadline { runtime, period } => {
            let name = format!("SCHED_DEADLINE {} us of {} us", runtime / 1000, period / 1000);
            let remedy = "needs CAP_SYS_NICE, room on the cores, and no pinning to one";
            granted.note(name, refused(deadline(runtime, period), remedy))
        }
    };
    if !real_time {
        granted.note(format!("fair class ({:?})", latency::ask()), None);
    }
    granted
}

impl RealtimeGrant {
    /// Whether it was granted.
    fn note(&mut self, what: String, why_not: Option<String>) -> bool {
        match &why_not {
            None => self.got.push(what),
            Some(why) => self.refused.push(format!("{what} ({why})")),
        }
        why_not.is_none()
    }
}

fn fifo() -> bool {
    // SAFETY: a sched_param is plain integers, for which zero bytes are a value.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = FIFO_PRIORITY;
    // SAFETY: the pointer is good for the call; 0 means this thread.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    set == 0
}

fn deadline(runtime: u64, period: u64) -> bool {
    // SAFETY: `sched_attr` is plain data, for which all bytes zero are a value.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    attr.size = size_of::<libc::sched_attr>() as u32;
    attr.sched_policy = libc::SCHED_DEADLINE as u32;
    attr.sched_runtime = runtime;
    attr.sched_deadline = period;
    attr.sched_period = period;
    // SAFETY: the kernel reads `size` bytes of `attr`, which lives through the call.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    set == 0
}

/// Why the kernel's last call was not done, if it was not.
fn refused(done: bool, remedy: &str) -> Option<String> {
    (!done).then(|| format!("{}; {remedy}", std::io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_said_and_the_thread_runs_on() {
        let granted = std::thread::spawn(|| {
            ask(RealtimeRequest { core: Some(1 << 20), lock: false, class: SchedClass::Fair })
        })
        .join()
        .unwrap();
        assert_eq!(granted.refused.len(), 1, "{granted}");
        assert!(granted.to_string().contains("without core 1048576"), "{granted}");
        assert!(granted.to_string().contains("fair class"), "{granted}");
    }
}

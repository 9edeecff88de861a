//! Requests to the kernel for the engine's thread: a core, no page faults, a real-time class. Refused
//! requests are reported, and the thread runs without them.

use std::{fmt, io};

use rustix::mm::{MlockAllFlags, mlockall};
use selvedge_os::clock::pin_to_core;
use selvedge_os::latency;
use selvedge_os::sched::{reserve, set_class};
use selvedge_units::Duration;

/// The settings requested for the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealtimeRequest {
    /// The core on which it must run.
    pub core: Option<usize>,
    /// No page of the process may be taken away.
    pub lock: bool,
    /// The class in which it must run.
    pub class: SchedClass,
}

/// A scheduling class of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedClass {
    /// `SCHED_FIFO`: runs until it sleeps, before all threads that are not real-time.
    #[default]
    Fifo,
    /// `SCHED_DEADLINE`: `runtime` nanoseconds of every `period`.
    Deadline {
        /// Nanoseconds that it may run.
        runtime: u64,
        /// Nanoseconds of a period.
        period: u64,
    },
    /// The ordinary class, with a short slice.
    Fair,
}

/// The priority requested for `SCHED_FIFO`: above ordinary real-time work, below the kernel's own watchdogs
/// and migrations.
const FIFO_PRIORITY: libc::c_int = 40;

/// The settings that the thread got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealtimeGrant {
    got: Vec<String>,
    /// The refused settings, with the reasons.
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

/// Requests the settings for this thread; never fails, only grants less.
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
            let fifo = set_class(0, libc::SCHED_FIFO, FIFO_PRIORITY);
            granted.note(format!("SCHED_FIFO {FIFO_PRIORITY}"), refused(fifo, remedy))
        }
        SchedClass::Deadline { runtime, period } => {
            let name = format!("SCHED_DEADLINE {} us of {} us", runtime / 1000, period / 1000);
            let remedy = "needs CAP_SYS_NICE, room on the cores, and no pinning to one";
            granted.note(name, refused(reserve(0, Duration(period), Duration(runtime)), remedy))
        }
    };
    if !real_time {
        granted.note(format!("fair class ({:?})", latency::ask()), None);
    }
    granted
}

impl RealtimeGrant {
    /// Records a grant or a refusal; returns whether it was granted.
    fn note(&mut self, what: String, why_not: Option<String>) -> bool {
        match &why_not {
            None => self.got.push(what),
            Some(why) => self.refused.push(format!("{what} ({why})")),
        }
        why_not.is_none()
    }
}

/// Why the kernel refused, if it did.
fn refused(done: io::Result<()>, remedy: &str) -> Option<String> {
    done.err().map(|why| format!("{why}; {remedy}"))
}

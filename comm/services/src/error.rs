//! Why a service does not run, and what would help.

use std::io;
use std::path::PathBuf;

use selvedge_control_code::CodeError;
use selvedge_os_bpf::ProgramError;
use thiserror::Error;

use crate::catalog::Service;

/// Why a service was not started, or something else in the kernel was not loaded.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// Its programs were not loaded.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A place in the kernel that a kind of event hangs on is not there.
    #[error(
        "{what} needs the tracepoint {tracepoint}, which this kernel ({release}) has not; Linux \
         6.3 or later on x86-64 has all of them"
    )]
    NoTracepoint {
        /// The kind of event.
        what: String,
        /// Its tracepoint.
        tracepoint: &'static str,
        /// `uname -r`.
        release: String,
    },
    /// A service has no such kind.
    #[error("the service {service} has no events \"{kind}\"; it has {known}")]
    Kind {
        /// The service.
        service: Service,
        /// As it was asked for.
        kind: String,
        /// What there is.
        known: String,
    },
    /// The handler's source is wrong.
    #[error("{0}")]
    Source(#[from] CodeError),
    /// The kernel does not take the handler.
    #[error("the handler: {0}")]
    Handler(#[from] selvedge_os_jit::LoadError),
    /// The handler is being used without end.
    #[error("the handler that is to be replaced does not come to rest; start the service again")]
    Restless,
    /// Not a control group of version 2.
    #[error("{} is no control group of version 2: {why}; give a folder below /sys/fs/cgroup", .path.display())]
    Cgroup {
        /// As it was asked for.
        path: PathBuf,
        /// What is wrong with it.
        why: io::Error,
    },
    /// The kernel's process numbers are not those that this process knows.
    #[error(
        "process numbers here are those of a PID namespace, and the kernel's events have others; start \
         this outside of it (podman and docker: --pid=host)"
    )]
    PidNamespace,
    /// There is no such process.
    #[error("process {pid} can't be sent signals: {why}; give one that runs and is yours")]
    Process {
        /// As it was asked for.
        pid: u32,
        /// What the system says.
        why: io::Error,
    },
    /// No signal for values.
    #[error("signal {given} is no real-time signal; give one from {first} to {last}")]
    Signal {
        /// As it was asked for.
        given: i32,
        /// The first.
        first: i32,
        /// The last.
        last: i32,
    },
    /// A change makes no sense.
    #[error("{what} is refused: threads are 1 to 4194304, spans at most 2^63 - 1 ns")]
    Change {
        /// As it was asked for.
        what: String,
    },
    /// The service has no jobs.
    #[error("the service {service} knows no threads; use sched")]
    NoThreads {
        /// The service.
        service: Service,
    },
    /// The kernel has not yet taken what was posted before.
    #[error(
        "{waiting} posted calls wait for the kernel; post again after a tick, which has them done"
    )]
    Full {
        /// How many.
        waiting: u64,
    },
    /// A call of the system failed.
    #[error("{0}: {1}")]
    Call(&'static str, io::Error),
}

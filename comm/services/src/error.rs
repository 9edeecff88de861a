//! Why a service does not run, with a remedy.

use std::io;
use std::path::PathBuf;

use selvedge_control_code::CodeError;
use selvedge_os_bpf::ProgramError;
use thiserror::Error;

use crate::catalog::Service;

/// Why a service was not started, or something else in the kernel was not loaded.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The kernel did not load the programs.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The kernel lacks the tracepoint of a kind of event.
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
        /// The requested kind.
        kind: String,
        /// The kinds that exist.
        known: String,
    },
    /// The handler's source has an error.
    #[error("{0}")]
    Source(#[from] CodeError),
    /// The kernel refuses the handler.
    #[error("the handler: {0}")]
    Handler(#[from] selvedge_os_jit::LoadError),
    /// The handler is called without a pause in which it could be replaced.
    #[error("the handler that is to be replaced does not come to rest; start the service again")]
    Restless,
    /// The path is not a control group of version 2.
    #[error("{} is no control group of version 2: {why}; give a folder below /sys/fs/cgroup", .path.display())]
    Cgroup {
        /// The requested path.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
    /// The kernel's process numbers differ from those in this process's namespace.
    #[error(
        "process numbers here are those of a PID namespace, and the kernel's events have others; start \
         this outside of it (podman and docker: --pid=host)"
    )]
    PidNamespace,
    /// There is no such process.
    #[error("process {pid} can't be sent signals: {why}; give one that runs and is yours")]
    Process {
        /// The requested process.
        pid: u32,
        /// The system's error.
        why: io::Error,
    },
    /// The signal can't carry a value.
    #[error("signal {given} is no real-time signal; give one from {first} to {last}")]
    Signal {
        /// The requested signal.
        given: i32,
        /// The first valid signal.
        first: i32,
        /// The last valid signal.
        last: i32,
    },
    /// A change is invalid.
    #[error("{what} is refused: threads are 1 to 4194304, spans at most 2^63 - 1 ns")]
    Change {
        /// The requested change.
        what: String,
    },
    /// The service has no jobs.
    #[error("the service {service} knows no threads; use sched")]
    NoThreads {
        /// The service.
        service: Service,
    },
    /// The kernel has not yet read the changes that were posted before.
    #[error(
        "{waiting} posted calls wait for the kernel; post again after a tick, which has them done"
    )]
    Full {
        /// The number of changes that wait.
        waiting: u64,
    },
    /// A call of the system failed.
    #[error("{0}: {1}")]
    Call(&'static str, io::Error),
}

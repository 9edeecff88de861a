//! What calls cost, beside a bare system call and a bare socket; and how late events come to a program that shares
//! its processor with others that never sleep, without and with the scheduler's preference. Real processes:
//! the caller of these functions starts the other one, which runs [`peer`].

mod calls;
mod preference;

use std::process::{Child, Command, Stdio};

use selvedge_comm_call::{ClientError, RegisterError};
use selvedge_units::Duration;

use crate::median;

pub use self::calls::{CallCosts, calls};
pub use self::preference::{Deliveries, preference};

/// How long the other process may take for anything.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The other process can't be started.
    #[error("can't start the other process: {0}")]
    Start(#[source] std::io::Error),
    /// It ended, or does not answer.
    #[error("the other process is gone, or does not answer")]
    Gone,
    /// The service can't be called.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The service can't be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Sockets, threads, or rights.
    #[error("{0}")]
    System(String),
}

/// The other side: what it is to do stands before the first colon of the text.
pub fn peer(spec: &str) -> Result<(), BenchError> {
    match spec.split_once(':') {
        Some(("calls", rest)) => calls::peer(rest),
        Some(("preference", rest)) => preference::peer(rest),
        _ => Err(BenchError::System(format!("there is no such measurement: \"{spec}\""))),
    }
}

/// Whether a text is for [`peer`].
#[must_use]
pub fn is_ours(spec: &str) -> bool {
    spec.starts_with("calls:") || spec.starts_with("preference:")
}

/// The other process, ended when this is dropped.
struct ChildProcess(Child);

impl ChildProcess {
    fn start(mut command: Command) -> Result<Self, BenchError> {
        command.stdout(Stdio::piped());
        command.spawn().map(Self).map_err(BenchError::Start)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

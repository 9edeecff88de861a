//! A coprocessor that this process starts, and starts again if it dies.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use selvedge_control_config::LinkConfig;
use selvedge_data_sched::TreeNode;
use selvedge_units::Duration;

use crate::server::listens;

/// Why it could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No such program.
    #[error(
        "can't start \"{program}\": {why}; install it beside selvedge, or name it in SELVEDGE_COPROC"
    )]
    Start {
        /// The program.
        program: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// It ended at once.
    #[error("\"{program}\" ended with {status}; run it by hand to see why")]
    Ended {
        /// The program.
        program: String,
        /// Its exit status.
        status: String,
    },
    /// It started and does not listen.
    #[error("\"{program}\" does not listen at \"{at}\" after {after}")]
    Silent {
        /// The program.
        program: String,
        /// The path at which it should listen.
        at: String,
        /// How long the caller waited for it.
        after: Duration,
    },
}

/// The program, its arguments, and the process if it runs. Dropping it ends the process.
#[derive(Debug)]
pub struct Program {
    program: PathBuf,
    arguments: Vec<String>,
    socket: PathBuf,
    child: Option<Child>,
}

/// The path of selvedge-coproc: as in `SELVEDGE_COPROC`, beside this program, or on the path.
fn program() -> PathBuf {
    const NAME: &str = "selvedge-coproc";
    if let Some(named) = std::env::var_os("SELVEDGE_COPROC") {
        return named.into();
    }
    let beside = |folder: &std::path::Path| Some(folder.join(NAME)).filter(|path| path.is_file());
    let here = std::env::current_exe().ok().and_then(|path| {
        let folder = path.parent()?.to_owned();
        // Test programs lie one folder deeper.
        beside(&folder).or_else(|| beside(folder.parent()?))
    });
    here.unwrap_or_else(|| NAME.into())
}

impl Program {
    /// The program for this link, to listen at a path. More arguments follow the link's.
    #[must_use]
    pub fn new(link: &LinkConfig, socket: PathBuf, more: &[&str]) -> Self {
        let mut arguments: Vec<String> = [
            "--name",
            &link.name,
            "--rate",
            &format!("{} bit/s", link.rate.0),
            "--discipline",
            link.discipline.name(),
            "--burst",
            &format!("{} B", link.burst.0),
            "--mtu",
            &format!("{} B", link.mtu.0),
            "--send",
            link.sending.name(),
        ]
        .map(str::to_owned)
        .into();
        if !link.selection {
            arguments.push("--no-selection".into());
        }
        if let Some(catch_up) = link.catch_up {
            arguments.extend(["--catch-up".into(), format!("{} B", catch_up.0)]);
        }
        if let Some(queue) = link.queue {
            arguments.extend(["--queue".into(), format!("{} B", queue.0)]);
        }
        if !link.tree.nodes().is_empty() {
            let node = |node: &TreeNode| format!("{}:{}", node.parent, node.weight);
            let nodes: Vec<String> = link.tree.nodes().iter().map(node).collect();
            arguments.extend(["--tree".into(), nodes.join(",")]);
        }
        if let Some(remap) = link.tree.update() {
            arguments.extend(["--remap".into(), format!("{} ns", remap.0)]);
        }
        arguments.extend(["--socket".into(), socket.display().to_string()]);
        // If this process dies, the coprocessor need not stay.
        arguments.extend(["--alone", "10 s"].map(str::to_owned));
        arguments.extend(more.iter().map(|&more| more.to_owned()));
        Self { program: program(), arguments, socket, child: None }
    }

    /// The process, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it, unless it runs, and waits until it listens.
    pub(super) fn start(&mut self, patience: Duration) -> Result<(), SpawnError> {
        let name = self.program.display().to_string();
        let running = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !running {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null());
            // Ctrl-C is for the node, which ends the coprocessor in order.
            command.process_group(0);
            self.child = Some(
                command.spawn().map_err(|why| SpawnError::Start { program: name.clone(), why })?,
            );
        }
        let began = Instant::now();
        while !listens(&self.socket) {
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                self.child = None;
                return Err(SpawnError::Ended { program: name, status: status.to_string() });
            }
            if began.elapsed() > patience.into() {
                let at = self.socket.display().to_string();
                return Err(SpawnError::Silent { program: name, at, after: patience });
            }
            std::thread::park_timeout(Duration::from_millis(5).into());
        }
        Ok(())
    }

    /// Requests its end, and waits; kills it if it takes too long.
    pub(super) fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = Instant::now();
        while matches!(child.try_wait(), Ok(None))
            && began.elapsed() < Duration::from_secs(3).into()
        {
            std::thread::park_timeout(Duration::from_millis(5).into());
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

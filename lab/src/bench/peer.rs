//! DPDK's `rte_sched` as a yardstick: compiled where DPDK's headers are, and run.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};
use std::{fs, io};

const SOURCE: &str = include_str!("../../../tools/peers/rte_sched.c");

/// Why a program that another one runs did not do its work.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// It can't be started.
    #[error("{name} does not start: {error}")]
    Start { name: String, error: io::Error },
    /// It ended with a failure.
    #[error("{name} failed, {status}: {last}")]
    Failed { name: String, status: ExitStatus, last: String },
}

/// Why there is no figure of DPDK's.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// pkg-config does not know it.
    #[error("DPDK is not installed (Debian: libdpdk-dev, pkg-config)")]
    NotInstalled,
    /// A file of the build can't be written.
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    /// The compiler or the program failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The program printed something else than its figure.
    #[error("rte_sched printed `{0}`, not a number")]
    NoNumber(String),
}

/// The program, in a folder of its own that goes with it.
pub(super) struct RteSched {
    folder: PathBuf,
}

impl RteSched {
    /// Compiles it: some seconds. The error is the reason why that can't be done here.
    pub(super) fn build() -> Result<Self, PeerError> {
        let flags = output(Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]))
            .map_err(|_| PeerError::NotInstalled)?;
        let folder = std::env::temp_dir().join(format!("selvedge-peers-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| PeerError::File { path: folder.clone(), error })?;
        // From here on the folder goes when this does.
        let new = Self { folder };
        let source = new.folder.join("rte_sched.c");
        fs::write(&source, SOURCE)
            .map_err(|error| PeerError::File { path: source.clone(), error })?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O3", "-march=native", "-o"]).arg(new.program()).arg(&source);
        output(compiler.args(flags.split_whitespace()))?;
        Ok(new)
    }

    fn program(&self) -> PathBuf {
        self.folder.join("rte_sched")
    }

    /// Million frames a second with so many pipes of one queue each.
    /// Given up after 20 s: under real-time priority DPDK may wait for a thread of its own for ever.
    pub(super) fn measure(&self, streams: u32) -> Result<f64, PeerError> {
        let printed =
            output(Command::new("timeout").arg("20").arg(self.program()).arg(streams.to_string()))?;
        let last = printed.lines().last().unwrap_or_default();
        last.trim().parse().map_err(|_| PeerError::NoNumber(last.to_owned()))
    }
}

impl Drop for RteSched {
    fn drop(&mut self) {
        // In the folder for temporary files; no harm if it stays.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What a command prints, if it does its work.
pub(super) fn output(command: &mut Command) -> Result<String, RunError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = match command.output() {
        Ok(output) => output,
        Err(error) => return Err(RunError::Start { name, error }),
    };
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&stderr);
    let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(RunError::Failed { name, status, last: last.to_owned() })
}

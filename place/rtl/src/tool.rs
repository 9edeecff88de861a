//! Running other people's programs: Verilator, a C++ compiler, Yosys, nextpnr.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

/// Why a tool gave nothing.
#[derive(Debug, Error)]
pub enum ToolError {
    /// It is not there.
    #[error("{tool} is not installed; install the Debian package {package}")]
    Absent {
        /// The program.
        tool: String,
        /// The package that has it.
        package: &'static str,
    },
    /// It could not be started.
    #[error("{tool} could not be started: {why}")]
    Start {
        /// The program.
        tool: String,
        /// What the system says.
        why: io::Error,
    },
    /// It ran and failed.
    #[error("{tool} failed ({status}):\n{last_lines}")]
    Failed {
        /// The program.
        tool: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The last lines of what it said.
        last_lines: String,
    },
    /// A file for it could not be written, or its result not be read.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
}

impl ToolError {
    /// Makes errors of a file carry its name.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |why| Self::File { path, why }
    }
}

/// Runs a command to its end; what it wrote to standard output and to standard error.
pub(crate) fn run(
    command: &mut Command,
    package: &'static str,
) -> Result<(String, String), ToolError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Err(ToolError::Absent { tool, package });
        }
        Err(why) => return Err(ToolError::Start { tool, why }),
    };
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok((out, err));
    }
    let lines: Vec<&str> = out.lines().chain(err.lines()).collect();
    let last_lines = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(ToolError::Failed { tool, status: output.status, last_lines })
}

/// A new folder of our own, removed when dropped.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) path: PathBuf,
}

impl Workshop {
    /// In the folder given, which must exist.
    pub(crate) fn new(parent: &std::path::Path) -> Result<Self, ToolError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("selvedge-rtl-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(ToolError::file(&path))?;
        Ok(Self { path })
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Left behind if that fails; there is nobody to tell.
        let _removed = std::fs::remove_dir_all(&self.path);
    }
}

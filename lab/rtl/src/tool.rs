//! Running other people's programs: Verilator, a C++ compiler, Yosys, nextpnr.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use selvedge_units::Duration;
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
    /// It did not end.
    #[error("{tool} was ended after {after}, the most that it may take here")]
    Endless {
        /// The program.
        tool: String,
        /// How long it was let run.
        after: Duration,
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

/// What any of them may take, on a machine with much else to do.
pub(crate) const MOST: Duration = Duration::from_secs(30 * 60);

/// Runs a command to its end, for [`MOST`] at most; what it wrote to standard output and to standard
/// error.
pub(crate) fn run(
    command: &mut Command,
    package: &'static str,
) -> Result<(String, String), ToolError> {
    run_within(command, package, MOST)
}

fn run_within(
    command: &mut Command,
    package: &'static str,
    most: Duration,
) -> Result<(String, String), ToolError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Err(ToolError::Absent { tool, package });
        }
        Err(why) => return Err(ToolError::Start { tool, why }),
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (ended, status) = thread::scope(|scope| {
        // Both are read as they come, so that it never waits for a reader.
        let texts = (scope.spawn(|| text(out)), scope.spawn(|| text(err)));
        let end = Instant::now() + most.to_std();
        let status = loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < end => {
                    thread::park_timeout(Duration::from_millis(20).into());
                }
                Ok(Some(status)) => break Ok(Some(status)),
                Ok(None) => {
                    // It may end just now.
                    let _ = child.kill();
                    break child.wait().map(|_| None);
                }
                Err(why) => break Err(why),
            }
        };
        let joined =
            |reader: thread::ScopedJoinHandle<'_, String>| reader.join().unwrap_or_default();
        ((joined(texts.0), joined(texts.1)), status)
    });
    let (out, err) = ended;
    match status {
        Err(why) => Err(ToolError::Start { tool, why }),
        Ok(None) => Err(ToolError::Endless { tool, after: most }),
        Ok(Some(status)) if status.success() => Ok((out, err)),
        Ok(Some(status)) => {
            let lines: Vec<&str> = out.lines().chain(err.lines()).collect();
            let last_lines = lines[lines.len().saturating_sub(20)..].join("\n");
            Err(ToolError::Failed { tool, status, last_lines })
        }
    }
}

/// All that it says.
fn text(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // What came until it broke off is enough for an error.
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A new folder of our own, removed when dropped.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    pub(crate) path: PathBuf,
}

impl TemporaryFolder {
    /// In the folder given, which must exist.
    pub(crate) fn new(parent: &std::path::Path) -> Result<Self, ToolError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("selvedge-rtl-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(ToolError::file(&path))?;
        Ok(Self { path })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Left behind if that fails; nobody could be notified.
        let _removed = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_ended() {
        let mut endless = Command::new("sleep");
        let ended = run_within(endless.arg("1000"), "coreutils", Duration::from_millis(50));
        assert!(matches!(ended, Err(ToolError::Endless { .. })), "{ended:?}");
        let mut speaks = Command::new("sh");
        let said = run(speaks.args(["-c", "echo out; echo err >&2"]), "dash").unwrap();
        assert_eq!(said, ("out\n".to_owned(), "err\n".to_owned()));
        let mut fails = Command::new("sh");
        let failed = run(fails.args(["-c", "echo why >&2; exit 3"]), "dash").unwrap_err();
        assert!(failed.to_string().ends_with("why"), "{failed}");
        let absent = run(&mut Command::new("/no/such/tool"), "none").unwrap_err();
        assert!(matches!(absent, ToolError::Absent { .. }), "{absent}");
    }
}

//! The steps that were loaded over the control socket, kept beside it as they were asked for: a
//! coprocessor that is started again where another was killed loads them again. One that ends in order
//! takes the file away, as it does its socket.
//!
//! What is in the file runs on the engine's thread, so it must be this user's own, and nobody else's
//! to write.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest file that is read: 32 steps of the longest message fit.
const LEN_MAX: u64 = 1 << 20;

/// Why the steps of a coprocessor that was killed can't be read.
#[derive(Debug, thiserror::Error)]
#[error("\"{}\": {why}; remove it", path.display())]
pub(super) struct StepsError {
    path: PathBuf,
    why: StepsFault,
}

/// What is wrong with their file.
#[derive(Debug, thiserror::Error)]
enum StepsFault {
    #[error("belongs to somebody else, or others may write it")]
    Foreign,
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error(transparent)]
    Text(#[from] serde_json::Error),
}

/// A step as it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) extension: String,
    pub(super) point: String,
    pub(super) arguments: Value,
}

/// The steps of the coprocessor that listens at a socket.
#[derive(Debug)]
pub(crate) struct StepStore {
    path: PathBuf,
    kept: Vec<Step>,
}

impl StepStore {
    /// None yet.
    pub(super) fn for_socket(socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".steps");
        Self { path: path.into(), kept: Vec::new() }
    }

    /// Those of a coprocessor that was killed, in the order in which they were loaded.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub(super) fn load_saved(&self) -> Result<Vec<Step>, StepsError> {
        let wrong = |why| StepsError { path: self.path.clone(), why };
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| wrong(error.into()))?,
        };
        let found = file.metadata().map_err(|error| wrong(error.into()))?;
        let user = rustix::process::geteuid().as_raw();
        if !found.is_file() || found.uid() != user || found.mode() & 0o022 != 0 {
            return Err(wrong(StepsFault::Foreign));
        }
        let mut text = String::new();
        let read = file.take(LEN_MAX).read_to_string(&mut text);
        read.map_err(|error| wrong(error.into()))?;
        serde_json::from_str(&text).map_err(|error| wrong(error.into()))
    }

    /// A step was loaded, in place of the one of its name.
    pub(super) fn save(&mut self, step: Step) {
        self.kept.retain(|kept| kept.name != step.name);
        self.kept.push(step);
        self.write();
    }

    /// A step was removed.
    pub(super) fn remove_saved(&mut self, name: &str) {
        let before = self.kept.len();
        self.kept.retain(|kept| kept.name != name);
        if self.kept.len() != before {
            self.write();
        }
    }

    /// The coprocessor ends in order.
    pub(super) fn end(&self) {
        // None was written if none was loaded.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Writes the file anew, whole or not at all. A step runs even if it can't be kept.
    fn write(&self) {
        if let Err(error) = self.try_write() {
            let path = self.path.display();
            tracing::warn!(%error, %path, "steps would not survive this coprocessor");
        }
    }

    fn try_write(&self) -> io::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        // One that is left from before, or somebody else's: a link is not followed.
        let _ = std::fs::remove_file(&new);
        let mut file: File =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&self.kept)?)?;
        std::fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn step(name: &str, source: &str) -> Step {
        let arguments = serde_json::json!({ "source": source });
        Step { name: name.into(), extension: "code".into(), point: "arrival".into(), arguments }
    }

    #[test]
    fn they_are_read_back_unless_others_may_write_them() {
        let socket =
            std::env::temp_dir().join(format!("selvedge-steps-{}.sock", std::process::id()));
        let mut steps = StepStore::for_socket(&socket);
        assert_eq!(steps.load_saved().unwrap(), Vec::new());
        steps.save(step("a", "{}"));
        steps.save(step("b", "{}"));
        steps.save(step("a", "{ output.discard = 1; }"));
        let next = StepStore::for_socket(&socket);
        let expected = vec![step("b", "{}"), step("a", "{ output.discard = 1; }")];
        assert_eq!(next.load_saved().unwrap(), expected);
        steps.remove_saved("b");
        assert_eq!(next.load_saved().unwrap().len(), 1);
        std::fs::set_permissions(&steps.path, PermissionsExt::from_mode(0o666)).unwrap();
        let error = next.load_saved().unwrap_err().to_string();
        assert!(error.contains("others may write") && error.contains(".steps"), "{error}");
        std::fs::set_permissions(&steps.path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&steps.path, "[{").unwrap();
        assert!(next.load_saved().unwrap_err().to_string().contains("remove it"));
        steps.end();
        assert_eq!(next.load_saved().unwrap(), Vec::new());
    }
}

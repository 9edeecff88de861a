//! The extensions that were loaded over the control socket, saved as requested in a file beside it: a
//! coprocessor that replaces a killed one loads them again. A coprocessor that ends in order removes the
//! file, as it does its socket.
//!
//! The extensions in the file run on the engine's thread, so the file must belong to this user, and no other
//! user may write it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest file that is read: 32 extensions of the longest message fit.
const LEN_MAX: u64 = 1 << 20;

/// Why the extensions of a killed coprocessor can't be read.
#[derive(Debug, thiserror::Error)]
#[error("\"{}\": {why}; remove it", path.display())]
pub(super) struct StepsError {
    path: PathBuf,
    why: StepsFault,
}

/// The fault of their file.
#[derive(Debug, thiserror::Error)]
enum StepsFault {
    #[error("belongs to somebody else, or others may write it")]
    Foreign,
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error(transparent)]
    Text(#[from] serde_json::Error),
}

/// An extension as it was requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) extension: String,
    pub(super) point: String,
    pub(super) arguments: Value,
}

/// The extensions of the coprocessor that listens at a socket.
#[derive(Debug)]
pub(crate) struct StepStore {
    path: PathBuf,
    kept: Vec<Step>,
}

impl StepStore {
    /// A store without extensions yet.
    pub(super) fn for_socket(socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".steps");
        Self { path: path.into(), kept: Vec::new() }
    }

    /// Those of a killed coprocessor, in the order in which they were loaded.
    ///
    /// # Errors
    /// The fault of the file.
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

    /// Saves a loaded extension, in place of the one of its name.
    pub(super) fn save(&mut self, step: Step) {
        self.kept.retain(|kept| kept.name != step.name);
        self.kept.push(step);
        self.write();
    }

    /// Removes an extension.
    pub(super) fn remove_saved(&mut self, name: &str) {
        let before = self.kept.len();
        self.kept.retain(|kept| kept.name != name);
        if self.kept.len() != before {
            self.write();
        }
    }

    /// Removes the file when the coprocessor ends in order.
    pub(super) fn end(&self) {
        // None was written if none was loaded.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Writes the file anew, whole or not at all. An extension runs even if it can't be saved.
    fn write(&self) {
        if let Err(error) = self.try_write() {
            let path = self.path.display();
            tracing::warn!(%error, %path, "steps would not survive this coprocessor");
        }
    }

    fn try_write(&self) -> io::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        // A file that is left from before, or belongs to another user: a link is not followed.
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

//! A meeting place for programs of one user and machine that share only a channel's name: a folder
//! in which each leaves a file with its address, locked while the program lives. The kernel
//! releases the lock however a program ends, so files of dead programs are recognized and removed.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::address::Address;

/// The largest number of programs that are contacted; gossip reports the others.
const MET_MAX: usize = 64;
/// The largest number of files that are read.
const FILES_MAX: usize = 1024;

/// Why programs can't meet in a folder.
#[derive(Debug, thiserror::Error)]
pub enum MeetingError {
    /// The folder or a file in it can't be used.
    #[error("{path}: {why}")]
    System {
        /// The path.
        path: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// Another user could put addresses there.
    #[error("{0} may be written by others; remove it, or set XDG_RUNTIME_DIR")]
    Foreign(String),
}

impl MeetingError {
    fn system(path: &Path, why: impl Into<std::io::Error>) -> Self {
        Self::System { path: path.display().to_string(), why: why.into() }
    }
}

/// This program's file, removed when dropped.
#[derive(Debug)]
pub(crate) struct MeetingFile {
    folder: PathBuf,
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl Drop for MeetingFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl MeetingFile {
    /// Puts this program's address into the folder of a domain.
    ///
    /// # Errors
    /// If the folder can't be used, or belongs to another user.
    pub(crate) fn new(
        domain: &str,
        id: &str,
        mine: &Address,
        is_tls: bool,
    ) -> Result<Self, MeetingError> {
        let folder = folder(domain, is_tls)?;
        let (path, unready) = (folder.join(id), folder.join(format!(".{id}")));
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unready)
            .map_err(|why| MeetingError::system(&unready, why))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|why| MeetingError::system(&unready, why))?;
        // Other programs see the file only once it is locked and complete.
        let written = file.write_all(mine.to_string().as_bytes());
        let written = written.and_then(|()| fs::rename(&unready, &path));
        written.map_err(|why| MeetingError::system(&path, why))?;
        Ok(Self { folder, path, _file: file })
    }

    /// The addresses of the other programs that are alive now.
    pub(crate) fn others(&self) -> Vec<Address> {
        let mut others = Vec::new();
        let Ok(entries) = fs::read_dir(&self.folder) else { return others };
        for entry in entries.take(FILES_MAX).flatten() {
            let is_ready = !entry.file_name().as_encoded_bytes().starts_with(b".");
            if is_ready && entry.path() != self.path && others.len() < MET_MAX {
                others.extend(other(&entry.path()));
            }
        }
        others
    }
}

/// The address in a living program's file; removes a dead program's file.
fn other(path: &Path) -> Option<Address> {
    let file = File::open(path).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        let _ = fs::remove_file(path);
        return None;
    }
    let mut text = String::new();
    file.take(256).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

/// The folder: of this user alone, of this network namespace, of this domain.
fn folder(domain: &str, is_tls: bool) -> Result<PathBuf, MeetingError> {
    let user = rustix::process::geteuid().as_raw();
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    let base = base.map_or_else(
        || std::env::temp_dir().join(format!("selvedge-{user}")),
        |base| base.join("selvedge"),
    );
    let network = fs::metadata("/proc/self/ns/net").map_or(0, |data| data.ino());
    let kind = if is_tls { "tls" } else { "tcp" };
    let folder = base.join("events").join(format!("{network}-{kind}-{domain}"));
    let to_error = |why: std::io::Error| MeetingError::system(&folder, why);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(to_error)?;
    for part in [&base, &folder] {
        let data = fs::symlink_metadata(part).map_err(to_error)?;
        if data.uid() != user || !data.is_dir() || data.mode() & 0o022 != 0 {
            return Err(MeetingError::Foreign(part.display().to_string()));
        }
    }
    Ok(folder)
}

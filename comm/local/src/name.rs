//! The meeting place of a channel's members: a directory for each channel, a socket in it for each member.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use selvedge_os::clock::Clock;
use selvedge_units::Duration;

use crate::JoinError;

/// The longest name of a channel, in bytes.
pub const NAME_MAX: usize = 64;
/// Longer names, and those with other characters, are distinguished by a hash.
const PLAIN_MAX: usize = 32;
/// How long another member may take to join.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The default directory of channels: `$XDG_RUNTIME_DIR/selvedge`, or a directory of this user in
/// `/tmp` if that is not set.
#[must_use]
pub fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if Path::new(&directory).is_absolute() => {
            PathBuf::from(directory).join("selvedge")
        }
        _ => PathBuf::from(format!("/tmp/selvedge-{}", rustix::process::geteuid().as_raw())),
    }
}

/// The names of a directory's channels, as far as they are plain, and the number of members of
/// each; killed members count until the next member joins.
#[must_use]
pub fn channels(directory: &Path) -> Vec<(String, usize)> {
    let visible = |path: &Path| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| !name.starts_with('.')).collect()
    };
    let of = |name: String| (name.clone(), visible(&directory.join(name)).len());
    let mut all: Vec<_> = visible(directory).into_iter().map(of).collect();
    all.retain(|(_, members)| *members > 0);
    all.sort();
    all
}

/// The directory's name for a channel.
fn folder(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.len() <= PLAIN_MAX && name.bytes().all(plain) && !name.starts_with('.') {
        return name.to_owned();
    }
    // FNV-1a; the members exchange the whole name in their hellos.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("={hash:016x}")
}

/// A channel's directory, locked: one member joins at a time.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    pub(crate) path: PathBuf,
    _lock: OwnedFd,
}

impl LockedDirectory {
    pub(crate) fn open(directory: &Path, name: &str) -> Result<Self, JoinError> {
        if !(1..=NAME_MAX).contains(&name.len()) {
            return Err(JoinError::Name(name.len()));
        }
        let failed = |path: &Path, why: std::io::Error| JoinError::Directory {
            path: path.display().to_string(),
            why,
        };
        let path = directory.join(folder(name));
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&path).map_err(|why| failed(&path, why))?;
        for path in [directory, &path] {
            let found = fs::symlink_metadata(path).map_err(|why| failed(path, why))?;
            let mine = found.uid() == rustix::process::geteuid().as_raw();
            if !found.is_dir() || !mine || found.mode() & 0o022 != 0 {
                return Err(JoinError::Foreign(path.display().to_string()));
            }
        }
        let lock = rustix::fs::open(
            path.join(".lock"),
            OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(|why| failed(&path, why.into()))?;
        let clock = Clock::shared();
        let until = clock.now() + LOCK_PATIENCE;
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            if clock.now() > until {
                return Err(JoinError::Busy(path.display().to_string()));
            }
            clock.sleep_until(clock.now() + Duration::from_micros(200));
        }
        Ok(Self { path, _lock: lock })
    }

    /// The sockets of present and former members.
    pub(crate) fn members(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let sockets = entries.filter(|entry| {
            use std::os::unix::fs::FileTypeExt;
            entry.file_type().is_ok_and(|kind| kind.is_socket())
        });
        sockets.map(|entry| entry.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_plain_and_differ() {
        assert_eq!(folder("load.node-1"), "load.node-1");
        let odd = ["a/b", "..", ".", "ä", &"x".repeat(33), &"x".repeat(34), "=0"];
        let names: std::collections::BTreeSet<String> =
            odd.iter().map(|name| folder(name)).collect();
        assert_eq!(names.len(), odd.len());
        assert!(names.iter().all(|name| name.len() == 17 && !name.contains('/')));
    }
}

//! How an endpoint of stacks proves its identity, as configured by files: a secret that both ends
//! share, or its own static key beside a list of the keys of allowed peers.
//!
//! A secret and a static key are 64 hexadecimal digits. The list stands beside the key: `NAME.key.peers`,
//! a public key and its owner's name in each line. It is read again when it changes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use selvedge_comm_stack::endpoint::Options;
use selvedge_comm_stack::wire;
use selvedge_data_net_secure::{Identity, Key, PublicKey};
use selvedge_units::{Duration, Instant};

/// The longest file with a key, and with a list of them.
const LONGEST: (u64, u64) = (4096, 1 << 20);
/// How often a list is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why there is no secret or key.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file can't be read, or written.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// The file holds something else.
    #[error(
        "{}: not a secret; write 64 hexadecimal digits, as `openssl rand -hex 32` makes them",
        .0.display()
    )]
    Secret(PathBuf),
    /// The file holds something else.
    #[error("{}: not a key; make one with `selvedge key new FILE`", .0.display())]
    Key(PathBuf),
    /// Other users may read a key.
    #[error("{path}: others can read this key; `chmod 600 {path}`, or make a new one", path = .0.display())]
    Readable(PathBuf),
    /// A line of a list is malformed.
    #[error("{}:{line}: write a public key, a blank and a name", .path.display())]
    Peer {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// No peer has this name.
    #[error("{}: no peer \"{name}\"; add it with `selvedge key pair`", .path.display())]
    NoPeer {
        /// The list.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Both are given.
    #[error("a secret and a key: use one of them")]
    Both,
}

/// The files with which an endpoint proves its identity; none if it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// A secret that both ends share.
    pub secret: Option<PathBuf>,
    /// A static key.
    pub key: Option<PathBuf>,
    /// With a key: the peer that it connects to, by name.
    pub peer: Option<String>,
}

impl Credentials {
    /// The options with the contents of the files.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub fn read(&self, options: Options) -> Result<Options, CredentialError> {
        let identity = match (&self.secret, &self.key) {
            (None, None) => return Ok(options),
            (Some(_), Some(_)) => return Err(CredentialError::Both),
            (Some(path), None) => {
                let secret = digits(path)?;
                Identity::Secret(secret.ok_or_else(|| CredentialError::Secret(path.clone()))?)
            }
            (None, Some(path)) => Identity::Static(key(path)?),
        };
        let known = self.key.as_deref().map(peers).transpose()?.unwrap_or_default();
        let named = |name: &String| {
            let found = known.iter().find(|(_, of)| of == name).map(|(key, _)| *key);
            let list = || peers_path(self.key.as_deref().unwrap_or_else(|| Path::new("")));
            found.ok_or_else(|| CredentialError::NoPeer { path: list(), name: name.clone() })
        };
        let peer = self.peer.as_ref().map(named).transpose()?;
        let peers = known.iter().map(|(key, _)| *key).collect();
        Ok(Options { identity, peers, peer, ..options })
    }

    /// Returns a watch on the list of peers, for a running endpoint.
    #[must_use]
    pub fn watch(&self) -> PeersWatch {
        let seen = self.key.as_deref().map(|key| stamp(&peers_path(key)));
        PeersWatch { key: self.key.clone(), seen: seen.flatten(), looked: Instant::ZERO }
    }
}

/// Checks whether a list of peers has changed.
#[derive(Debug)]
pub struct PeersWatch {
    key: Option<PathBuf>,
    seen: Option<(i64, i64, u64)>,
    looked: Instant,
}

impl PeersWatch {
    /// The keys that are allowed from now on, if the list has changed; checks once a second. A list
    /// that can't be read changes nothing, and is logged as a warning.
    pub fn poll(&mut self, now: Instant) -> Option<Vec<PublicKey>> {
        let key = self.key.as_ref().filter(|_| now.since(self.looked) >= LOOK_EVERY)?;
        self.looked = now;
        let seen = stamp(&peers_path(key));
        if seen == self.seen {
            return None;
        }
        self.seen = seen;
        let found = peers(key).inspect_err(|why| tracing::warn!(%why, "peers stay as they were"));
        Some(found.ok()?.into_iter().map(|(key, _)| key).collect())
    }
}

fn stamp(path: &Path) -> Option<(i64, i64, u64)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.mtime(), metadata.mtime_nsec(), metadata.ino()))
}

fn peers_path(key: &Path) -> PathBuf {
    let mut path = key.as_os_str().to_owned();
    path.push(".peers");
    path.into()
}

/// Makes a key in a file that does not exist yet and that no other user may read.
///
/// # Errors
/// [`CredentialError`].
pub fn new_key(path: &Path) -> Result<Key, CredentialError> {
    let key = wire::seed();
    let text = format!("{}\n", PublicKey(key.0));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|why| CredentialError::File { path: path.to_owned(), why })?;
    Ok(key)
}

/// The static key in a file.
///
/// # Errors
/// [`CredentialError`].
pub fn key(path: &Path) -> Result<Key, CredentialError> {
    let metadata = path.metadata();
    let metadata = metadata.map_err(|why| CredentialError::File { path: path.to_owned(), why })?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(CredentialError::Readable(path.to_owned()));
    }
    digits(path)?.ok_or_else(|| CredentialError::Key(path.to_owned()))
}

/// The allowed peers of the owner of the key in this file: their keys and names.
///
/// # Errors
/// [`CredentialError`]; a missing list is an empty one.
pub fn peers(key: &Path) -> Result<Vec<(PublicKey, String)>, CredentialError> {
    let path = peers_path(key);
    let text = match text(&path, LONGEST.1) {
        Err(CredentialError::File { why, .. }) if why.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        text => text?,
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let peer = |(n, line): (usize, &str)| {
        let (key, name) = line.trim().split_once(' ').unwrap_or_default();
        let name = Some(name.trim()).filter(|name| is_name(name));
        let peer = key.parse().ok().zip(name.map(str::to_owned));
        peer.ok_or_else(|| CredentialError::Peer { path: path.clone(), line: n + 1 })
    };
    lines.map(peer).collect()
}

/// Whether a peer may have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && !name.contains(|c: char| c.is_control())
}

/// Writes the list of allowed peers of the owner of this key, atomically.
///
/// # Errors
/// [`CredentialError`].
pub fn set_peers(key: &Path, peers: &[(PublicKey, String)]) -> Result<(), CredentialError> {
    let path = peers_path(key);
    let text: String = peers.iter().map(|(key, name)| format!("{key} {name}\n")).collect();
    replace(&path, &text).map_err(|why| CredentialError::File { path, why })
}

/// Writes a file of the program's own at once: no reader sees half of it.
///
/// # Errors
/// The system's.
pub fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, file)
}

/// The key in a file; blanks around the digits don't count. `None` if the file holds something else.
fn digits(path: &Path) -> Result<Option<Key>, CredentialError> {
    Ok(text(path, LONGEST.0)?.trim_ascii().parse().ok())
}

fn text(path: &Path, longest: u64) -> Result<String, CredentialError> {
    let mut bytes = Vec::new();
    // One byte more than is allowed: a longer file is malformed, not cut.
    File::open(path)
        .and_then(|file| file.take(longest + 1).read_to_end(&mut bytes))
        .map_err(|why| CredentialError::File { path: path.to_owned(), why })?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= longest);
    Ok(text.unwrap_or_else(|| "?".to_owned()))
}

//! Filters for a stream's packets: by mark, socket, cgroup or port; as text, and as the key that the programs
//! look up.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// The most cgroup folders that are searched for one of them.
const FOLDERS_MAX: usize = 10_000;

/// A filter for a stream's packets. If several match, the first in this order decides, of cgroups the
/// innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// `SO_MARK` of the socket, or a firewall's mark; not 0.
    Mark(u32),
    /// The socket's cookie (`SO_COOKIE`; read it before sending, otherwise the socket has none).
    Cookie(u64),
    /// The cgroup (version 2) in which the socket was made, or one below it, by its inode number.
    Cgroup(u64),
    /// The destination UDP port.
    Port(u16),
    /// The source UDP port.
    SourcePort(u16),
}

/// Why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// It does not have the form of a filter.
    #[error(
        "\"{0}\" is not a filter; write port=5004, source-port=5004, mark=7, cookie=12 or \
         cgroup=/sys/fs/cgroup/media"
    )]
    Form(String),
    /// It names a folder that is not a cgroup.
    #[error("there is no cgroup \"{path}\": {why}; make it first: mkdir {path}")]
    NoCgroup {
        /// The folder.
        path: String,
        /// The system's error.
        why: String,
    },
}

impl Filter {
    /// The number that the programs use; its bit in `setup.filters`.
    pub(crate) const fn kind(self) -> u32 {
        match self {
            Self::Mark(_) => 0,
            Self::Cookie(_) => 1,
            Self::Cgroup(_) => 2,
            Self::Port(_) => 3,
            Self::SourcePort(_) => 4,
        }
    }

    /// The text for people: a cgroup by its folder, as long as that exists.
    #[must_use]
    pub fn shown(self) -> String {
        match self {
            Self::Cgroup(id) => folder(id)
                .map_or_else(|| self.to_string(), |path| format!("cgroup={}", path.display())),
            _ => self.to_string(),
        }
    }

    /// The key in the map of filters: kind, zero, value.
    pub(crate) fn key(self) -> [u8; 16] {
        let value: u64 = match self {
            Self::Mark(mark) => mark.into(),
            Self::Cookie(value) | Self::Cgroup(value) => value,
            Self::Port(port) | Self::SourcePort(port) => port.into(),
        };
        let mut key = [0; 16];
        key[..4].copy_from_slice(&self.kind().to_ne_bytes());
        key[8..].copy_from_slice(&value.to_ne_bytes());
        key
    }

    pub(crate) fn from_key(key: &[u8]) -> Option<Self> {
        let kind = u32::from_ne_bytes(key.get(..4)?.try_into().ok()?);
        let value = u64::from_ne_bytes(key.get(8..16)?.try_into().ok()?);
        Some(match kind {
            0 => Self::Mark(value.try_into().ok()?),
            1 => Self::Cookie(value),
            2 => Self::Cgroup(value),
            3 => Self::Port(value.try_into().ok()?),
            4 => Self::SourcePort(value.try_into().ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark(mark) => write!(f, "mark={mark}"),
            Self::Cookie(cookie) => write!(f, "cookie={cookie}"),
            Self::Cgroup(id) => write!(f, "cgroup={id}"),
            Self::Port(port) => write!(f, "port={port}"),
            Self::SourcePort(port) => write!(f, "source-port={port}"),
        }
    }
}

/// `port=5004` and the like; a cgroup by its folder (which is looked up) or its inode number.
impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let wrong = || FilterError::Form(text.to_owned());
        let (kind, value) = text.split_once('=').ok_or_else(wrong)?;
        let value = value.trim();
        fn number<T: FromStr>(value: &str) -> Option<T> {
            value.parse().ok()
        }
        let filter = match kind.trim() {
            "mark" => number(value).filter(|&mark| mark != 0).map(Self::Mark),
            "cookie" => number(value).filter(|&cookie| cookie != 0).map(Self::Cookie),
            "cgroup" if value.starts_with('/') => Some(Self::Cgroup(cgroup(value)?)),
            "cgroup" => number(value).filter(|&id| id != 0).map(Self::Cgroup),
            "port" => number(value).filter(|&port| port != 0).map(Self::Port),
            "source-port" => number(value).filter(|&port| port != 0).map(Self::SourcePort),
            _ => None,
        };
        filter.ok_or_else(wrong)
    }
}

/// A cgroup's number is the inode number of its folder.
fn cgroup(path: &str) -> Result<u64, FilterError> {
    let none = |why: String| FilterError::NoCgroup { path: path.to_owned(), why };
    let folder = fs::metadata(path).map_err(|why| none(why.to_string()))?;
    if folder.is_dir() { Ok(folder.ino()) } else { Err(none("not a folder".to_owned())) }
}

/// The folder of a cgroup (version 2) with this number, among the first 10,000; `None` if it is gone.
fn folder(number: u64) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let roots = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at))
    });
    let mut folders: VecDeque<PathBuf> = roots.collect();
    for _ in 0..FOLDERS_MAX {
        let path = folders.pop_front()?;
        if fs::metadata(&path).is_ok_and(|folder| folder.ino() == number) {
            return Some(path);
        }
        let inside = fs::read_dir(&path).into_iter().flatten().flatten();
        let below = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_read_and_print() {
        for text in ["port=5004", "source-port=7", "mark=9", "cookie=77", "cgroup=1234"] {
            let filter: Filter = text.parse().unwrap();
            assert_eq!(filter.to_string(), text);
            assert_eq!(Filter::from_key(&filter.key()), Some(filter));
        }
        for text in ["port", "port=0", "port=70000", "mark=0", "colour=1", "cgroup=media", ""] {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("\"{text}\" is not a filter")), "{error}");
        }
    }

    #[test]
    fn a_cgroup_is_found_by_its_folder_and_shown_by_it() {
        let none = "cgroup=/no/such".parse::<Filter>().unwrap_err().to_string();
        assert!(none.starts_with("there is no cgroup \"/no/such\": No such file"), "{none}");
        assert!(matches!(
            "cgroup=/etc/passwd".parse::<Filter>(),
            Err(FilterError::NoCgroup { .. })
        ));
        // A number that no folder has is shown as it is.
        assert_eq!(Filter::Cgroup(u64::MAX).shown(), format!("cgroup={}", u64::MAX));
        assert_eq!(Filter::Port(7).shown(), "port=7");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        if let Some(root) = root.and_then(|line| line.split(' ').nth(1)) {
            let text = format!("cgroup={root}");
            assert_eq!(text.parse::<Filter>().unwrap().shown(), text);
        }
    }
}

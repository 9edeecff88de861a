//! Changes of a line that runs: requests over a control socket of the same user, in the words of network
//! files. A request is carried out as a whole, or refused with the reason.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use selvedge_control_config::network::{FileError, LineChange, LineChangeError};
use selvedge_os::control::{Connection, ControlError, is_ours};
use selvedge_os::seqpacket;
use selvedge_units::Duration;
use serde::{Deserialize, Serialize};

use crate::link::Direction;
use crate::relay::Relay;

/// The longest name of a line, in bytes.
pub const NAME_MAX: usize = 64;
/// The most directions that a response names.
const NAMED_MAX: usize = 100;
/// How long a line may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// The link; `None`: all links.
    pub link: Option<String>,
    /// The direction; `None`: both.
    pub direction: Option<Direction>,
    /// `KEY=VALUE`, as in a network file.
    pub changes: Vec<String>,
}

/// The response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The directions that changed, such as `uplink there`; no more than a message holds.
    pub directions: Vec<String>,
}

/// Why nothing is changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// It would be no file's name.
    #[error("\"{0}\" is no name of a line; write 1 to {NAME_MAX} letters, digits, and . _ -")]
    Name(String),
    /// Another line listens.
    #[error("a line of the name \"{0}\" runs already; end it, or give this one another by --name")]
    Taken(String),
    /// No line listens.
    #[error("no line of the name \"{0}\" of this user runs: {1}")]
    Absent(String, #[source] io::Error),
    /// The socket.
    #[error("can't listen at {path}: {why}")]
    Listen {
        /// Its path.
        path: String,
        /// The system's error.
        why: io::Error,
    },
    /// A link that the line does not have.
    #[error("there is no link \"{link}\"; there are {links}")]
    Link {
        /// The name in the request.
        link: String,
        /// The names of the links.
        links: String,
    },
    /// A change makes no sense.
    #[error("{0}")]
    Change(#[from] LineChangeError),
    /// The line does not answer, or refuses.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// The socket of a line's name.
fn path(folder: &Path, name: &str) -> Result<PathBuf, ChangeError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if !(1..=NAME_MAX).contains(&name.len()) || !name.bytes().all(plain) {
        return Err(ChangeError::Name(name.to_owned()));
    }
    Ok(folder.join(format!("line-{name}.sock")))
}

/// Requests a change of the line of this name.
///
/// # Errors
/// [`ChangeError`]; nothing has changed then.
pub fn request(folder: &Path, name: &str, request: &ChangeRequest) -> Result<Changed, ChangeError> {
    let connection = Connection::open(&path(folder, name)?)
        .map_err(|why| ChangeError::Absent(name.to_owned(), why))?;
    Ok(connection.ask(request, &[], &[], TIMEOUT)?.body)
}

/// Where a line takes requests. Its socket goes with it.
#[derive(Debug)]
pub struct ChangeSocket {
    path: PathBuf,
    listener: OwnedFd,
    /// One at a time; others wait.
    connection: Option<Connection>,
}

impl Drop for ChangeSocket {
    fn drop(&mut self) {
        // Somebody may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl ChangeSocket {
    /// Listens under this name in a folder that is this user's alone.
    ///
    /// # Errors
    /// [`ChangeError`]: another line has the name, or there can be no socket.
    pub fn listen(folder: &Path, name: &str) -> Result<Self, ChangeError> {
        let path = path(folder, name)?;
        let listener = seqpacket::listen_at(&path).map_err(|why| match why.kind() {
            io::ErrorKind::AddrInUse => ChangeError::Taken(name.to_owned()),
            _ => ChangeError::Listen { path: path.display().to_string(), why },
        })?;
        Ok(Self { path, listener, connection: None })
    }

    /// Answers all requests that have come; never waits for one.
    pub fn serve(&mut self, relay: &mut Relay) {
        if self.connection.is_none() {
            // A listener that fails accepts no more; the line goes on. Others can't reach the socket, but for
            // root, who may as well.
            let came = Connection::accept(&self.listener).ok().flatten();
            self.connection = came.filter(|one| one.peer().is_ok_and(|peer| is_ours(&peer)));
        }
        self.connection.take_if(|connection| !answer(connection, relay));
    }
}

/// Answers the request of a connection, if one has come; whether the connection stays.
fn answer(connection: &Connection, relay: &mut Relay) -> bool {
    let done = match connection.receive::<ChangeRequest>() {
        Ok(None) => return true,
        Ok(Some(message)) => change(relay, &message.body),
        Err(ControlError::Closed) => return false,
        Err(error) => Err(error.into()),
    };
    let answer = done.as_ref().map_err(|why| why as &dyn std::fmt::Display);
    connection.answer(answer, &[], &[]).is_ok()
}

/// Carries out a request as a whole, or not at all.
fn change(relay: &mut Relay, request: &ChangeRequest) -> Result<Changed, ChangeError> {
    let ChangeRequest { link, direction, changes } = request;
    // Whose paths would they be?
    let mut no_files =
        |_: &str| Err(FileError::Unreadable("a line that runs reads no files".to_owned()));
    let parsed = changes.iter().map(|text| LineChange::parse(text, &mut no_files));
    let parsed: Vec<LineChange> = parsed.collect::<Result<_, _>>()?;
    if let Some(link) = link.as_ref().filter(|link| !relay.links().contains(link)) {
        let links = relay.links().join(", ");
        return Err(ChangeError::Link { link: link.clone(), links });
    }
    let changed = relay.change(|name, way, model| {
        if link.as_ref().is_none_or(|link| link == name) && direction.is_none_or(|one| one == way) {
            parsed.iter().cloned().for_each(|change| change.apply(model));
        }
    });
    let named = changed.into_iter().take(NAMED_MAX);
    Ok(Changed { directions: named.map(|(link, way)| format!("{link} {way}")).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("selvedge-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder can be made");
        path
    }

    #[test]
    fn a_name_is_taken_once_and_free_after_its_line() {
        let folder = folder("line-names");
        let one = ChangeSocket::listen(&folder, "lte-bad").expect("the name is free");
        let taken = ChangeSocket::listen(&folder, "lte-bad").expect_err("one listens").to_string();
        assert!(taken.contains("\"lte-bad\" runs already"), "{taken}");
        drop(one);
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0);
        ChangeSocket::listen(&folder, "lte-bad").expect("it is free again");
        std::fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused_and_absent_lines_named() {
        let folder = folder("line-absent");
        for name in ["", "a/b", "..\0", &"x".repeat(65)] {
            assert!(matches!(ChangeSocket::listen(&folder, name), Err(ChangeError::Name(_))));
        }
        let asked = ChangeRequest { link: None, direction: None, changes: vec!["loss=1%".into()] };
        let absent = request(&folder, "nowhere", &asked).expect_err("nobody listens").to_string();
        assert!(absent.contains("no line of the name \"nowhere\""), "{absent}");
        std::fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn requests_are_messages_and_other_texts_are_not() {
        use selvedge_os::control::is_message;
        assert!(is_message::<ChangeRequest>(
            br#"{"v":1,"link":null,"direction":"back","changes":[]}"#
        ));
        for wrong in [
            &br#"{"v":1,"link":null,"direction":"up","changes":[]}"#[..],
            br#"{"v":1,"changes":[],"links":1}"#,
            b"{}",
        ] {
            assert!(!is_message::<ChangeRequest>(wrong), "{}", String::from_utf8_lossy(wrong));
        }
    }
}

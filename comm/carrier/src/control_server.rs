//! Inspection and tuning of the stacks of a running process.
//!
//! Each process with stacks keeps a control socket ([`selvedge_os::control`]) in this user's folder,
//! `stack-PID.sock`. A client sends one request; the answer is a snapshot of all endpoints, in its own
//! memory.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use selvedge_comm_stack::endpoint::{Endpoint, EndpointView, ModulePin, PinError, Tuning};
use selvedge_os::control::{Connection, ControlError, FOREVER, Long};
use selvedge_os::seqpacket;
use selvedge_place_cpu::daemon::{self, DaemonError};
use selvedge_units::{Bytes, Duration};
use serde::{Deserialize, Serialize};

/// How long either end waits for the other.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The largest snapshot that is read: that of some ten thousand connections.
const RESPONSE_MAX: Bytes = Bytes(32 << 20);

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum StackRequest {
    /// A snapshot.
    Look,
    /// A snapshot after this change at all endpoints.
    Tune(Tuning),
    /// A snapshot after this change at the endpoint that has the connection.
    Pin(ModulePin),
}

/// Why a process can't be inspected.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// This user's folder, or the socket there, can't be used.
    #[error(transparent)]
    Folder(#[from] DaemonError),
    /// The process refuses, or does not answer.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// A snapshot of a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The command that it was started as.
    pub command: String,
    /// Its endpoints.
    pub endpoints: Vec<EndpointView>,
}

/// Passes a process's endpoints to the caller, one after the other.
pub type Each<'a> = &'a mut dyn FnMut(&Endpoint);

/// Answers clients that inspect this process; closed when dropped.
pub struct StackControlServer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StackControlServer {
    /// Opens it. If that fails the process continues and can't be inspected: the log states why.
    pub fn open(command: &str, each: impl Fn(Each<'_>) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut control_server =
            Self { path: PathBuf::new(), stop: Arc::clone(&stop), thread: None };
        let pid = std::process::id();
        let command = command.to_owned();
        remove_stale_sockets();
        let opened = path(pid)
            .map_err(io::Error::other)
            .and_then(|path| Ok((seqpacket::listen_at(&path)?, path)));
        let answer = move |listener: OwnedFd| {
            while seqpacket::wait_readable(&listener, FOREVER) && !stop.load(Ordering::Acquire) {
                let Ok(accepted) = Connection::accept(&listener) else { return };
                let Some(connection) = accepted else { continue };
                let process = Process { pid, command: command.clone(), endpoints: Vec::new() };
                // A client that does not read its answer has gone.
                let _ = answer(&connection, process, &each);
            }
        };
        let started = opened.and_then(|(listener, path)| {
            control_server.path = path;
            let thread = std::thread::Builder::new().name("stack desk".to_owned());
            thread.spawn(move || answer(listener))
        });
        match started {
            Ok(thread) => control_server.thread = Some(thread),
            Err(error) => tracing::warn!(%error, "`stack show` can't look at this process"),
        }
        control_server
    }
}

impl Drop for StackControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A connection wakes the thread; if that fails, it runs until the process ends.
        if let Some(thread) = self.thread.take()
            && Connection::open(&self.path).is_ok()
        {
            let _ = thread.join();
        }
        if !self.path.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn answer(
    connection: &Connection,
    mut process: Process,
    each: &dyn Fn(Each<'_>),
) -> Result<(), ControlError> {
    let refuse = |why: &dyn Display| connection.answer::<Long>(Err(why), &[], &[]);
    let mut refused = None;
    match connection.wait(TIMEOUT).map(|message| message.body) {
        Ok(StackRequest::Look) => {}
        Ok(StackRequest::Pin(pin)) => {
            let mut outcome = Err(PinError::Connection(pin.connection));
            each(&mut |endpoint| {
                if let Err(PinError::Connection(_)) = outcome {
                    outcome = endpoint.pin(&pin);
                }
            });
            if let Err(why) = outcome {
                return refuse(&why);
            }
        }
        Ok(StackRequest::Tune(tuning)) => {
            let mut outcomes = Vec::new();
            each(&mut |endpoint| outcomes.push(endpoint.tune(&tuning).err()));
            // A connection is one endpoint's.
            let is_done = tuning.connection.is_some() && outcomes.contains(&None);
            refused = outcomes.into_iter().flatten().next_back().filter(|_| !is_done);
        }
        Err(error) => return refuse(&error),
    }
    if let Some(why) = refused {
        return refuse(&why);
    }
    each(&mut |endpoint| process.endpoints.push(endpoint.view()));
    match Long::write(&process) {
        Ok((body, memory)) => connection.answer(Ok(&body), &[], &[memory.as_fd()]),
        Err(why) => refuse(&why),
    }
}

/// Removes the sockets of processes that were killed.
fn remove_stale_sockets() {
    for pid in processes().unwrap_or_default() {
        let Ok(path) = path(pid) else { continue };
        let is_gone = !Path::new(&format!("/proc/{pid}")).exists();
        // A process in another PID namespace may have the number, in a folder that both see.
        let refuses = || {
            Connection::open(&path).is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_gone && refuses() {
            // Another process may already have removed it.
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn path(pid: u32) -> Result<PathBuf, DaemonError> {
    Ok(daemon::folder()?.join(format!("stack-{pid}.sock")))
}

/// All processes that can be inspected, by number.
///
/// # Errors
/// [`DeskError::Folder`].
pub fn processes() -> Result<Vec<u32>, DeskError> {
    let path = daemon::folder()?;
    let names = std::fs::read_dir(&path).map_err(|why| DaemonError::Io(path, why))?.flatten();
    let pid = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("stack-")?.strip_suffix(".sock")?.parse().ok()
    };
    let mut pids: Vec<u32> = names.filter_map(pid).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// The answer of a process; `None` if it has gone.
///
/// # Errors
/// [`DeskError`].
pub fn request(pid: u32, asked: &StackRequest) -> Result<Option<Process>, DeskError> {
    let path = path(pid)?;
    let connection = match Connection::open(&path) {
        Ok(connection) => connection,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => {
            // It was killed: its socket is of no use.
            let _ = std::fs::remove_file(&path);
            return Ok(None);
        }
        Err(why) => return Err(DaemonError::Io(path, why).into()),
    };
    match connection.ask::<_, Long>(asked, &[], &[], TIMEOUT) {
        // It was about to end.
        Err(ControlError::Closed) => Ok(None),
        answer => Ok(Some(answer?.read(RESPONSE_MAX)?)),
    }
}

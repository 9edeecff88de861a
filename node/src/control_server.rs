//! Looking at the stacks of a process that runs, and tuning them.
//!
//! Each process with stacks keeps a socket in this user's folder, `stack-PID.sock`. A client sends one
//! request, a line of JSON; the response is one look at all endpoints, and the connection is closed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use selvedge_comm_stack::endpoint::{Endpoint, EndpointView, Tuning};
use selvedge_place_cpu::daemon;
use serde::{Deserialize, Serialize};

/// How long either end waits for the other.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The largest look that is read: that of some ten thousand connections.
const RESPONSE_MAX: u64 = 32 << 20;
/// The longest line that asks.
const ASK_MAX: u64 = 4096;
/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StackRequest {
    /// A look.
    Look,
    /// One after this is changed at all endpoints.
    Tune(Tuning),
}

/// One look at a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it was started as.
    pub command: String,
    /// Its endpoints.
    pub endpoints: Vec<EndpointView>,
    /// Why nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Hands a process's endpoints over, one after the other.
pub type Each<'a> = &'a mut dyn FnMut(&Endpoint);

/// Answers those who want to look at this process; closed when dropped.
pub struct StackControlServer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StackControlServer {
    /// Opens it. If that fails the process goes on, and can't be looked at: the log says why.
    pub fn open(command: &str, each: impl Fn(Each<'_>) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut control_server =
            Self { path: PathBuf::new(), stop: Arc::clone(&stop), thread: None };
        let pid = std::process::id();
        let command = command.to_owned();
        let opened = path(pid).and_then(|path| {
            // One that is left over is of a process that had our number before.
            let _ = std::fs::remove_file(&path);
            Ok((UnixListener::bind(&path)?, path))
        });
        let answer = move |listener: UnixListener| {
            while let Ok((stream, _)) = listener.accept() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let command = command.clone();
                let mut process = Process { pid, command, endpoints: Vec::new(), refused: None };
                // Who does not read what he asked for has gone.
                let _ = answer(stream, &mut process, &each);
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
        // To be connected to wakes the thread; if that fails, it is left to the process's end.
        if let Some(thread) = self.thread.take()
            && UnixStream::connect(&self.path).is_ok()
        {
            let _ = thread.join();
        }
        if !self.path.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn answer(stream: UnixStream, process: &mut Process, each: &dyn Fn(Each<'_>)) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut asked = String::new();
    BufReader::new((&stream).take(ASK_MAX)).read_line(&mut asked)?;
    match serde_json::from_str(&asked) {
        Ok(StackRequest::Look) => {}
        Ok(StackRequest::Tune(tuning)) => each(&mut |endpoint| {
            if let Err(why) = endpoint.tune(&tuning) {
                process.refused = Some(why.to_string());
            }
        }),
        Err(why) => process.refused = Some(format!("that is nothing to ask for: {why}")),
    }
    each(&mut |endpoint| process.endpoints.push(endpoint.view()));
    (&stream).write_all(serde_json::to_string(process)?.as_bytes())
}

fn path(pid: u32) -> io::Result<PathBuf> {
    let folder = daemon::folder().map_err(io::Error::other)?;
    Ok(folder.join(format!("stack-{pid}.sock")))
}

/// All processes that can be looked at, by number.
///
/// # Errors
/// If this user's folder can't be read.
pub fn processes() -> io::Result<Vec<u32>> {
    let folder = daemon::folder().map_err(io::Error::other)?;
    let names = std::fs::read_dir(folder)?.flatten();
    let pid = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("stack-")?.strip_suffix(".sock")?.parse().ok()
    };
    let mut pids: Vec<u32> = names.filter_map(pid).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// What a process answers; `None` if it has gone.
///
/// # Errors
/// If its socket can't be used, or its answer is no look.
pub fn request(pid: u32, asked: &StackRequest) -> io::Result<Option<Process>> {
    let path = path(pid)?;
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // It was killed: what it left behind is of no use to anyone.
            let _ = std::fs::remove_file(&path);
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("{}\n", serde_json::to_string(asked)?).as_bytes())?;
    let mut text = String::new();
    stream.take(RESPONSE_MAX).read_to_string(&mut text)?;
    // It was about to end.
    if text.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&text)?))
}

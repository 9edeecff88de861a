//! A web server of an experiment's own, on a free port of the loopback, and how much it can do.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use selvedge_units::Duration;

use crate::experiment::RunError;
use crate::measure::pause;

/// A process, ended when dropped.
pub(super) struct ChildGuard(pub(super) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program that ends by itself, for so long at most: what it printed.
pub(super) fn printed(command: &mut Command, most: StdDuration) -> std::io::Result<String> {
    let mut held = ChildGuard(command.stdout(Stdio::piped()).spawn()?);
    let Some(mut out) = held.0.stdout.take() else { return Ok(String::new()) };
    // Read as it comes, so that it never waits for a reader.
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).map(|_| bytes)
    });
    let end = StdInstant::now() + most;
    while held.0.try_wait()?.is_none() {
        if StdInstant::now() > end {
            let why = format!("it did not end within {} s", most.as_secs());
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, why));
        }
        pause(Duration::from_millis(10));
    }
    let bytes = reader.join().unwrap_or_else(|_| Ok(Vec::new()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn missing(
    program: &'static str,
    package: &'static str,
) -> impl Fn(std::io::Error) -> RunError {
    move |why| RunError::Program { program, package, why }
}

/// How a server is started: so that the one child is all there is to end.
pub(super) struct ServerProgram {
    pub(super) name: &'static str,
    /// What the package is called, and what to say if it does not come up.
    pub(super) package: &'static str,
    pub(super) needs: &'static str,
    /// Its configuration for a folder and a port.
    pub(super) config: fn(&Path, u16) -> String,
    /// Its command line for the folder and the configuration's file.
    pub(super) args: fn(&mut Command, &Path, &Path),
}

/// The web server, until it is dropped; it has one page.
pub(super) struct WebServer {
    folder: PathBuf,
    pub(super) port: u16,
    _child: ChildGuard,
}

impl WebServer {
    pub(super) fn start(program: &ServerProgram, page: &[u8]) -> Result<Self, RunError> {
        let ServerProgram { name, package, needs, config, args } = *program;
        let fails = missing(name, package);
        let folder = std::env::temp_dir().join(format!("selvedge-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(&fails)?;
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(&fails)?
            .port();
        fs::write(folder.join("page.html"), page).map_err(&fails)?;
        let file = folder.join("config");
        fs::write(&file, config(&folder, port)).map_err(&fails)?;
        let mut command = Command::new(name);
        args(&mut command, &folder, &file);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(&fails)?;
        let web = Self { folder, port, _child: ChildGuard(child) };
        let end = StdInstant::now() + StdDuration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if StdInstant::now() > end {
                return Err(RunError::Needs(format!("{name} does not listen after 10 s{needs}")));
            }
            pause(Duration::from_millis(10));
        }
        Ok(web)
    }

    /// A `wrk` that asks for the page with these connections for so long, to be started.
    pub(super) fn wrk(&self, connections: u32, seconds: u64) -> Command {
        let mut command = Command::new("wrk");
        command
            .arg(format!("-t{}", connections.min(2)))
            .arg(format!("-c{connections}"))
            .arg(format!("-d{seconds}s"))
            .arg(format!("http://127.0.0.1:{}/page.html", self.port))
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // A folder among the temporary files is no harm, if it stays.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Requests a second that a run of `wrk` did.
pub(super) fn rate_of(mut wrk: Command) -> Result<f64, RunError> {
    let fails = missing("wrk", "wrk");
    let text = printed(&mut wrk, StdDuration::from_secs(60)).map_err(&fails)?;
    let found = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Requests/sec:")?.trim().parse::<f64>().ok());
    found
        .filter(|&rate| rate > 0.0)
        .ok_or_else(|| fails(std::io::Error::other(format!("it says: {text}"))))
}

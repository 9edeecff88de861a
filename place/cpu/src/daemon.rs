//! The daemon that one user's programs share: it owns the dispatchers, one for each processor that
//! has tasks. The first client starts it; it ends when it has been without tasks for a while.
//!
//! A client connects, says what it wants, and holds the connection as long as its program runs;
//! the program is whatever the client has started. If the client goes, however it goes, its task
//! goes, and its threads are ordinary again.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use selvedge_data_cpu::{Config, Promise};

use crate::class;
use crate::dispatch::Dispatcher;
use crate::in_kernel::{InKernel, Loads};
use crate::kernel_tasks::{self, KernelTask};
use crate::members::MemberRule;
use crate::protocol::{LINE_MAX, Outcome, Response, TaskRequest};

/// How long it waits for the next client before it ends.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// How long a client may take to say what it wants, or to take an answer.
const CLIENT_MAX: Duration = Duration::from_secs(10);
/// How many clients there may be at once.
const CLIENTS_MAX: usize = 256;

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Its folder is not this user's own.
    #[error("{0} belongs to somebody else or others may write there; remove it")]
    Folder(PathBuf),
    /// Something of the file system or of sockets.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Where its socket is: `selvedge` in `$XDG_RUNTIME_DIR`, or in a folder of this user's in `/tmp`.
///
/// # Errors
/// [`DaemonError`]: the folder can't be made, or is not to be trusted.
pub fn folder() -> Result<PathBuf, DaemonError> {
    let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = match run.filter(|path| path.is_absolute()) {
        Some(run) => run.join("selvedge"),
        None => PathBuf::from(format!("/tmp/selvedge-{}", class::this_user())),
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(DaemonError::Io(folder, error));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(&folder);
    let found = found.map_err(|error| DaemonError::Io(folder.clone(), error))?;
    let ours = found.is_dir()
        && found.uid() == class::this_user()
        && found.permissions().mode().trailing_zeros() >= 6;
    if ours { Ok(folder) } else { Err(DaemonError::Folder(folder)) }
}

/// The socket's path.
///
/// # Errors
/// As [`folder`].
pub fn socket() -> Result<PathBuf, DaemonError> {
    Ok(folder()?.join("cpu.sock"))
}

/// Who is there.
#[derive(Debug, Default)]
struct ClientRegistry {
    /// Clients connected.
    clients: usize,
    /// Whether it was told to end.
    stop: bool,
    /// How many have come so far.
    accepted: u64,
}

struct Daemon {
    dispatchers: Vec<Dispatcher>,
    /// The scheduler in the kernel, once somebody has asked for it.
    in_kernel: Mutex<Option<Box<dyn InKernel>>>,
    /// Its tasks; locked while `in_kernel` is.
    kernel_tasks: Mutex<Vec<KernelTask>>,
    loads: Option<Loads>,
    registry: Mutex<ClientRegistry>,
    changed: Condvar,
}

/// Serves until there have been no clients for two seconds, or SIGTERM or SIGINT. If another
/// daemon of this user serves already, it returns at once. `loads` loads the kernel's scheduler
/// when it is asked for; it is given up with the daemon.
///
/// # Errors
/// [`DaemonError`].
pub fn serve(loads: Option<Loads>) -> Result<(), DaemonError> {
    let folder = folder()?;
    let at = |error| DaemonError::Io(folder.clone(), error);
    let lock = folder.join("cpu.lock");
    let lock: File = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(lock)
        .map_err(at)?;
    if !class::lock(&lock).map_err(at)? {
        return Ok(());
    }
    let path = folder.join("cpu.sock");
    // A daemon that was killed leaves its socket; the lock says that nobody serves it.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(at)?;
    let new = |cpu| Dispatcher::new(cpu, Config::default());
    let dispatchers: io::Result<Vec<_>> = class::processors().into_iter().map(new).collect();
    let daemon = Arc::new(Daemon {
        dispatchers: dispatchers.map_err(at)?,
        in_kernel: Mutex::new(None),
        kernel_tasks: Mutex::new(Vec::new()),
        loads,
        registry: Mutex::new(ClientRegistry::default()),
        changed: Condvar::new(),
    });
    let hears = Arc::clone(&daemon);
    let signals = [libc::SIGTERM, libc::SIGINT];
    let mut signals = signal_hook::iterator::Signals::new(signals).map_err(at)?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            hears.registry().stop = true;
            hears.changed.notify_all();
        }
    });
    let accepts = Arc::clone(&daemon);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            accepts.accept_client(stream);
        }
    });
    daemon.wait();
    // Before the lock is given up, so that it is surely this daemon's.
    let _ = std::fs::remove_file(&path);
    for dispatcher in &daemon.dispatchers {
        dispatcher.release_all();
    }
    drop(daemon.kernel().take());
    drop(lock);
    Ok(())
}

impl Daemon {
    fn registry(&self) -> std::sync::MutexGuard<'_, ClientRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until there is nothing to do any more.
    fn wait(&self) {
        let mut registry = self.registry();
        while !registry.stop {
            if registry.clients > 0 {
                registry = self.changed.wait(registry).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(registry, IDLE_MAX);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            registry = after;
            if timeout.timed_out() && registry.clients == 0 {
                return;
            }
        }
    }

    fn accept_client(self: &Arc<Self>, stream: UnixStream) {
        let mut registry = self.registry();
        if registry.clients >= CLIENTS_MAX {
            let full = Response::Refused(format!("{CLIENTS_MAX} programs run already"));
            let _ = send_line(&stream, &full);
            return;
        }
        registry.clients += 1;
        drop(registry);
        self.changed.notify_all();
        let daemon = Arc::clone(self);
        std::thread::spawn(move || {
            // Whatever goes wrong with a client is its own affair: it sees the end of the line.
            if let Err(error) = daemon.handle_client(&stream) {
                tracing::debug!("client: {error}");
            }
            daemon.registry().clients -= 1;
            daemon.changed.notify_all();
        });
    }

    /// One client, from its wish to its end.
    fn handle_client(&self, stream: &UnixStream) -> io::Result<()> {
        let (pid, user) = class::peer(stream)?;
        if user != class::this_user() {
            return Ok(());
        }
        // Who says nothing would keep the daemon for ever.
        stream.set_write_timeout(Some(CLIENT_MAX))?;
        stream.set_read_timeout(Some(CLIENT_MAX))?;
        let mut lines = BufReader::new(stream);
        let request = match serde_json::from_str::<TaskRequest>(&line(&mut lines)?) {
            Ok(request) => request,
            Err(error) => {
                return send_line(stream, &Response::Refused(format!("not a wish: {error}")));
            }
        };
        // From here on it is silent for as long as its program runs.
        stream.set_read_timeout(None)?;
        if request.in_kernel {
            return self.handle_kernel_client(stream, &mut lines, &request, pid);
        }
        let (dispatcher, id, promise) = match self.admit(&request, pid) {
            Ok(admitted) => admitted,
            Err(why) => return send_line(stream, &Response::Refused(why)),
        };
        let every_period = promise == Promise::EveryPeriod;
        let sent = send_line(stream, &Response::Admitted { cpu: dispatcher.cpu(), every_period });
        // Until it says that it ends, or is gone.
        let ended = sent.and_then(|()| line(&mut lines));
        let report = dispatcher.remove(id);
        if ended?.trim() == "end"
            && let Some(report) = report
        {
            let outcome = Outcome::new(&report.counts, report.refused);
            return send_line(stream, &Response::Ended(outcome));
        }
        Ok(())
    }

    fn kernel(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn InKernel>>> {
        self.in_kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client whose program the kernel's own scheduler is to schedule.
    fn handle_kernel_client(
        &self,
        stream: &UnixStream,
        lines: &mut impl BufRead,
        request: &TaskRequest,
        pid: i32,
    ) -> io::Result<()> {
        let client = {
            let mut registry = self.registry();
            registry.accepted += 1;
            registry.accepted
        };
        let (cpu, promise) = match self.admit_in_kernel(request, pid, client) {
            Ok(admitted) => admitted,
            Err(answer) => return send_line(stream, &answer),
        };
        let every_period = promise == Promise::EveryPeriod;
        let sent = send_line(stream, &Response::Admitted { cpu, every_period });
        let ended = sent.and_then(|()| line(lines));
        let counts = self.remove_client_task(client);
        if ended?.trim() == "end"
            && let Some(counts) = counts
        {
            return send_line(stream, &Response::Ended(Outcome::new(&counts, None)));
        }
        Ok(())
    }

    fn kernel_tasks(&self) -> std::sync::MutexGuard<'_, Vec<KernelTask>> {
        self.kernel_tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client's task goes from the kernel, and others take the room: what became of it.
    fn remove_client_task(&self, client: u64) -> Option<selvedge_data_cpu::Counts> {
        let mut kernel = self.kernel();
        let kernel = kernel.as_mut()?;
        let mut kernel_tasks = self.kernel_tasks();
        let at = kernel_tasks.iter().position(|kernel_task| kernel_task.client == client)?;
        let kernel_task = kernel_tasks.swap_remove(at);
        let counts =
            kernel_tasks::sum(&kernel_task.before, &kernel.remove(kernel_task.cpu, kernel_task.id));
        let processors: Vec<usize> = self.dispatchers.iter().map(Dispatcher::cpu).collect();
        kernel_tasks::balance(&mut kernel_tasks, kernel.as_mut(), &processors);
        Some(counts)
    }

    fn admit_in_kernel(
        &self,
        request: &TaskRequest,
        pid: i32,
        client: u64,
    ) -> Result<(usize, Promise), Response> {
        let task = request.task().map_err(|error| Response::Refused(error.to_string()))?;
        let built = "this program was built without the kernel placement";
        let loads = self.loads.ok_or_else(|| Response::Lacking(built.to_owned()))?;
        let mut kernel = self.kernel();
        let kernel = match &mut *kernel {
            Some(kernel) => kernel,
            none => none.insert(loads().map_err(Response::Lacking)?),
        };
        let all = self.dispatchers.iter().map(Dispatcher::cpu);
        let able = all.filter(|&cpu| request.cpu.is_none_or(|request| request == cpu));
        let cpu = able.rev().min_by_key(|&cpu| kernel.load(cpu));
        let none = || Response::Refused("there is no such processor".to_owned());
        let cpu = cpu.ok_or_else(none)?;
        let refused = |why: String| Response::Refused(format!("processor {cpu}: {why}"));
        class::confine(pid, cpu).map_err(|error| refused(error.to_string()))?;
        let before = kernel.load(cpu);
        let (id, promise) = kernel.admit(cpu, &task, pid, request.events).map_err(refused)?;
        self.kernel_tasks().push(KernelTask {
            client,
            cpu,
            id,
            by_events: request.events,
            needs: kernel.load(cpu).saturating_sub(before),
            fixed: request.cpu.is_some(),
            before: selvedge_data_cpu::Counts::default(),
        });
        Ok((cpu, promise))
    }

    fn admit(
        &self,
        request: &TaskRequest,
        pid: i32,
    ) -> Result<(&Dispatcher, selvedge_data_cpu::TaskId, Promise), String> {
        let task = request.task().map_err(|error| error.to_string())?;
        let mut able: Vec<&Dispatcher> = self.dispatchers.iter().collect();
        if let Some(cpu) = request.cpu {
            able.retain(|dispatcher| dispatcher.cpu() == cpu);
        }
        // Where most is left; of equal ones the last, since the first has the interrupts.
        let best = able.iter().rev().min_by_key(|d| (!d.would_admit(&task), d.load()));
        let dispatcher = *best.ok_or_else(|| {
            let cpus: Vec<_> = self.dispatchers.iter().map(|d| d.cpu().to_string()).collect();
            format!("there is no such processor; there are {}", cpus.join(", "))
        })?;
        let (id, promise) = dispatcher
            .admit(&task, MemberRule::StartedBy(pid), request.events)
            .map_err(|refused| format!("processor {}: {refused}", dispatcher.cpu()))?;
        Ok((dispatcher, id, promise))
    }
}

/// A line of at most [`LINE_MAX`] bytes.
///
/// # Errors
/// `UnexpectedEof` at the end, `InvalidData` for longer ones.
pub(crate) fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut text = String::new();
    from.take(LINE_MAX).read_line(&mut text)?;
    match text.pop() {
        Some('\n') => Ok(text),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub(crate) fn send_line(mut to: &UnixStream, what: &impl serde::Serialize) -> io::Result<()> {
    let text = serde_json::to_string(what).map_err(io::Error::other)?;
    to.write_all(format!("{text}\n").as_bytes())
}

#[cfg(test)]
mod tests;

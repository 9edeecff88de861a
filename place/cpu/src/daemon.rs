//! The daemon that one user's programs share: it owns the dispatchers, one for each processor that has tasks.
//! The first client starts it; it ends when it has been without tasks for some time.
//!
//! A client connects, sends its request, and holds the connection as long as its program runs; the program is
//! everything that the client has started. When the client goes, for whatever reason, its task is removed,
//! and its threads are ordinary again.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use selvedge_data_cpu::{Config, Promise, TaskId};
use selvedge_os::control::{Connection, ControlError, FOREVER};
use selvedge_os::seqpacket;
use selvedge_units::Duration;

use crate::class;
use crate::dispatch::Dispatcher;
use crate::in_kernel::{InKernel, KernelError, Loads};
use crate::kernel_tasks::{self, KernelTask};
use crate::members::MemberRule;
use crate::protocol::{Outcome, Request, Response, TaskRequest};

/// How long the daemon waits for the next client before it ends.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// How long a client may take to send its request.
const CLIENT_MAX: Duration = Duration::from_secs(10);
/// The most clients at once.
const CLIENTS_MAX: usize = 256;

/// Why the daemon can't run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Its folder is not this user's own.
    #[error("{0} belongs to somebody else or others may write there; remove it")]
    Folder(PathBuf),
    /// An error of the file system or of sockets.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Why a task is not admitted.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    /// The numbers do not form a valid task.
    #[error(transparent)]
    Task(#[from] selvedge_data_cpu::TaskError),
    /// The requested processor does not exist.
    #[error("there is no processor {request}; there are {there:?}")]
    NoProcessor { request: usize, there: Vec<usize> },
    /// The processor has no room for it.
    #[error("processor {cpu}: {why}")]
    Full { cpu: usize, why: KernelError },
    /// The kernel's scheduler can't be loaded.
    #[error("{0}")]
    Lacking(String),
}

/// An admitted task.
#[derive(Debug)]
enum Admitted<'d> {
    Dispatched(&'d Dispatcher, TaskId),
    /// The client's number.
    InKernel(u64),
}

/// The folder of its socket: `selvedge` in `$XDG_RUNTIME_DIR`, or in a folder of this user's in `/tmp`.
///
/// # Errors
/// [`DaemonError`]: the folder can't be made, or is not trustworthy.
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

/// The connected clients.
#[derive(Debug, Default)]
struct ClientRegistry {
    /// Clients connected.
    clients: usize,
    /// Whether it must end.
    stop: bool,
    /// The number of clients accepted so far.
    accepted: u64,
}

struct Daemon {
    dispatchers: Vec<Dispatcher>,
    /// The scheduler in the kernel, once a client has requested it.
    in_kernel: Mutex<Option<Box<dyn InKernel>>>,
    /// Its tasks; locked while `in_kernel` is.
    kernel_tasks: Mutex<Vec<KernelTask>>,
    loads: Option<Loads>,
    registry: Mutex<ClientRegistry>,
    changed: Condvar,
}

/// Serves until there have been no clients for two seconds, or SIGTERM or SIGINT. If another daemon of this
/// user serves already, it returns at once. `loads` loads the kernel's scheduler on request; the scheduler is
/// released with the daemon.
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
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(()),
        locked => locked.map_err(|error| at(error.into()))?,
    }
    let path = folder.join("cpu.sock");
    // A daemon that was killed leaves its socket; the lock shows that no daemon serves it.
    let _ = std::fs::remove_file(&path);
    let listener = seqpacket::listen_at(&path).map_err(at)?;
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
            hears.registry.lock().stop = true;
            hears.changed.notify_all();
        }
    });
    let accepts = Arc::clone(&daemon);
    std::thread::spawn(move || {
        accepts.accept(&listener);
    });
    daemon.wait();
    // Removed before the lock is released, so that it is surely this daemon's.
    let _ = std::fs::remove_file(&path);
    for dispatcher in &daemon.dispatchers {
        dispatcher.release_all();
    }
    drop(daemon.in_kernel.lock().take());
    drop(lock);
    Ok(())
}

impl Daemon {
    /// Waits until there is nothing left to do.
    fn wait(&self) {
        let mut registry = self.registry.lock();
        while !registry.stop {
            if registry.clients > 0 {
                self.changed.wait(&mut registry);
                continue;
            }
            let waited = self.changed.wait_for(&mut registry, IDLE_MAX.into());
            if waited.timed_out() && registry.clients == 0 {
                return;
            }
        }
    }

    fn accept(self: &Arc<Self>, listener: &OwnedFd) {
        while seqpacket::wait_readable(listener, FOREVER) {
            match Connection::accept(listener) {
                Ok(Some(connection)) => self.accept_client(connection),
                Ok(None) => {}
                Err(error) => return tracing::warn!(%error, "no more clients are served"),
            }
        }
    }

    fn accept_client(self: &Arc<Self>, connection: Connection) {
        let mut registry = self.registry.lock();
        if registry.clients >= CLIENTS_MAX {
            let full = format!("{CLIENTS_MAX} programs run already");
            let _ = connection.answer::<Response>(Err(&full), &[], &[]);
            return;
        }
        registry.clients += 1;
        registry.accepted += 1;
        let client = registry.accepted;
        drop(registry);
        self.changed.notify_all();
        let daemon = Arc::clone(self);
        std::thread::spawn(move || {
            // An error concerns only its client, which sees the end of the connection.
            if let Err(error) = daemon.handle_client(client, &connection) {
                tracing::debug!("client: {error}");
            }
            daemon.registry.lock().clients -= 1;
            daemon.changed.notify_all();
        });
    }

    /// Serves one client, from its request to its end.
    fn handle_client(&self, client: u64, connection: &Connection) -> Result<(), ControlError> {
        let peer = connection.peer().map_err(|_| ControlError::Closed)?;
        if peer.uid.as_raw() != class::this_user() {
            return Ok(());
        }
        // A silent client would otherwise keep the daemon for ever.
        let request = match connection.wait(CLIENT_MAX).map(|message| message.body) {
            Ok(Request::Admit(request)) => request,
            Ok(Request::End {}) => {
                return connection.answer::<Response>(Err(&"nothing runs"), &[], &[]);
            }
            Err(error) => return connection.answer::<Response>(Err(&error), &[], &[]),
        };
        let pid = peer.pid.as_raw_nonzero().get();
        let (admitted, cpu, promise) = match self.admit(&request, pid, client) {
            Ok(admitted) => admitted,
            Err(Refusal::Lacking(why)) => {
                return connection.answer(Ok(&Response::Lacking { why }), &[], &[]);
            }
            Err(why) => return connection.answer::<Response>(Err(&why), &[], &[]),
        };
        let every_period = promise == Promise::EveryPeriod;
        let sent = connection.answer(Ok(&Response::Admitted { cpu, every_period }), &[], &[]);
        // The client is silent for as long as its program runs, until it reports the end, or is gone.
        let ended = sent.and_then(|()| connection.wait(FOREVER));
        let outcome = self.remove_client_task(admitted);
        match (ended?.body, outcome) {
            (Request::End {}, Some(outcome)) => {
                connection.answer(Ok(&Response::Ended(outcome)), &[], &[])
            }
            _ => Ok(()),
        }
    }

    /// Removes a client's task; returns its counts.
    fn remove_client_task(&self, admitted: Admitted<'_>) -> Option<Outcome> {
        match admitted {
            Admitted::Dispatched(dispatcher, id) => {
                let report = dispatcher.remove(id)?;
                Some(Outcome::new(&report.counts, report.refused))
            }
            Admitted::InKernel(client) => {
                let mut kernel = self.in_kernel.lock();
                let kernel = kernel.as_mut()?;
                let mut kernel_tasks = self.kernel_tasks.lock();
                let at =
                    kernel_tasks.iter().position(|kernel_task| kernel_task.client == client)?;
                let kernel_task = kernel_tasks.swap_remove(at);
                let counts = kernel_tasks::sum(
                    &kernel_task.before,
                    &kernel.remove(kernel_task.cpu, kernel_task.id),
                );
                // Other tasks take the room.
                let processors: Vec<usize> = self.dispatchers.iter().map(Dispatcher::cpu).collect();
                kernel_tasks::balance(&mut kernel_tasks, kernel.as_mut(), &processors);
                Some(Outcome::new(&counts, None))
            }
        }
    }

    fn admit(
        &self,
        request: &TaskRequest,
        pid: i32,
        client: u64,
    ) -> Result<(Admitted<'_>, usize, Promise), Refusal> {
        if request.in_kernel {
            let (cpu, promise) = self.admit_in_kernel(request, pid, client)?;
            return Ok((Admitted::InKernel(client), cpu, promise));
        }
        let task = request.task()?;
        let mut able: Vec<&Dispatcher> = self.dispatchers.iter().collect();
        if let Some(cpu) = request.cpu {
            able.retain(|dispatcher| dispatcher.cpu() == cpu);
        }
        // The processor with the most left; of equal ones the last, since the first has the interrupts.
        let best = able.iter().rev().min_by_key(|d| (!d.would_admit(&task), d.load()));
        let dispatcher = *best.ok_or_else(|| self.no_processor(request))?;
        let cpu = dispatcher.cpu();
        let (id, promise) = dispatcher
            .admit(&task, MemberRule::StartedBy(pid), request.events)
            .map_err(|why| Refusal::Full { cpu, why: why.into() })?;
        Ok((Admitted::Dispatched(dispatcher, id), cpu, promise))
    }

    fn no_processor(&self, request: &TaskRequest) -> Refusal {
        let there = self.dispatchers.iter().map(Dispatcher::cpu).collect();
        Refusal::NoProcessor { request: request.cpu.unwrap_or_default(), there }
    }

    fn admit_in_kernel(
        &self,
        request: &TaskRequest,
        pid: i32,
        client: u64,
    ) -> Result<(usize, Promise), Refusal> {
        let task = request.task()?;
        let built =
            || Refusal::Lacking("this program was built without the kernel placement".into());
        let loads = self.loads.ok_or_else(built)?;
        let mut kernel = self.in_kernel.lock();
        let kernel = match &mut *kernel {
            Some(kernel) => kernel,
            none => none.insert(loads().map_err(|why| Refusal::Lacking(why.to_string()))?),
        };
        let all = self.dispatchers.iter().map(Dispatcher::cpu);
        let able = all.filter(|&cpu| request.cpu.is_none_or(|request| request == cpu));
        let cpu = able.rev().min_by_key(|&cpu| kernel.load(cpu));
        let cpu = cpu.ok_or_else(|| self.no_processor(request))?;
        let full = |why| Refusal::Full { cpu, why };
        class::confine(pid, cpu).map_err(|error| full(error.into()))?;
        let before = kernel.load(cpu);
        let (id, promise) = kernel.admit(cpu, &task, pid, request.events).map_err(full)?;
        self.kernel_tasks.lock().push(KernelTask {
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
}

#[cfg(test)]
mod tests;

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
use crate::members::Who;
use crate::protocol::{Answer, LINE_MAX, Outcome, Wanted};
use crate::seats::{self, Seat};

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
struct Hall {
    /// Clients connected.
    clients: usize,
    /// Whether it was told to end.
    stop: bool,
    /// How many have come so far.
    came: u64,
}

struct Daemon {
    dispatchers: Vec<Dispatcher>,
    /// The scheduler in the kernel, once somebody has asked for it.
    in_kernel: Mutex<Option<Box<dyn InKernel>>>,
    /// Its tasks; locked while `in_kernel` is.
    seats: Mutex<Vec<Seat>>,
    loads: Option<Loads>,
    hall: Mutex<Hall>,
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
        seats: Mutex::new(Vec::new()),
        loads,
        hall: Mutex::new(Hall::default()),
        changed: Condvar::new(),
    });
    let hears = Arc::clone(&daemon);
    let signals = [libc::SIGTERM, libc::SIGINT];
    let mut signals = signal_hook::iterator::Signals::new(signals).map_err(at)?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            hears.hall().stop = true;
            hears.changed.notify_all();
        }
    });
    let accepts = Arc::clone(&daemon);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            accepts.welcome(stream);
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
    fn hall(&self) -> std::sync::MutexGuard<'_, Hall> {
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until there is nothing to do any more.
    fn wait(&self) {
        let mut hall = self.hall();
        while !hall.stop {
            if hall.clients > 0 {
                hall = self.changed.wait(hall).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(hall, IDLE_MAX);
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            hall = after;
            if timeout.timed_out() && hall.clients == 0 {
                return;
            }
        }
    }

    fn welcome(self: &Arc<Self>, stream: UnixStream) {
        let mut hall = self.hall();
        if hall.clients >= CLIENTS_MAX {
            let full = Answer::Refused(format!("{CLIENTS_MAX} programs run already"));
            let _ = say(&stream, &full);
            return;
        }
        hall.clients += 1;
        drop(hall);
        self.changed.notify_all();
        let daemon = Arc::clone(self);
        std::thread::spawn(move || {
            // Whatever goes wrong with a client is its own affair: it sees the end of the line.
            if let Err(error) = daemon.attend(&stream) {
                tracing::debug!("client: {error}");
            }
            daemon.hall().clients -= 1;
            daemon.changed.notify_all();
        });
    }

    /// One client, from its wish to its end.
    fn attend(&self, stream: &UnixStream) -> io::Result<()> {
        let (pid, user) = class::peer(stream)?;
        if user != class::this_user() {
            return Ok(());
        }
        // Who says nothing would keep the daemon for ever.
        stream.set_write_timeout(Some(CLIENT_MAX))?;
        stream.set_read_timeout(Some(CLIENT_MAX))?;
        let mut lines = BufReader::new(stream);
        let wanted = match serde_json::from_str::<Wanted>(&line(&mut lines)?) {
            Ok(wanted) => wanted,
            Err(error) => return say(stream, &Answer::Refused(format!("not a wish: {error}"))),
        };
        // From here on it is silent for as long as its program runs.
        stream.set_read_timeout(None)?;
        if wanted.in_kernel {
            return self.attend_in_kernel(stream, &mut lines, &wanted, pid);
        }
        let (dispatcher, id, promise) = match self.admit(&wanted, pid) {
            Ok(admitted) => admitted,
            Err(why) => return say(stream, &Answer::Refused(why)),
        };
        let every_period = promise == Promise::EveryPeriod;
        let told = say(stream, &Answer::Admitted { cpu: dispatcher.cpu(), every_period });
        // Until it says that it ends, or is gone.
        let ended = told.and_then(|()| line(&mut lines));
        let report = dispatcher.remove(id);
        if ended?.trim() == "end"
            && let Some(report) = report
        {
            let outcome = Outcome::new(&report.counts, report.refused);
            return say(stream, &Answer::Ended(outcome));
        }
        Ok(())
    }

    fn kernel(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn InKernel>>> {
        self.in_kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client whose program the kernel's own scheduler is to schedule.
    fn attend_in_kernel(
        &self,
        stream: &UnixStream,
        lines: &mut impl BufRead,
        wanted: &Wanted,
        pid: i32,
    ) -> io::Result<()> {
        let client = {
            let mut hall = self.hall();
            hall.came += 1;
            hall.came
        };
        let (cpu, promise) = match self.admit_in_kernel(wanted, pid, client) {
            Ok(admitted) => admitted,
            Err(answer) => return say(stream, &answer),
        };
        let every_period = promise == Promise::EveryPeriod;
        let told = say(stream, &Answer::Admitted { cpu, every_period });
        let ended = told.and_then(|()| line(lines));
        let counts = self.dismiss(client);
        if ended?.trim() == "end"
            && let Some(counts) = counts
        {
            return say(stream, &Answer::Ended(Outcome::new(&counts, None)));
        }
        Ok(())
    }

    fn seats(&self) -> std::sync::MutexGuard<'_, Vec<Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client's task goes from the kernel, and others take the room: what became of it.
    fn dismiss(&self, client: u64) -> Option<selvedge_data_cpu::Counts> {
        let mut kernel = self.kernel();
        let kernel = kernel.as_mut()?;
        let mut seats = self.seats();
        let at = seats.iter().position(|seat| seat.client == client)?;
        let seat = seats.swap_remove(at);
        let counts = seats::sum(&seat.before, &kernel.remove(seat.cpu, seat.id));
        let processors: Vec<usize> = self.dispatchers.iter().map(Dispatcher::cpu).collect();
        seats::balance(&mut seats, kernel.as_mut(), &processors);
        Some(counts)
    }

    fn admit_in_kernel(
        &self,
        wanted: &Wanted,
        pid: i32,
        client: u64,
    ) -> Result<(usize, Promise), Answer> {
        let task = wanted.task().map_err(|error| Answer::Refused(error.to_string()))?;
        let built = "this program was built without the kernel placement";
        let loads = self.loads.ok_or_else(|| Answer::Lacking(built.to_owned()))?;
        let mut kernel = self.kernel();
        let kernel = match &mut *kernel {
            Some(kernel) => kernel,
            none => none.insert(loads().map_err(Answer::Lacking)?),
        };
        let all = self.dispatchers.iter().map(Dispatcher::cpu);
        let able = all.filter(|&cpu| wanted.cpu.is_none_or(|wanted| wanted == cpu));
        let cpu = able.rev().min_by_key(|&cpu| kernel.load(cpu));
        let none = || Answer::Refused("there is no such processor".to_owned());
        let cpu = cpu.ok_or_else(none)?;
        let refused = |why: String| Answer::Refused(format!("processor {cpu}: {why}"));
        class::confine(pid, cpu).map_err(|error| refused(error.to_string()))?;
        let before = kernel.load(cpu);
        let (id, promise) = kernel.admit(cpu, &task, pid, wanted.events).map_err(refused)?;
        self.seats().push(Seat {
            client,
            cpu,
            id,
            by_events: wanted.events,
            needs: kernel.load(cpu).saturating_sub(before),
            fixed: wanted.cpu.is_some(),
            before: selvedge_data_cpu::Counts::default(),
        });
        Ok((cpu, promise))
    }

    fn admit(
        &self,
        wanted: &Wanted,
        pid: i32,
    ) -> Result<(&Dispatcher, selvedge_data_cpu::TaskId, Promise), String> {
        let task = wanted.task().map_err(|error| error.to_string())?;
        let mut able: Vec<&Dispatcher> = self.dispatchers.iter().collect();
        if let Some(cpu) = wanted.cpu {
            able.retain(|dispatcher| dispatcher.cpu() == cpu);
        }
        // Where most is left; of equal ones the last, since the first has the interrupts.
        let best = able.iter().rev().min_by_key(|d| (!d.would_admit(&task), d.load()));
        let dispatcher = *best.ok_or_else(|| {
            let cpus: Vec<_> = self.dispatchers.iter().map(|d| d.cpu().to_string()).collect();
            format!("there is no such processor; there are {}", cpus.join(", "))
        })?;
        let (id, promise) = dispatcher
            .admit(&task, Who::StartedBy(pid), wanted.events)
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

pub(crate) fn say(mut to: &UnixStream, what: &impl serde::Serialize) -> io::Result<()> {
    let text = serde_json::to_string(what).map_err(io::Error::other)?;
    to.write_all(format!("{text}\n").as_bytes())
}

#[cfg(test)]
mod tests;

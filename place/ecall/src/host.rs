//! A host of services: one thread that hands calls in, runs services when they are due, and hands their events
//! out, earliest deadline first. Each service has a socket of its own name: the list of services is
//! the directory.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use selvedge_dispatch::dispatch::Dispatcher;
use selvedge_host::clock::{Clock, exact_timers, timespec};
use selvedge_host::seqpacket;
use selvedge_units::{Instant, Span};

use crate::queue::{ByTime, EVENTS_MAX, Event, Raiser};
use crate::service::{NAME_MAX, Service};
use crate::subscriber::{Connection, Heard, Held};

/// The most services of a host, and connections of a service.
const SERVICES_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 256;

/// Where services are found if nothing else is said: beside the channels.
#[must_use]
pub fn directory() -> PathBuf {
    selvedge_local::directory().join("services")
}

/// The services of a directory; those whose host was killed are among them until their name is used
/// again.
#[must_use]
pub fn services(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Why a service can't be registered, or a host not be started.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Its name will not do.
    #[error(
        "a service's name has 1 to {NAME_MAX} of a-z 0-9 - _ . and does not begin with \".\": \"{0}\""
    )]
    Name(String),
    /// Somebody has it.
    #[error("a service \"{0}\" is there already; end its host, or take another name")]
    Taken(String),
    /// Too many.
    #[error("a host has at most {SERVICES_MAX} services; start another")]
    Full,
    /// The directory or socket can't be made.
    #[error("services can't be found in \"{path}\": {why}; give another directory")]
    Directory {
        /// Which.
        path: String,
        /// What the system said.
        why: std::io::Error,
    },
    /// Something of this system's.
    #[error("{0}")]
    System(#[source] std::io::Error),
}

/// What became of a service's calls and events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Calls handed in: fast, deferred, direct, generic.
    pub calls: [u64; 4],
    /// Of them, those that the service refused.
    pub refused: u64,
    /// Events that it raised.
    pub raised: u64,
    /// Handed to subscribers: one for each.
    pub delivered: u64,
    /// Their deadline had passed.
    pub expired: u64,
    /// Dropped: a subscriber had no room, or too many waited.
    pub dropped: u64,
    /// Events for which the scheduler was asked to prefer a subscriber.
    pub preferred: u64,
    /// Subscribers now.
    pub subscribers: u64,
    /// Connections that were ended since their memory made no sense.
    pub broken: u64,
}

#[derive(Default)]
struct Control {
    new: Vec<Served>,
    counts: Vec<(String, ServiceCounts)>,
    taken: HashSet<String>,
    stop: bool,
}

struct Shared {
    control: Mutex<Control>,
    stir: OwnedFd,
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A host; its services end when it is dropped.
pub struct Host {
    directory: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts one whose services are found in a directory, which is made. With a dispatcher, subscribers may
    /// be preferred by the scheduler of its processor.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn start(
        directory: &Path,
        dispatcher: Option<Arc<Dispatcher>>,
    ) -> Result<Self, RegisterError> {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let path = directory.display().to_string();
        builder.create(directory).map_err(|why| RegisterError::Directory { path, why })?;
        let system = |error: rustix::io::Errno| RegisterError::System(error.into());
        let stir = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(system)?;
        let shared = Arc::new(Shared { control: Mutex::default(), stir });
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("services".to_owned());
        let work = move || Work::new(theirs, dispatcher).run();
        let thread = Some(builder.spawn(work).map_err(RegisterError::System)?);
        Ok(Self { directory: directory.to_owned(), shared, thread })
    }

    /// Registers a service: from now on programs find it by its name.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing is changed then.
    pub fn register(&self, service: Box<dyn Service>) -> Result<(), RegisterError> {
        let name = service.name().to_owned();
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if !(1..=NAME_MAX).contains(&name.len()) || !name.bytes().all(fits) || name.starts_with('.')
        {
            return Err(RegisterError::Name(name));
        }
        if self.shared.control().taken.len() >= SERVICES_MAX {
            return Err(RegisterError::Full);
        }
        let path = self.directory.join(&name);
        let listener = match seqpacket::listen_at(&path) {
            Ok(listener) => listener,
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(RegisterError::Taken(name));
            }
            Err(why) => {
                return Err(RegisterError::Directory { path: path.display().to_string(), why });
            }
        };
        let mut control = self.shared.control();
        control.taken.insert(name.clone());
        control.new.push(Served {
            name,
            service,
            listener,
            path,
            connections: Vec::new(),
            next: Some(Instant::ZERO),
            turn: 0,
            counts: ServiceCounts::default(),
        });
        drop(control);
        self.stir();
        Ok(())
    }

    /// What became of a service's calls and events, as of the host's last turn.
    #[must_use]
    pub fn counts(&self, name: &str) -> Option<ServiceCounts> {
        let control = self.shared.control();
        control.counts.iter().find(|(known, _)| known == name).map(|(_, counts)| *counts)
    }

    fn stir(&self) {
        let _ = rustix::io::write(&self.shared.stir, &1_u64.to_ne_bytes());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.control().stop = true;
        self.stir();
        if let Some(thread) = self.thread.take() {
            // It panics only by a bug, which its message has told already.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// A service, and who is connected to it.
pub(crate) struct Served {
    name: String,
    pub(crate) service: Box<dyn Service>,
    listener: OwnedFd,
    path: PathBuf,
    connections: Vec<Connection>,
    /// When it is to be run.
    next: Option<Instant>,
    /// Whose turn it is to get an event for one.
    turn: usize,
    pub(crate) counts: ServiceCounts,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What the thread has.
struct Work {
    shared: Arc<Shared>,
    dispatcher: Option<Arc<Dispatcher>>,
    services: Vec<Served>,
    events: ByTime<Event>,
    /// Calls that wait for their time.
    held: ByTime<Held>,
    clock: Clock,
}

impl Work {
    fn new(shared: Arc<Shared>, dispatcher: Option<Arc<Dispatcher>>) -> Self {
        let (events, held) = (ByTime::new(EVENTS_MAX), ByTime::new(EVENTS_MAX));
        Self { shared, dispatcher, services: Vec::new(), events, held, clock: Clock::shared() }
    }

    fn run(mut self) {
        exact_timers();
        loop {
            {
                let mut control = self.shared.control();
                if control.stop {
                    return;
                }
                self.services.append(&mut control.new);
                control.counts.clear();
                let counts = self.services.iter().map(|one| (one.name.clone(), one.counts));
                control.counts.extend(counts);
            }
            let now = self.clock.now();
            let more = self.take_calls(now);
            self.run_services(now, &more);
            self.dispatch();
            if more.iter().any(|more| *more) {
                // What else is there is taken before it sleeps; others had their turn.
                self.wait(Some(now));
            } else {
                let next = self.next();
                self.wait(next);
            }
        }
    }

    /// Hands in the calls that lie in memory, and those whose time has come; which services had some.
    fn take_calls(&mut self, now: Instant) -> Vec<bool> {
        let mut had = vec![false; self.services.len()];
        while let Some(held) = self.held.pop_due(now) {
            let Some(at) = self.services.iter().position(|one| one.name == held.service) else {
                continue;
            };
            held.hand_in(now, &mut self.services[at]);
            had[at] = true;
        }
        for (at, served) in self.services.iter_mut().enumerate() {
            let mut connections = std::mem::take(&mut served.connections);
            connections.retain_mut(|connection| {
                match connection.take_calls(now, served, &mut self.held) {
                    Ok(calls) => {
                        had[at] |= calls > 0;
                        true
                    }
                    Err(()) => {
                        served.counts.broken += 1;
                        connection.leave(served, self.dispatcher.as_deref());
                        false
                    }
                }
            });
            served.connections = connections;
        }
        had
    }

    fn run_services(&mut self, now: Instant, had_calls: &[bool]) {
        for (at, served) in self.services.iter_mut().enumerate() {
            let due = served.next.is_some_and(|next| next <= now);
            if !due && !had_calls[at] && !served.is_readable() {
                continue;
            }
            let subscribers = served.connections.iter().filter(|one| one.is_subscriber()).count();
            let mut raiser =
                Raiser { queue: &mut self.events, service: at, subscribers, raised: 0, dropped: 0 };
            served.next = served.service.run(now, &mut raiser);
            let Raiser { raised, dropped, .. } = raiser;
            served.counts.raised += raised;
            served.counts.dropped += dropped;
        }
    }

    /// Hands the events out that were raised.
    fn dispatch(&mut self) {
        while let Some(event) = self.events.pop() {
            let served = &mut self.services[event.service];
            if event.deadline.is_some_and(|deadline| deadline < self.clock.now()) {
                served.counts.expired += 1;
                continue;
            }
            served.hand_out(&event, self.dispatcher.as_deref(), self.clock);
        }
        for served in &mut self.services {
            for connection in &mut served.connections {
                connection.flush();
            }
        }
    }

    /// When something is due.
    fn next(&self) -> Option<Instant> {
        let services = self.services.iter().filter_map(|served| served.next);
        services.chain(self.held.first()).min()
    }

    /// Sleeps until then, or until something comes; takes what came by sockets.
    fn wait(&mut self, until: Option<Instant>) {
        let until = until.unwrap_or(Instant::MAX);
        let all = || self.services.iter().flat_map(|served| &served.connections);
        let quiet = all().all(|connection| connection.lie_down(until));
        let left = if quiet { until.since(self.clock.now()) } else { Span::ZERO };
        let mut fds = vec![PollFd::new(&self.shared.stir, PollFlags::IN)];
        for served in &self.services {
            fds.push(PollFd::new(&served.listener, PollFlags::IN));
            // One without a descriptor has a place all the same.
            let watched = served.service.watch().unwrap_or_else(|| self.shared.stir.as_fd());
            fds.push(PollFd::from_borrowed_fd(watched, PollFlags::IN));
            for connection in &served.connections {
                let [socket, event] = connection.fds();
                fds.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
                fds.push(PollFd::from_borrowed_fd(event, PollFlags::IN));
            }
        }
        let limit = timespec(left.0);
        let limit = (!quiet || until != Instant::MAX).then_some(&limit);
        let polled = poll(&mut fds, limit);
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for connection in all() {
            connection.rise();
        }
        match polled {
            Ok(0) => return,
            Ok(_) => {}
            // A signal, or out of kernel memory: no busy loop.
            Err(_) => {
                self.clock.sleep_until(self.clock.now() + Span::from_millis(1));
                return;
            }
        }
        let mut ready = ready.into_iter();
        if ready.next() == Some(true) {
            let _ = rustix::io::read(&self.shared.stir, &mut [0; 8]);
        }
        let now = self.clock.now();
        for at in 0..self.services.len() {
            let (comes, _) = (ready.next() == Some(true), ready.next());
            let served = &mut self.services[at];
            let mut connections = std::mem::take(&mut served.connections);
            connections.retain_mut(|connection| {
                let (says, _) = (ready.next() == Some(true), ready.next());
                let heard = if says {
                    connection.hear(now, served, self.dispatcher.as_deref())
                } else {
                    Heard::Nothing
                };
                match heard {
                    Heard::Nothing => {}
                    // What it raises for that is raised now.
                    Heard::Call => served.next = Some(Instant::ZERO),
                    Heard::End => connection.leave(served, self.dispatcher.as_deref()),
                }
                heard != Heard::End
            });
            served.connections = connections;
            if comes {
                served.accept();
            }
        }
    }
}

impl Served {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn accept(&mut self) {
        match seqpacket::accept(&self.listener) {
            Ok(Some(socket)) if self.connections.len() < CONNECTIONS_MAX => {
                self.connections.extend(Connection::new(socket));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(service = self.name, %error, "can't take a program on");
            }
        }
    }

    fn is_readable(&self) -> bool {
        let Some(watched) = self.service.watch() else { return false };
        let mut fds = [PollFd::from_borrowed_fd(watched, PollFlags::IN)];
        let now = timespec(0);
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Hands an event to those whom it is for.
    fn hand_out(&mut self, event: &Event, dispatcher: Option<&Dispatcher>, clock: Clock) {
        use crate::service::Target;
        let count = self.connections.len();
        let (mut given, mut refused) = (0, 0);
        for step in 0..count {
            let at = if event.target == Target::One { (self.turn + step) % count } else { step };
            let connection = &mut self.connections[at];
            let wanted = match event.target {
                Target::All | Target::One => connection.is_subscriber(),
                Target::Pid(pid) => connection.is_subscriber() && connection.pid() == pid,
            };
            if !wanted {
                continue;
            }
            if !connection.give(event) {
                refused += 1;
                continue;
            }
            given += 1;
            if event.cpu
                && let (Some(dispatcher), Some(task)) = (dispatcher, connection.task())
            {
                let left = event.deadline.map_or(LEFT, |due| due.since(clock.now()));
                self.counts.preferred += u64::from(dispatcher.raise(task, left).is_ok());
            }
            // Called after it is preferred, so that it wakes with its preference.
            connection.flush();
            if event.target == Target::One {
                self.turn = at + 1;
                refused = 0;
                break;
            }
        }
        self.counts.delivered += given;
        self.counts.dropped += if event.target == Target::One { refused.min(1) } else { refused };
    }
}

/// An event without a deadline is to be seen to by then.
const LEFT: Span = Span::from_millis(10);

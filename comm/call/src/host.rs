//! A host of services: one thread that delivers calls, runs services when they are due, and
//! delivers their events, earliest deadline first. Each service has a socket of its own name: the
//! directory is the list of services.

mod registered;
mod thread;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use selvedge_os::eventfd::EventFd;
use selvedge_os::seqpacket;
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_units::Instant;

use self::registered::RegisteredService;
use self::thread::HostThread;
use crate::registered::{Registered, ServiceCounts};
use crate::service::{NAME_MAX, Service};

/// The largest number of services of a host.
const SERVICES_MAX: usize = 64;

/// The default directory of services, beside that of the channels.
#[must_use]
pub fn directory() -> PathBuf {
    selvedge_comm_local::directory().join("services")
}

/// The services of a directory. Those of a killed host are listed until their name is used again.
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
    /// The name is invalid.
    #[error(
        "a service's name has 1 to {NAME_MAX} of a-z 0-9 - _ . and does not begin with \".\": \"{0}\""
    )]
    Name(String),
    /// The name is taken.
    #[error("a service \"{0}\" is there already; end its host, or take another name")]
    Taken(String),
    /// The host has too many services.
    #[error("a host has at most {SERVICES_MAX} services; start another")]
    Full,
    /// The directory or socket can't be made.
    #[error("services can't be found in \"{path}\": {why}; give another directory")]
    Directory {
        /// The path.
        path: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// Another error of the system.
    #[error("{0}")]
    System(#[source] std::io::Error),
}

#[derive(Default)]
struct Control {
    new: Vec<RegisteredService>,
    counts: Vec<(String, ServiceCounts)>,
    taken: HashSet<String>,
    stop: bool,
}

struct Shared {
    control: Mutex<Control>,
    wake_event: EventFd,
}

/// A host; its services end when it is dropped.
pub struct Host {
    directory: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts a host whose services are found in a directory, which is created. With a dispatcher,
    /// the scheduler of its processor may prefer subscribers.
    pub fn start(
        directory: &Path,
        dispatcher: Option<Arc<Dispatcher>>,
    ) -> Result<Self, RegisterError> {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let path = directory.display().to_string();
        builder.create(directory).map_err(|why| RegisterError::Directory { path, why })?;
        let wake_event = EventFd::new().map_err(RegisterError::System)?;
        let shared = Arc::new(Shared { control: Mutex::default(), wake_event });
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("services".to_owned());
        let work = move || HostThread::new(theirs, dispatcher).run();
        let thread = Some(builder.spawn(work).map_err(RegisterError::System)?);
        Ok(Self { directory: directory.to_owned(), shared, thread })
    }

    /// Registers a service: from now on programs can find it by its name.
    ///
    /// # Errors
    /// [`RegisterError`]; then nothing is changed.
    pub fn register(&self, service: Box<dyn Service>) -> Result<(), RegisterError> {
        let name = service.name().to_owned();
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if !(1..=NAME_MAX).contains(&name.len()) || !name.bytes().all(fits) || name.starts_with('.')
        {
            return Err(RegisterError::Name(name));
        }
        if self.shared.control.lock().taken.len() >= SERVICES_MAX {
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
        let mut control = self.shared.control.lock();
        control.taken.insert(name.clone());
        control.new.push(RegisteredService {
            registered: Registered { name, service, counts: ServiceCounts::default() },
            listener,
            path,
            connections: Vec::new(),
            next: Some(Instant::ZERO),
            turn: 0,
        });
        drop(control);
        self.wake_thread();
        Ok(())
    }

    /// The counts of a service's calls and events, as of the host's last turn.
    #[must_use]
    pub fn counts(&self, name: &str) -> Option<ServiceCounts> {
        let control = self.shared.control.lock();
        control.counts.iter().find(|(known, _)| known == name).map(|(_, counts)| *counts)
    }

    fn wake_thread(&self) {
        self.shared.wake_event.ring();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.control.lock().stop = true;
        self.wake_thread();
        if let Some(thread) = self.thread.take() {
            // The thread panics only by a bug, and its message was printed then.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("directory", &self.directory).finish_non_exhaustive()
    }
}

//! A running service: loaded, its events read in the order of their deadlines.

mod change;
mod prepare;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use libbpf_rs::{Link, MapHandle, Object, ProgramInput};
use selvedge_control_code::Program;
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::memory::Mapping;
use selvedge_os_bpf::{release, types};
use selvedge_os_jit::Hook;
use selvedge_units::{Duration, Instant};

use crate::catalog::Service;
use crate::change_ring::ChangeRing;
use crate::error::ServiceError;
use crate::handler::{self, Slot};
use crate::layout::{EVENT, Event, RING, Settings, TALLY, Tally};
use crate::load::{handle, load, mapped, refused, tracepoint};
use crate::ring::Ring;
use crate::signal::Target;

use self::change::change_ring;
pub use self::change::{Change, ChangePath};
use self::prepare::{cgroup, fix, network};

/// The options of a service.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// The service.
    pub service: Service,
    /// The kinds of events, by name; empty: all that this kernel supports.
    pub kinds: Vec<String>,
    /// Without a handler: smaller values raise no event. A handler sees it as `input.threshold`.
    pub threshold: u64,
    /// Without a handler: at most one event of a kind in this time. Occurrences in between are
    /// counted and summed into the next event, or reported by a timer in the kernel once the time
    /// is over; then with the greatest value, and no process or key.
    pub interval: Duration,
    /// An event's deadline, from the occurrence; `None`: no deadline.
    pub deadline: Option<Duration>,
    /// Only this process; `None`: all but this one.
    pub pid: Option<u32>,
    /// Only this control group of version 2 and those below it (`memory` only).
    pub cgroup: Option<PathBuf>,
    /// Only sockets on this local port (`socket`, and `net` where a socket is known).
    pub port: Option<u16>,
    /// All network namespaces, not only this process's (`socket` and `net`).
    pub every_network: bool,
    /// The handler that decides, in E-code.
    pub handler: Option<Program>,
    /// Whether events request that the scheduler prefer their process.
    pub prefer: bool,
}

impl WatchOptions {
    /// All events of a service, without aggregation.
    pub fn new(service: Service) -> Self {
        Self {
            service,
            kinds: Vec::new(),
            threshold: 0,
            interval: Duration(0),
            deadline: None,
            pid: None,
            cgroup: None,
            port: None,
            every_network: false,
            handler: None,
            prefer: false,
        }
    }
}

/// The largest number of events that wait here for their turn by deadline.
const WAITING_MAX: usize = 4096;

/// A running service. Dropping it unloads all of it.
#[derive(Debug)]
pub struct Watch {
    service: Service,
    kinds: Vec<usize>,
    absent: Vec<ServiceError>,
    // Links are dropped before the objects that they refer to.
    links: Vec<Link>,
    object: Object,
    ring: Ring,
    settings: Mapping,
    tally: Mapping,
    slot: Slot,
    jobs: Option<MapHandle>,
    change_ring: Option<ChangeRing>,
    is_timed: bool,
    /// Earliest deadline first, then in the order of arrival; those without deadline last.
    waiting: BTreeMap<(u64, u64), Event>,
    taken: u64,
    expired: u64,
    signal: Option<Target>,
    unsent: u64,
}

/// Whether process numbers here are the kernel's, in the first PID namespace (`PROC_PID_INIT_INO`).
fn knows_the_kernels_processes() -> bool {
    std::fs::read_link("/proc/self/ns/pid")
        .map_or(true, |namespace| namespace.as_os_str() == "pid:[4026531836]")
}

impl Watch {
    /// Starts a service.
    ///
    /// # Errors
    /// If the options are invalid, this process lacks the right, or this kernel lacks a function.
    pub fn start(wish: WatchOptions) -> Result<Self, ServiceError> {
        let way =
            if ChangeRing::are_supported() { ChangePath::Posted } else { ChangePath::SystemCall };
        Self::start_by(wish, way)
    }

    /// The same, with a given path for changes into the kernel.
    fn start_by(wish: WatchOptions, way: ChangePath) -> Result<Self, ServiceError> {
        let service = wish.service;
        let types = types()?;
        if !knows_the_kernels_processes() {
            return Err(ServiceError::PidNamespace);
        }
        let mut absent = Vec::new();
        let mut kinds = Vec::new();
        for (number, kind) in service.kinds().iter().enumerate() {
            if !wish.kinds.is_empty() && !wish.kinds.iter().any(|name| name == kind.name) {
                continue;
            }
            match kind.programs.iter().find(|(_, point)| !tracepoint(&types, point)) {
                None => kinds.push(number),
                Some((_, tracepoint)) => absent.push(ServiceError::NoTracepoint {
                    what: format!("{service} {}", kind.name),
                    tracepoint,
                    release: release(),
                }),
            }
        }
        if let Some(kind) = wish.kinds.iter().find(|name| service.kind(name).is_none()) {
            let known: Vec<_> = service.kinds().iter().map(|kind| kind.name).collect();
            let known = known.join(", ");
            return Err(ServiceError::Kind { service, kind: kind.clone(), known });
        }
        // Kinds that were requested by name must exist.
        if (!wish.kinds.is_empty() || kinds.is_empty())
            && let Some(error) = absent.pop()
        {
            return Err(error);
        }
        let settings = Settings {
            threshold: wish.threshold,
            interval: wish.interval.0,
            deadline: wish.deadline.map_or(0, |span| span.0),
            cgroup: wish.cgroup.as_deref().map_or(Ok(0), cgroup)?,
            pid: wish.pid.unwrap_or(0),
            own: std::process::id(),
            port: wish.port.map_or(0, u32::from),
            // Set once the handler is in place.
            handled: 0,
            prefer: u32::from(wish.prefer),
            network: if wish.every_network { 0 } else { network() },
            posted: 0,
            kinds: kinds.iter().fold(0, |mask, kind| mask | 1 << kind),
        };
        let mut points: Vec<(&str, &str)> = Vec::new();
        for kind in &kinds {
            for pair in service.kinds()[*kind].programs {
                if !points.contains(pair) {
                    points.push(*pair);
                }
            }
        }
        let has_posts = way == ChangePath::Posted;
        let object = load(service.object(), |open| fix(open, &points, &settings, has_posts))?;
        let events = handle(&object, "events")?;
        let ring = Ring::new(events, RING).map_err(|why| ServiceError::Call("the ring", why))?;
        let slot = Slot::new(&object, Hook::Trace, handler::OCCURRENCE)?;
        let mut watch = Self {
            service,
            kinds,
            absent,
            links: Vec::new(),
            ring,
            settings: mapped(&object, ".data.settings", Settings::SIZE)?,
            tally: mapped(&object, ".data.tally", TALLY)?,
            slot,
            jobs: handle(&object, "jobs").ok(),
            change_ring: if has_posts { Some(change_ring(&object)?) } else { None },
            is_timed: false,
            object,
            waiting: BTreeMap::new(),
            taken: 0,
            expired: 0,
            signal: None,
            unsent: 0,
        };
        if let Some(program) = wish.handler {
            watch.set_handler(program)?;
        }
        watch.attach(&points)?;
        if wish.interval > Duration::ZERO {
            watch.time()?;
        }
        Ok(watch)
    }

    fn attach(&mut self, points: &[(&str, &str)]) -> Result<(), ServiceError> {
        for program in self.object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if let Some((_, point)) = points.iter().find(|(one, _)| *one == name) {
                self.links.push(program.attach_raw_tracepoint(point).map_err(refused)?);
            }
        }
        Ok(())
    }

    /// The service.
    pub fn service(&self) -> Service {
        self.service
    }

    /// The kinds that it watches, as indices into [`Service::kinds`].
    pub fn kinds(&self) -> &[usize] {
        &self.kinds
    }

    /// The kinds that this kernel lacks, and why.
    pub fn absent(&self) -> &[ServiceError] {
        &self.absent
    }

    /// Replaces the handler while the service runs.
    ///
    /// # Errors
    /// If the kernel refuses it; then the old one stays.
    pub fn set_handler(&mut self, program: Program) -> Result<(), ServiceError> {
        self.slot.set(program)?;
        self.settings.atomic_u32(Settings::HANDLED).store(1, Ordering::Release);
        Ok(())
    }

    /// Sets a process that also gets a signal for each event that [`Self::poll`] returns.
    pub fn set_signal(&mut self, target: Option<Target>) {
        self.signal = target;
    }

    /// The descriptor that is readable when there are events.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ring.descriptor()
    }

    /// Waits for events; `false` if the time is over, or a signal came.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        if !self.waiting.is_empty() {
            return Ok(true);
        }
        wait(self.ring.descriptor(), Some(at_most))
    }

    /// The event with the earliest deadline. Expired ones are dropped and counted.
    pub fn poll(&mut self, now: Instant) -> Option<Event> {
        self.collect();
        while let Some((_, event)) = self.waiting.pop_first() {
            if event.is_expired(now) {
                self.expired += 1;
                continue;
            }
            if let Some(target) = &self.signal
                && target.send(event.value).is_err()
            {
                self.unsent += 1;
            }
            return Some(event);
        }
        None
    }

    fn collect(&mut self) {
        let mut record = [0; EVENT];
        while self.waiting.len() < WAITING_MAX
            && let Some(length) = self.ring.pop(&mut record)
        {
            if let Some(event) = Event::parse(&record[..length]) {
                let due = event.deadline.map_or(u64::MAX, |deadline| deadline.0);
                self.taken += 1;
                self.waiting.insert((due, self.taken), event);
            }
        }
    }

    /// Calls the handler with `input.tick` set, for occurrences that were gathered while it was
    /// busy. Without a handler it does nothing. Posted calls are carried out first.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn tick(&mut self) -> Result<(), ServiceError> {
        self.run("tick")
    }

    /// Runs an unattached program once.
    fn run(&mut self, name: &str) -> Result<(), ServiceError> {
        let failed = |why| ServiceError::Call("a program of the service", why);
        let mut programs = self.object.progs_mut();
        let Some(program) = programs.find(|program| program.name() == name) else {
            return Err(failed(io::ErrorKind::NotFound.into()));
        };
        let done = program.test_run(ProgramInput::default());
        let done = done.map_err(|error| failed(io::Error::other(error)))?;
        match done.return_value.cast_signed() {
            0 => Ok(()),
            errno => Err(failed(io::Error::from_raw_os_error(-errno))),
        }
    }

    /// The counts of the occurrences so far.
    pub fn tally(&self) -> Tally {
        let mut bytes = [0; TALLY];
        self.tally.read(0, &mut bytes);
        Tally::parse(&bytes)
    }

    /// The last fault of the handler, with its place in the source.
    pub fn fault(&self) -> Option<String> {
        self.slot.fault(&self.tally())
    }

    /// The number of events that were dropped here after their deadline, and of signals that were
    /// not accepted.
    pub fn dropped_counts(&self) -> (u64, u64) {
        (self.expired, self.unsent)
    }
}

/// Waits until a descriptor is readable; `false` if the time is over, or a signal came.
pub(crate) fn wait(descriptor: BorrowedFd<'_>, at_most: Option<Duration>) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, poll};
    let time = at_most.map(|span| timespec(span.0));
    let mut polled = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    match poll(&mut polled, time.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The monotonic clock, which stamps events.
pub fn now() -> Instant {
    Clock::shared().now()
}

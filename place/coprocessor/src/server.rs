//! The coprocessor: an engine on a thread of its own, and the control socket that adds and removes streams
//! while it runs. Only the smallest part of each request is done on the engine's thread.

mod producer;
mod refusal;
mod steps;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use selvedge_comm_carrier::{CarriedStream, LinkRate, StackHost};
use selvedge_control_config::LinkConfig;
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::control::Connection;
use selvedge_os::seqpacket;
use selvedge_os::wake::sleeper;
use selvedge_place_engine::engine::{Engine, EngineError, Extension, Stage, spin};
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bytes, Duration};

use crate::extensions::{Entry, TABLE};
use crate::frame_consumer::SharedConsumer;
use crate::message::LinkSpec;
use crate::poller::SharedPoller;
use crate::realtime::{self, RealtimeGrant, RealtimeRequest};

use refusal::Refusal;
use steps::{Step, StepStore};

pub(crate) use producer::{Producer, StreamInfo};

/// The most producers at once.
pub const PRODUCERS_MAX: usize = 256;
/// How often the control thread checks whether it must stop.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// The longest time for sending the frames that a dead producer left.
const DRAIN: Duration = Duration::from_secs(5);

/// The settings of a coprocessor.
#[derive(Clone, Debug)]
pub struct Options {
    /// The link that it owns.
    pub link: LinkConfig,
    /// The path at which it listens.
    pub socket: PathBuf,
    /// The settings requested for its engine's thread.
    pub realtime_request: RealtimeRequest,
    /// How long it watches the doorbells before it sleeps; `u64::MAX` ns: it never sleeps.
    pub watch: Duration,
    /// The most memory that all streams together share with it.
    pub memory: Bytes,
    /// It ends when no producer has been attached for this long; `None`: it stays.
    pub alone: Option<Duration>,
}

/// The value of [`Options::memory`] where none is stated.
pub const MEMORY: Bytes = Bytes(4_000_000_000);

/// Why a coprocessor can't run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It can't listen at its path.
    #[error("can't listen at \"{at}\": {why}; give another path, or stop who listens there")]
    Listen {
        /// The path.
        at: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// The engine did not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An error of the system.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A listening coprocessor with a running engine.
pub struct Coprocessor {
    /// The extensions that can be loaded; more may be added before it runs.
    pub extensions: Vec<Entry>,
    pub(crate) engine: Engine<SharedConsumer>,
    pub(crate) clock: Clock,
    pub(crate) options: Options,
    pub(crate) granted: RealtimeGrant,
    /// By number; more than the engine has, until a request removes the others.
    pub(crate) streams: BTreeMap<usize, StreamInfo>,
    listener: OwnedFd,
    pub(crate) over: bool,
    steps: StepStore,
    /// The endpoints of the streams that stacks carry.
    stacks: StackHost,
    /// The link's present rate.
    rate: LinkRate,
}

impl Coprocessor {
    /// Starts the engine and listens.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let failed = |why| StartError::Listen { at: options.socket.display().to_string(), why };
        let listener = seqpacket::listen_at(&options.socket).map_err(failed)?;
        let clock = Clock::shared();
        let before = spin(&options.link);
        let (own, waker) = sleeper(clock, before)?;
        let port = SharedPoller::new(clock, own, before, options.watch)?;
        let realtime_request = options.realtime_request;
        let (sender, receiver) = mpsc::channel();
        let engine = Engine::launch(clock, &options.link, port, waker, move || {
            // The receiver still exists: it waits just below.
            let _ = sender.send(realtime::ask(realtime_request));
        })?;
        let granted = receiver.recv().map_err(|_| io::Error::other("the engine's thread ended"))?;
        for refused in &granted.refused {
            tracing::warn!("running without {refused}");
        }
        tracing::info!(link = options.link.name, runs = %granted, "coprocessor runs");
        let extensions = TABLE.to_vec();
        let steps = StepStore::for_socket(&options.socket);
        let stacks = StackHost::new(format!("coprocessor {}", options.link.name), clock);
        let rate = LinkRate::new(options.link.rate);
        Ok(Self {
            extensions,
            engine,
            clock,
            options,
            granted,
            streams: BTreeMap::new(),
            listener,
            over: false,
            steps,
            stacks,
            rate,
        })
    }

    /// The path at which it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.options.socket
    }

    /// Loads an extension before any producer attaches; false if there are 32 already.
    pub fn load(&self, name: &str, point: Stage, step: Box<dyn Extension>) -> bool {
        self.engine.load(name, point, step)
    }

    /// How the engine's thread runs, in words.
    #[must_use]
    pub fn runs(&self) -> String {
        self.granted.to_string()
    }

    /// Serves producers until it is stopped. Waiting frames stay in the producers' memory.
    ///
    /// # Errors
    /// If the control socket fails.
    pub fn serve(mut self, stop: &AtomicBool) -> io::Result<()> {
        self.load_again();
        let mut producers: Vec<Producer> = Vec::new();
        let mut alone_since = self.clock.now();
        while !stop.load(Ordering::Relaxed) && !self.over {
            let now = self.clock.now();
            if !producers.is_empty() {
                alone_since = now;
            }
            if self.options.alone.is_some_and(|most| now.since(alone_since) >= most) {
                tracing::info!("nobody is attached: ending");
                break;
            }
            let listens = producers.len() < PRODUCERS_MAX;
            let mut fds: Vec<PollFd<'_>> = producers
                .iter()
                .map(|p| PollFd::from_borrowed_fd(p.socket(), PollFlags::IN))
                .collect();
            if listens {
                fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
            }
            match poll(&mut fds, Some(&timespec(POLL_EVERY.0))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if listens
                && ready.last() == Some(&true)
                && let Some(connection) = Connection::accept(&self.listener)?
            {
                producers.push(Producer::new(connection));
            }
            let mut kept = Vec::with_capacity(producers.len());
            for (mut producer, ready) in producers.into_iter().zip(ready.into_iter().chain([false]))
            {
                if !ready || producer.serve(&mut self) {
                    kept.push(producer);
                } else {
                    producer.leave(&self);
                }
            }
            producers = kept;
            self.report_to_steps();
        }
        // The engine stops first: no more frames are taken from the rings.
        let Self { engine, options, steps, streams, .. } = self;
        drop(engine);
        drop(producers);
        // Each connection takes a moment to end, so all are requested to end before one is waited for.
        let carried: Vec<_> = streams.into_values().filter_map(|info| info.carried).collect();
        carried.iter().for_each(CarriedStream::request_stop);
        drop(carried);
        // Another coprocessor may listen there by now, or the socket may have been removed.
        let _ = std::fs::remove_file(&options.socket);
        steps.end();
        Ok(())
    }

    /// Passes on to the link's steps what the receivers of its stacks report.
    fn report_to_steps(&self) {
        let now = self.clock.now();
        for (number, info) in &self.streams {
            if let Some(carried) = &info.carried {
                self.engine.steps().handle_report(*number, carried.state().heard(now));
            }
        }
    }

    /// Makes the requested extension, and loads it.
    fn load_step(&mut self, step: Step) -> Result<(), Refusal> {
        let table = &self.extensions;
        let entry = table.iter().find(|entry| entry.name == step.extension).ok_or_else(|| {
            let there: Vec<_> = table.iter().map(|entry| entry.name).collect();
            Refusal::NoExtension { name: step.extension.clone(), there: there.join(", ") }
        })?;
        let place = Stage::from_name(&step.point).filter(|point| entry.points.contains(point));
        let place = place.ok_or_else(|| {
            let able: Vec<_> = entry.points.iter().map(|point| point.name()).collect();
            let (extension, point) = (step.extension.clone(), step.point.clone());
            Refusal::Point { extension, point, able: able.join(", ") }
        })?;
        let made = (entry.make)(&step.arguments).map_err(Refusal::Make)?;
        if !self.engine.load(&step.name, place, made) {
            return Err(Refusal::Steps);
        }
        self.steps.save(step);
        Ok(())
    }

    /// Loads the extensions of a coprocessor that was killed here.
    fn load_again(&mut self) {
        match self.steps.load_saved() {
            Ok(steps) => {
                for step in steps {
                    let name = step.name.clone();
                    match self.load_step(step) {
                        Ok(()) => tracing::warn!(name, "loaded a step again"),
                        Err(why) => tracing::warn!(name, %why, "a step can't be loaded again"),
                    }
                }
            }
            Err(why) => tracing::warn!(%why, "steps are not loaded again"),
        }
    }

    /// Forgets streams that were removed; returns the engine's newest report.
    pub(crate) fn remove_detached(&mut self) -> LinkReport {
        let report = self.engine.report();
        self.streams.retain(|number, info| {
            let is_there = report.streams.iter().any(|seen| seen.number == *number);
            if !is_there && let Some(carried) = info.carried.take() {
                // Closing waits for the peer, which may be gone.
                let closing = thread::Builder::new().name("stack close".to_owned());
                let _ = closing.spawn(move || drop(carried));
            }
            is_there
        });
        report
    }

    pub(crate) fn link(&self) -> LinkSpec {
        let link = &self.options.link;
        LinkSpec {
            name: link.name.clone(),
            discipline: link.discipline.name().to_owned(),
            rate_bps: self.engine.report().rate.0,
            mtu: link.mtu.0,
            runs: self.runs(),
            pid: std::process::id(),
        }
    }
}

/// Runs a coprocessor on threads of this process, for tests and measurements; dropping it stops it.
pub struct LocalCoprocessor {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<io::Result<()>>>,
}

impl LocalCoprocessor {
    /// Starts it.
    pub fn start(options: Options) -> Result<Self, StartError> {
        Self::serve(Coprocessor::start(options)?)
    }

    /// Serves a coprocessor that was started.
    ///
    /// # Errors
    /// [`StartError::System`].
    pub fn serve(coprocessor: Coprocessor) -> Result<Self, StartError> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("coprocessor".into())
            .spawn(move || coprocessor.serve(&flag))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for LocalCoprocessor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A failure has been reported to its producers, whose connections ended.
            let _ = thread.join();
        }
    }
}

/// The socket of a link's coprocessor where none is stated: in the user's runtime folder, or in a folder of
/// this user's own among the temporary files.
#[must_use]
pub fn default_socket(link: &str) -> PathBuf {
    default_folder().join(format!("{}{link}.sock", prefix()))
}

/// The folder of sockets without a stated path.
#[must_use]
pub fn default_folder() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    folder.filter(|p| p.is_dir()).unwrap_or_else(std::env::temp_dir)
}

/// The beginning of all their names.
fn prefix() -> String {
    format!("selvedge-{}-", rustix::process::getuid().as_raw())
}

/// Removes from a folder the sockets of coprocessors that nodes started, named by link and node, where both
/// have died. A socket with a listener, or whose node runs, stays.
pub fn remove_stale_sockets(folder: &Path) {
    let is_stale = |path: &Path| {
        let name = path.file_name().and_then(std::ffi::OsStr::to_str);
        let link = name.and_then(|name| name.strip_prefix(&prefix())?.strip_suffix(".sock"));
        let node = link.and_then(|link| Pid::from_raw(link.rsplit_once('-')?.1.parse().ok()?));
        let is_gone = |node| test_kill_process(node) == Err(Errno::SRCH);
        let refuses = || {
            let error = seqpacket::connect_to(path).err();
            error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        };
        node.is_some_and(is_gone) && refuses()
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_stale(&entry.path()) {
            // Another node may have removed it.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether a coprocessor listens at this path.
#[must_use]
pub fn listens(path: &Path) -> bool {
    Connection::open(path).is_ok()
}

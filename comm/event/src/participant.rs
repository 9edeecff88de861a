//! A process's access to channels on any host: it starts the engine, drives the exchange, and gives
//! out handles.

mod request;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use selvedge_control_event::{
    Exchange, FailureDetector, Format, Notice, NoticeKind, OpenError, Wake,
};
use selvedge_os::clock::Clock;
use selvedge_os::eventfd::EventFd;
use selvedge_units::{Duration, Instant};

use crate::address::Address;
use crate::carrier::Carrier;
use crate::channel_handle::ChannelHandle;
use crate::core::{Core, Shared};
use crate::engine;
use crate::inbox::Inbox;
use crate::keys::{ParticipantName, id};
use crate::manage::Manager;
use crate::meeting::{MeetingError, MeetingFile};
use crate::ring_transport::{RingTransport, Rings};
use crate::settings::{NameError, Settings, check_name};

pub use request::RequestError;

/// The largest number of notices that wait for a listener; newer ones are dropped.
const NOTICES_MAX: usize = 4096;

/// Why a participant can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine refuses, for example since an address is taken or a certificate is invalid.
    #[error("can't take part: {0}")]
    Engine(String),
    /// The folder where programs meet can't be used.
    #[error("can't meet the programs of this machine: {0}")]
    Meeting(#[from] MeetingError),
    /// A thread can't be started.
    #[error("no thread can be started: {0}")]
    Thread(std::io::Error),
    /// This host has no name.
    #[error("{0}; give it one as host.name")]
    Name(NameError),
}

/// A notice with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNotice {
    /// The channel.
    pub channel: String,
    /// The other host.
    pub host: Option<ParticipantName>,
    /// What happened.
    pub kind: NoticeKind,
}

/// This process among the others. Clones are one participant; it ends with the last handle.
#[derive(Clone)]
pub struct Participant {
    pub(crate) shared: Arc<Shared>,
    _alive: Arc<OwnedThreads>,
}

impl std::fmt::Debug for Participant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({})", self.shared.me)
    }
}

/// Ends the threads and the session.
struct OwnedThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Ends the wait of the rings' thread.
    stop: Option<EventFd>,
    /// The addresses where it listens.
    listen: Vec<Address>,
}

impl Drop for OwnedThreads {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.ticker.raise();
        if let Some(stop) = &self.stop {
            stop.ring();
        }
        for thread in self.threads.drain(..) {
            // The last handle may be dropped in a function that this thread calls.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        self.shared.with(|core, _| core.carrier.close());
    }
}

impl OwnedThreads {
    /// Starts the rings' thread, if rings are enabled.
    fn read_rings(&mut self) -> Result<(), StartError> {
        let rings = self.shared.with(|core, _| {
            core.carrier.ring_transport().map(|near| near.links().fd().try_clone_to_owned())
        });
        let Some(rings) = rings.transpose().map_err(StartError::Thread)? else { return Ok(()) };
        let stop = EventFd::new().map_err(StartError::Thread)?;
        self.stop = Some(stop.try_clone().map_err(StartError::Thread)?);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("selvedge-rings".to_owned());
        let thread = thread.spawn(move || shared.read_rings(&rings, &stop));
        self.threads.push(thread.map_err(StartError::Thread)?);
        Ok(())
    }
}

/// Rings to the hosts of this machine. Without them all messages go by the engine.
fn near() -> Option<RingTransport> {
    let near = RingTransport::new();
    near.inspect_err(|error| tracing::warn!(%error, "no rings inside this machine")).ok().flatten()
}

impl Participant {
    /// Starts a participant. Before a channel is opened it sends only the announcement of this process.
    ///
    /// # Errors
    /// Why it can't start.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        let me = ParticipantName {
            name: settings.name.clone().map_or_else(machine, Ok)?,
            pid: std::process::id(),
            id: id(),
        };
        let listen = listen(settings)?;
        let mut meeting = None;
        if let (true, Some(mine)) = (settings.meet, listen.first()) {
            let is_tls = settings.tls.is_some();
            let mine = if is_open(mine) { Address::loopback(mine.port()) } else { mine.clone() };
            let met = MeetingFile::new(&settings.domain, &me.id, &mine, is_tls);
            meeting = Some(met?);
        }
        // Made anew while no host is connected, since others may have come to the meeting place.
        let configured = {
            let (settings, id, listen) = (settings.clone(), me.id.clone(), listen.clone());
            move || {
                let mut connect = settings.connect.clone();
                connect.extend(meeting.iter().flat_map(MeetingFile::others));
                let zenoh_config = engine::configuration(&settings, &id, &listen, &connect);
                (zenoh_config.to_string(), connect.is_empty())
            }
        };
        let (inbox, clock) = (Arc::new(Inbox::default()), Clock::new());
        // The carrier's callbacks need the shared state that is made from the carrier.
        let slot: Arc<std::sync::OnceLock<std::sync::Weak<Shared>>> = Arc::default();
        let arrived = {
            let slot = Arc::clone(&slot);
            Arc::new(move || {
                if let Some(shared) = slot.get().and_then(std::sync::Weak::upgrade) {
                    shared.turn();
                }
            })
        };
        let (zenoh_config, _) = configured();
        let near = if settings.rings { near() } else { None };
        let domain = &settings.domain;
        let carrier =
            Carrier::new(&zenoh_config, domain, &me, Arc::clone(&inbox), arrived, clock, near)
                .map_err(|error| StartError::Engine(error.to_string()))?;
        let mut exchange = Exchange::new(clock.now());
        exchange.set_failure_detector(FailureDetector::Transport);
        if !settings.members.is_empty() {
            let (members, inbox) = (settings.members.clone(), Arc::clone(&inbox));
            exchange.set_permit(Box::new(move |host, channel, right| {
                let name = inbox.name(host);
                let member = name.and_then(|n| members.iter().find(|one| one.name == n.name));
                member.is_some_and(|member| {
                    let patterns = match right {
                        selvedge_control_event::Right::Publish => &member.publish,
                        selvedge_control_event::Right::Subscribe => &member.subscribe,
                    };
                    patterns.iter().any(|pattern| engine::means(pattern, channel))
                })
            }));
        }
        let core = Core {
            exchange,
            carrier: Box::new(carrier),
            configure: Box::new(move || {
                let (zenoh_config, is_nobody) = configured();
                (!is_nobody).then_some(zenoh_config)
            }),
            next_look: clock.now(),
            waiting: Vec::new(),
            waiting_publishers: Vec::new(),
            direct: Vec::new(),
            handle_counts: std::collections::HashMap::new(),
            listeners: Vec::new(),
            manager: Manager::new(settings.deploy.clone(), Arc::clone(&inbox)),
        };
        let shared = Arc::new(Shared::new(core, inbox, clock, me));
        let _ = slot.set(Arc::downgrade(&shared));
        let owner = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("selvedge-events".to_owned());
        let thread = thread.spawn(move || owner.run_timer()).map_err(StartError::Thread)?;
        let mut alive =
            OwnedThreads { shared: Arc::clone(&shared), threads: vec![thread], stop: None, listen };
        alive.read_rings()?;
        shared.turn();
        Ok(Self { shared, _alive: Arc::new(alive) })
    }

    /// This process, as others see it.
    pub fn name(&self) -> &ParticipantName {
        &self.shared.me
    }

    /// The addresses where it listens.
    pub fn listen(&self) -> &[Address] {
        &self._alive.listen
    }

    /// The current time, on the clock of deadlines.
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// Opens or creates a channel, without a difference. It takes microseconds; other hosts that
    /// have it open become members as soon as both have received each other's announcement.
    ///
    /// # Errors
    /// If it can't be opened.
    pub fn open(
        &self,
        name: &str,
        format: &Format,
        wake: Wake,
    ) -> Result<ChannelHandle, OpenError> {
        let channel = self.shared.with(|core, now| {
            let channel = core.exchange.open(now, name, format, wake)?;
            *core.handle_counts.entry(channel).or_default() += 1;
            Ok(channel)
        })?;
        let (shared, format) = (Arc::clone(&self.shared), Arc::new(format.clone()));
        Ok(ChannelHandle { shared, channel, format })
    }

    /// The other processes that are present.
    pub fn hosts(&self) -> Vec<ParticipantName> {
        self.shared.inbox.hosts().into_iter().map(|(_, name)| name).collect()
    }

    /// The number of messages that were dropped since too many came at once, and of those from
    /// processes that have not announced themselves.
    pub fn dropped(&self) -> (u64, u64) {
        self.shared.inbox.dropped()
    }

    /// The traffic through memory to and from the programs of this machine.
    pub fn rings(&self) -> Rings {
        let rings =
            self.shared.with(|core, _| core.carrier.ring_transport().map(|near| near.view()));
        rings.unwrap_or_default()
    }

    /// The events of members of this process's channels, from now on.
    pub fn notices(&self) -> Notices {
        let (sender, receiver) = flume::bounded(NOTICES_MAX);
        self.shared.with(|core, _| core.listeners.push(sender));
        Notices { shared: Arc::clone(&self.shared), receiver }
    }
}

/// Membership events, one after the other.
pub struct Notices {
    shared: Arc<Shared>,
    receiver: flume::Receiver<Notice>,
}

impl Notices {
    /// The next notice; waits for it at most `wait`.
    pub fn take(&self, wait: Duration) -> Option<NamedNotice> {
        let notice = self.receiver.recv_timeout(wait.into()).ok()?;
        let host = self.shared.inbox.name(notice.host);
        let channel = self
            .shared
            .with(|core, _| core.exchange.view(notice.channel).map(|view| view.name.to_owned()));
        Some(NamedNotice { channel: channel.unwrap_or_default(), host, kind: notice.kind })
    }
}

/// The machine's name, as far as it is a valid name.
fn machine() -> Result<String, StartError> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    check_name(&name).map(|()| name).map_err(StartError::Name)
}

fn is_open(address: &Address) -> bool {
    matches!(address.host(), "0.0.0.0" | "::")
}

/// The addresses to listen at: those of the settings, or the loopback; for port 0, a free port.
fn listen(settings: &Settings) -> Result<Vec<Address>, StartError> {
    let wanted = match (&settings.listen[..], settings.role) {
        ([], crate::settings::Role::Client) => return Ok(Vec::new()),
        ([], _) => vec![Address::loopback(0)],
        (given, _) => given.to_vec(),
    };
    let free = |address: &Address| {
        if address.port() != 0 {
            return Ok(address.clone());
        }
        let bound = std::net::TcpListener::bind((address.host(), 0));
        let port = bound.and_then(|bound| bound.local_addr()).map(|at| at.port());
        port.map(|port| address.with_port(port))
            .map_err(|error| StartError::Engine(format!("{address}: {error}")))
    };
    wanted.iter().map(free).collect()
}

/// The engine's configuration for a host with these settings, in the engine's own syntax, and the
/// addresses. It allows a session of the engine alone, as a baseline for measurements.
///
/// # Errors
/// If no port is free.
pub fn engine_configuration(settings: &Settings) -> Result<(String, Vec<Address>), StartError> {
    let listen = listen(settings)?;
    let zenoh_config =
        crate::engine::configuration(settings, &crate::keys::id(), &listen, &settings.connect);
    Ok((zenoh_config.to_string(), listen))
}

#[cfg(test)]
pub(crate) mod tests;

//! Connections over UDP: connect, listen, send, receive.
//!
//! An [`Endpoint`] is one socket, the elements that serve its connections, and the manager that
//! assigns them. A thread reads the socket, answers who wants to connect, and looks at what
//! connections do as often as the manager says.

mod connection;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use selvedge_host::clock::Clock;
use selvedge_stack::auto::{Event, Manager, Meta};
use selvedge_stack::compose::{ComposeError, Composition};
use selvedge_stack::contract::Contract;
use selvedge_stack::element::{Outside, Plant, Port};
use selvedge_stack::model::{Cost, Machine, Stream, StreamId};
use selvedge_stack::module::{Direction, Keys};
use selvedge_stack::stack::Line;
use selvedge_units::{Instant, Span};

pub use self::connection::Connection;
use self::reading::read;
use crate::profile::{self, ModuleProfile};
use crate::threads::Elementary;
use crate::wire::{self, Proposal};
use crate::work::LineWork;

/// Connections of an endpoint at most.
const CONNECTIONS_MAX: usize = 1024;
/// Connections that nobody has accepted yet, at most.
const BACKLOG: usize = 64;
/// A connection that hears nothing for so long has lost its peer.
const SILENCE: Span = Span::from_secs(60);
/// How often a hello is said, and how long between.
const HELLOS: u32 = 30;
const HELLO_WAIT: Duration = Duration::from_millis(100);
/// Behind each message of the application: what it is.
const DATA: u8 = 0;
const CLOSE: u8 = 1;

/// How an endpoint is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Elements, each a thread; 1 ..= 16.
    pub elements: u8,
    /// A secret that both ends must have. Without one the key exchange is anonymous: it keeps
    /// listeners out, but not someone who can change what passes.
    pub secret: Option<[u8; 32]>,
    /// How the manager decides.
    pub meta: Meta,
}

impl Default for Options {
    fn default() -> Self {
        Self { elements: 2, secret: None, meta: Meta::default() }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The line is no stack.
    #[error("stack \"{line}\": {why}")]
    Stack {
        /// What was written.
        line: String,
        /// What is wrong.
        why: ComposeError,
    },
    /// This host can't keep the contract.
    #[error("this host refuses: {0}")]
    Here(String),
    /// The other one can't.
    #[error("{peer} refuses: {why}")]
    There {
        /// Who.
        peer: SocketAddr,
        /// What it says.
        why: String,
    },
    /// Nobody answers, or not with the same secret.
    #[error(
        "{0} does not answer; check the address, that it listens, and that both have the same secret"
    )]
    Silent(SocketAddr),
    /// The socket.
    #[error("UDP socket: {0}")]
    Socket(#[from] io::Error),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// Nothing came in time.
    #[error("nothing came in time")]
    Timeout,
    /// The peer closed the connection.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer is gone.
    #[error("the peer is silent; connect again")]
    Dead,
}

/// What an endpoint counted.
#[derive(Debug, Default)]
pub struct Counters {
    /// Datagrams for no connection of ours, or no handshake.
    pub strangers: AtomicU64,
    /// Hellos that were refused or did not fit.
    pub refused: AtomicU64,
    /// Times that the manager assigned streams anew.
    pub reassigned: AtomicU64,
}

#[derive(Debug)]
struct Open {
    plant: Arc<Plant<LineWork>>,
    streams: [StreamId; 2],
    port: Port<LineWork>,
    welcome: Vec<u8>,
    heard: Instant,
    gone: Arc<AtomicBool>,
}

/// A welcome or a refusal, and what is in it.
type Answer = (u8, Vec<u8>);

#[derive(Debug)]
struct Shared {
    socket: Arc<UdpSocket>,
    clock: Clock,
    options: Options,
    elements: Elementary<LineWork>,
    manager: Mutex<Manager>,
    open: Mutex<HashMap<u32, Open>>,
    /// Answers to our hellos, by connection.
    calling: Mutex<HashMap<u32, SyncSender<Answer>>>,
    counters: Counters,
    stop: AtomicBool,
    costs: &'static [ModuleProfile],
}

/// A UDP socket with connections.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    accepted: Receiver<Connection>,
    reader: Option<JoinHandle<()>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What modules cost here, measured once.
fn costs() -> &'static [ModuleProfile] {
    static COSTS: OnceLock<Vec<ModuleProfile>> = OnceLock::new();
    COSTS.get_or_init(|| profile::modules(3))
}

impl Endpoint {
    /// Listens on an address, port 0 for any; connections can be made from it as well.
    ///
    /// # Errors
    /// What the system says of the socket or the threads.
    pub fn bind(at: SocketAddr, options: Options) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind(at)?);
        socket.set_read_timeout(Some(Duration::from_millis(5)))?;
        // As much as the system allows; less is no error.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&*socket, 4 << 20);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&*socket, 4 << 20);
        let (clock, count) = (Clock::new(), options.elements.clamp(1, 16));
        let overheads = selvedge_stack::model::Overheads::default();
        let machine = Machine::whole(count.into(), overheads);
        let manager = Mutex::new(Manager::new(machine, options.meta, clock.now()));
        let (sender, accepted) = sync_channel(BACKLOG);
        let shared = Arc::new(Shared {
            socket,
            clock,
            options,
            elements: Elementary::start(count, clock)?,
            manager,
            open: Mutex::default(),
            calling: Mutex::default(),
            counters: Counters::default(),
            stop: AtomicBool::new(false),
            costs: costs(),
        });
        let reader = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("stack reader".into())
                .spawn(move || read(&shared, &sender))?
        };
        Ok(Self { shared, accepted, reader: Some(reader) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    /// What it counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Meta-level control, from the manager's next look on.
    pub fn set(&self, meta: Meta) {
        lock(&self.shared.manager).set(meta);
    }

    /// The next connection that another host made; `None` if none came in time.
    #[must_use]
    pub fn accept(&self, patience: Duration) -> Option<Connection> {
        self.accepted.recv_timeout(patience).ok()
    }

    /// Makes a connection with this stack: `out` is the contract of what this end sends, `back` of
    /// what it receives.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(
        &self,
        peer: SocketAddr,
        line: &str,
        out: Contract,
        back: Contract,
    ) -> Result<Connection, ConnectError> {
        let shared = &self.shared;
        let composition: Composition = line
            .parse()
            .map_err(|why| ConnectError::Stack { line: line.chars().take(200).collect(), why })?;
        let here = |what: &str| ConnectError::Here(what.to_owned());
        for contract in [out, back] {
            contract.check().map_err(|error| here(&error.to_string()))?;
        }
        let streams = shared.grant(&composition, out, back).map_err(ConnectError::Here)?;
        let made =
            self.call(peer, &composition, Proposal { line: composition.to_string(), out, back });
        let (id, keys) = made.inspect_err(|_| shared.release(streams))?;
        let opened = shared.open(id, peer, &composition, &keys, streams, Vec::new());
        opened.ok_or_else(|| here("too many connections, or the same number twice; try again"))
    }

    /// The handshake.
    fn call(
        &self,
        peer: SocketAddr,
        composition: &Composition,
        proposal: Proposal,
    ) -> Result<(u32, Keys), ConnectError> {
        let _ = composition;
        let failed = || ConnectError::Here("the key exchange can't be made".to_owned());
        let secret = self.shared.options.secret.as_ref();
        let mut state = wire::noise(secret, true).ok_or_else(failed)?;
        let mut text = proposal.text().into_bytes();
        text.resize(text.len().max(wire::HELLO_MIN), 0);
        let mut payload = vec![0; wire::LONGEST];
        let len = state.write_message(&text, &mut payload).map_err(|_| failed())?;
        // The first bytes of a fresh public key are as good a number as any.
        let id = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]).max(1);
        let hello = wire::datagram(wire::HELLO, id, &payload[..len]);
        let (sender, answers) = sync_channel(4);
        lock(&self.shared.calling).insert(id, sender);
        let mut result = Err(ConnectError::Silent(peer));
        for _ in 0..HELLOS {
            self.shared.socket.send_to(&hello, peer)?;
            let Ok((kind, answer)) = answers.recv_timeout(HELLO_WAIT) else { continue };
            if kind == wire::REFUSAL {
                let why = String::from_utf8_lossy(&answer).chars().take(300).collect();
                result = Err(ConnectError::There { peer, why });
                break;
            }
            if state.read_message(&answer, &mut payload).is_ok() {
                result = Ok((id, wire::keys(&mut state, true)));
                break;
            }
        }
        lock(&self.shared.calling).remove(&id);
        result
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Shared {
    fn modules(&self, composition: &Composition, direction: Direction) -> Vec<Cost> {
        let cost = |step: &selvedge_stack::compose::Step| {
            let found = self.costs.iter().find(|cost| {
                let name = |text: &str| text.split('(').next().unwrap_or("").to_owned();
                cost.module == step.to_string() || name(&cost.module) == step.name()
            });
            found.map_or_else(Cost::default, |found| found.cost(direction))
        };
        let costs = composition.steps().iter().map(cost);
        if direction == Direction::Down { costs.collect() } else { costs.rev().collect() }
    }

    /// Both streams of a connection on this host, or why not.
    fn grant(
        &self,
        composition: &Composition,
        out: Contract,
        back: Contract,
    ) -> Result<[StreamId; 2], String> {
        let mut manager = lock(&self.manager);
        let mut open = |contract, direction| {
            let stream = Stream::new(contract, self.modules(composition, direction));
            manager.open(stream).map(|(id, _)| id).map_err(|error| error.to_string())
        };
        let first = open(out, Direction::Down)?;
        let second = open(back, Direction::Up);
        let second = second.inspect_err(|_| manager.close(first, &mut Vec::new()))?;
        Ok([first, second])
    }

    fn release(&self, streams: [StreamId; 2]) {
        let mut events = Vec::new();
        let mut manager = lock(&self.manager);
        streams.into_iter().for_each(|id| manager.close(id, &mut events));
        drop(manager);
        self.enact_all();
    }

    fn open(
        self: &Arc<Self>,
        id: u32,
        peer: SocketAddr,
        composition: &Composition,
        keys: &Keys,
        streams: [StreamId; 2],
        welcome: Vec<u8>,
    ) -> Option<Connection> {
        let line = Line::new(composition, id, Some(keys)).ok()?;
        let work = LineWork::new(line, Arc::clone(&self.socket), peer, self.clock);
        let plant = Arc::new(Plant::new(work, 1024));
        let gone = Arc::new(AtomicBool::new(false));
        let mut open = lock(&self.open);
        if open.len() >= CONNECTIONS_MAX || open.contains_key(&id) {
            drop(open);
            self.release(streams);
            return None;
        }
        let port = Port::new(Arc::clone(&plant), Outside::Network);
        let heard = self.clock.now();
        let entry = Open {
            plant: Arc::clone(&plant),
            streams,
            port,
            welcome,
            heard,
            gone: Arc::clone(&gone),
        };
        open.insert(id, entry);
        drop(open);
        self.elements.add(&plant);
        self.enact_all();
        Some(Connection {
            shared: Arc::clone(self),
            id,
            port: Mutex::new((Port::new(Arc::clone(&plant), Outside::Application), 0)),
            plant,
            streams,
            gone,
            closed: AtomicBool::new(false),
        })
    }

    /// Tells all plants who serves them now. Elements follow at their next turn.
    fn enact_all(&self) {
        let open = lock(&self.open);
        let manager = lock(&self.manager);
        for connection in open.values() {
            let places = connection.plant.places();
            let [out, back] = connection.streams.map(|StreamId(n)| &manager.streams()[n].assigned);
            for (place, &elements) in out.iter().enumerate() {
                connection.plant.assign(place, Direction::Down, elements);
            }
            for (n, &elements) in back.iter().enumerate() {
                connection.plant.assign(places - 1 - n, Direction::Up, elements);
            }
        }
        drop((manager, open));
        self.elements.wake();
    }

    /// The manager's look.
    fn look(&self, now: Instant) {
        let mut events = Vec::new();
        {
            let open = lock(&self.open);
            let mut manager = lock(&self.manager);
            if now < manager.next_look() {
                return;
            }
            let mut seen = HashMap::new();
            for connection in open.values() {
                for (id, monitor) in
                    connection.streams.iter().zip(&connection.plant.work().monitors)
                {
                    monitor.watch(manager.meta().detail);
                    seen.insert(*id, monitor.take());
                }
            }
            manager.look(now, |id| seen.get(&id).copied().unwrap_or_default(), &mut events);
        }
        for event in &events {
            tracing::info!(?event, "stack manager");
        }
        if events.iter().any(|event| matches!(event, Event::Reassigned { .. })) {
            self.counters.reassigned.fetch_add(1, Ordering::Relaxed);
            self.enact_all();
        }
        let silent: Vec<u32> = {
            let open = lock(&self.open);
            let gone = open.iter().filter(|(_, connection)| now.since(connection.heard) >= SILENCE);
            gone.map(|(&id, _)| id).collect()
        };
        silent.into_iter().for_each(|id| self.shut(id));
    }

    /// Forgets a connection; its resources go to others.
    fn shut(&self, id: u32) {
        let Some(connection) = lock(&self.open).remove(&id) else { return };
        connection.gone.store(true, Ordering::Release);
        self.elements.remove(&connection.plant);
        self.release(connection.streams);
    }
}

//! Connections over UDP: connect, listen, send, receive.
//!
//! An [`Endpoint`] is one socket, the elements that serve its connections, and the manager that
//! assigns them. A thread reads the socket, answers who wants to connect, and looks at what
//! connections do as often as the manager says.

mod buffer;
mod connection;
mod reading;
mod shared;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use selvedge_host::SocketError;
use selvedge_host::clock::Clock;
use selvedge_host::port::DatagramPort;
use selvedge_host::transmit::TransmitOptions;
use selvedge_stack::auto::{Manager, Meta};
use selvedge_stack::compose::{ComposeError, Composition};
use selvedge_stack::contract::Contract;
use selvedge_stack::model::Machine;
use selvedge_stack::module::Keys;
use selvedge_units::{Bytes, Span};

pub use self::buffer::Buffer;
pub use self::connection::Connection;
use self::reading::{Intake, read};
use self::shared::Shared;
use crate::profile;
use crate::threads::Elementary;
use crate::wire::{self, Proposal};

/// Connections that nobody has accepted yet, at most.
const BACKLOG: usize = 64;
/// What the socket is to hold of what nobody has read; the system may grant less.
const RECEIVE_BUFFER: Bytes = Bytes(2 << 20);
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

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A thread can't be started.
    #[error("cannot start a thread of the endpoint: {0}")]
    Thread(#[from] io::Error),
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

impl Endpoint {
    /// Listens on an address, port 0 for any; connections can be made from it as well. An IPv6
    /// address serves IPv6 only.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(at: SocketAddr, options: Options) -> Result<Self, BindError> {
        let port = DatagramPort::bind(at, RECEIVE_BUFFER)?;
        let (clock, count) = (Clock::new(), options.elements.clamp(1, 16));
        let patience = Span::from_millis(20);
        let transmitter =
            port.transmitter(clock, TransmitOptions { patience, ..TransmitOptions::default() })?;
        let machine = Machine::whole(count.into(), selvedge_stack::model::Overheads::default());
        let manager = Mutex::new(Manager::new(machine, options.meta, clock.now()));
        let (sender, accepted) = sync_channel(BACKLOG);
        let shared = Arc::new(Shared {
            address: port.address(),
            transmitter: Arc::new(Mutex::new(transmitter)),
            intake: Mutex::new(Intake::new(port.reader()?)),
            receiving: AtomicUsize::new(0),
            pumped: AtomicU64::new(0),
            accepted: sender,
            waiting: AtomicUsize::new(0),
            clock,
            options,
            elements: Elementary::start(count, clock)?,
            manager,
            open: Mutex::default(),
            calling: Mutex::default(),
            counters: Counters::default(),
            stop: false.into(),
            costs: profile::kept(),
        });
        let reader = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("stack reader".into()).spawn(move || read(&shared))?
        };
        Ok(Self { shared, accepted, reader: Some(reader) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
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
        let connection = self.accepted.recv_timeout(patience).ok()?;
        self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(connection)
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
        let made = self.call(peer, Proposal { line: composition.to_string(), out, back });
        let (id, keys) = made.inspect_err(|_| shared.release(streams))?;
        let opened = shared.open(id, peer, &composition, &keys, streams, Vec::new());
        opened.ok_or_else(|| here("too many connections, or the same number twice; try again"))
    }

    /// The handshake.
    fn call(&self, peer: SocketAddr, proposal: Proposal) -> Result<(u32, Keys), ConnectError> {
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
            self.shared.send(&hello, peer);
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
            reader.thread().unpark();
            let _ = reader.join();
        }
    }
}

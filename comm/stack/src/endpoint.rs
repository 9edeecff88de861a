//! Connections over UDP: connect, listen, send, receive.
//!
//! An [`Endpoint`] is one socket, the elements that serve its connections, and the manager that
//! assigns them. A thread reads the socket, answers who wants to connect, and looks at what
//! connections do as often as the manager says.

mod backlog;
mod buffer;
mod call;
mod connection;
mod reading;
mod receiving;
mod renegotiate;
mod rings;
mod shared;
mod task;
#[cfg(test)]
mod tests;
mod tune;
mod view;
mod what;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::wake::Alarms;
use selvedge_data_stack::auto::{Manager, Meta};
use selvedge_data_stack::compose::ComposeError;
use selvedge_data_stack::contract::Contract;
use selvedge_os::SocketError;
use selvedge_os::clock::Clock;
use selvedge_os::port::DatagramPort;
use selvedge_os::transmit::TransmitOptions;
use selvedge_units::{Bytes, Span};

use self::backlog::Backlog;
pub use self::buffer::Buffer;
use self::call::Calls;
pub use self::call::Connecting;
pub use self::connection::Connection;
use self::reading::{Intake, read};
pub use self::renegotiate::{AgreeError, Renegotiating};
pub(crate) use self::rings::Rings;
use self::shared::Shared;
pub use self::task::{Accepting, Sending, Taking, block_on, block_on_for};
pub use self::tune::{MetaView, TuneError, Tuning};
pub use self::view::{ConnectionView, ElementView, EndpointView, FlowView, ModuleView};
use crate::crew::Slaves;
use crate::profile;
use crate::threads::Elementary;

/// What the socket is to hold of what nobody has read; the system may grant less.
const RECEIVE_BUFFER: Bytes = Bytes(2 << 20);
/// How long connections that nobody accepted are given to tell their peers, all together.
const FAREWELL: Duration = Duration::from_millis(500);

/// How an endpoint is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Elements, each a thread; 1 ..= 16.
    pub elements: u8,
    /// A secret that both ends must have. Without one the key exchange is anonymous: it keeps
    /// listeners out, but not someone who can change what passes.
    pub secret: Option<[u8; 32]>,
    /// Threads that share the encryption of messages above 16 KiB with the elements, 0 ..= 16.
    pub slaves: u8,
    /// How the manager decides.
    pub meta: Meta,
    /// A peer that has said nothing for so long is gone. Endpoints say that they live four times as
    /// often, so both ends should have about the same.
    pub silence: Span,
}

impl Default for Options {
    /// Two elements, no secret, no slaves; a peer may be silent for a minute.
    fn default() -> Self {
        let silence = Span::from_secs(60);
        Self { elements: 2, secret: None, slaves: 0, meta: Meta::default(), silence }
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
    /// The endpoint was dropped meanwhile.
    #[error("the endpoint was closed before {0} answered")]
    Over(SocketAddr),
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

/// A UDP socket with connections. Dropping it ends accepting and connecting; connections that are
/// still held go on, and its threads end with the last of them.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
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
        let costs = profile::kept();
        let machine = costs.machine_with(count.into(), options.slaves);
        let manager = Mutex::new(Manager::new(machine, options.meta, clock.now()));
        let alarms = Arc::new(Alarms::default());
        let ring = {
            let alarms = Arc::clone(&alarms);
            move || alarms.ring()
        };
        let shared = Arc::new(Shared {
            address: port.address(),
            transmitter: Arc::new(Mutex::new(transmitter)),
            rings: Arc::default(),
            intake: Mutex::new(Intake::new(port.reader()?)),
            receiving: AtomicUsize::new(0),
            pumped: AtomicU64::new(0),
            backlog: Backlog::default(),
            clock,
            crew: Slaves::start(options.slaves).map_err(io::Error::other)?,
            options,
            elements: Elementary::start_with(count, clock, ring)?,
            alarms,
            manager,
            open: Mutex::default(),
            calls: Calls::default(),
            counters: Counters::default(),
            stop: false.into(),
            costs,
        });
        let reader = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("stack reader".into()).spawn(move || read(&shared))?
        };
        Ok(Self { shared, reader: Some(reader) })
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
        self.shared.backlog.pop(patience)
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
        task::block_on(self.connect_async(peer, line, out, back))
    }

    /// [`Endpoint::connect`] for a task. The hello is said at once.
    pub fn connect_async(
        &self,
        peer: SocketAddr,
        line: &str,
        out: Contract,
        back: Contract,
    ) -> Connecting {
        Connecting::new(&self.shared, peer, line, [out, back])
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let shared = &self.shared;
        let unclaimed = shared.backlog.close();
        shared.stop.store(true, Ordering::Release);
        shared.calls.end();
        unclaimed.iter().for_each(Connection::say_closed);
        let until = shared.clock.now() + Span(FAREWELL.as_nanos() as u64);
        for connection in unclaimed {
            connection.end(until);
        }
        let Some(reader) = self.reader.take() else { return };
        reader.thread().unpark();
        // With connections left it goes on reading for them, and ends with the last.
        if shared.is_idle() && reader.thread().id() != thread::current().id() {
            let _ = reader.join();
        }
    }
}

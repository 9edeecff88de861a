//! Connections over UDP: connect, listen, send, receive.
//!
//! An [`Endpoint`] is one socket, the elements that serve its connections, and the manager that
//! assigns them. A thread reads the socket, answers connection attempts, and samples the
//! connections at the manager's interval.

mod buffer;
mod connecting;
mod connection;
mod error;
mod hellos;
mod negotiations;
mod open;
mod options;
mod receive;
mod rehearsal;
mod renegotiate;
mod shared;
mod socket_reader;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod tune;
mod view;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use selvedge_data_net_secure::PublicKey;
use selvedge_data_stack::auto::{Manager, ManagerSettings};
use selvedge_data_stack::contract::Contract;
use selvedge_data_stack::model::WakeUp;
use selvedge_os::clock::Clock;
use selvedge_os::datagram_port::DatagramPort;
use selvedge_os::transmit::TransmitOptions;
use selvedge_place_cpu::class::{Tid, this_thread};
use selvedge_units::{Bytes, Duration};

pub use self::buffer::Buffer;
pub use self::connecting::ConnectFuture;
pub use self::connection::{Connection, SendFuture, Taking};
pub use self::error::{BindError, ConnectError, RecvError, RefusedHere};
pub use self::options::{Counters, Options};
use self::receive::read;
use self::rehearsal::charged;
pub use self::renegotiate::{NegotiationError, RenegotiateFuture};
use self::shared::Shared;
use self::socket_reader::SocketReader;
use self::state::Connections;
pub use self::task::{block_on, block_on_for};
pub use self::tune::{MetaView, ModulePin, PinError, TuneError, Tuning};
pub use self::view::{ConnectionView, ElementView, EndpointView, FlowView, ModuleView};
use crate::profile;
use crate::reservation::{Granted, Reservation, ReservationError};
pub use crate::rings::RingError;
use crate::sync::lock;
use crate::threads::ElementThreads;
use crate::wake::DueWakers;
use crate::work::ConnectionChain;
use crate::worker_threads::WorkerThreads;

/// Unread bytes that the socket should hold; the system may grant less.
const RECEIVE_BUFFER: Bytes = Bytes(8 << 20);

/// A UDP socket with connections. Dropping it ends accepting and connecting. Open connections
/// continue, and the endpoint's threads end with the last of them.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Binds to an address, port 0 for any; the endpoint can accept and make connections. An IPv6
    /// address serves IPv6 only.
    pub fn bind(at: SocketAddr, options: Options) -> Result<Self, BindError> {
        if let Some(reservation) = &options.reservation {
            reservation.check()?;
        }
        let port = DatagramPort::bind(at, RECEIVE_BUFFER)?;
        let (clock, count) = (Clock::new(), options.elements.clamp(1, 16));
        let patience = Duration::from_millis(20);
        let transmitter =
            port.transmitter(clock, TransmitOptions { patience, ..TransmitOptions::default() })?;
        let costs = profile::cached();
        let alarms = Arc::new(DueWakers::default());
        let machine = costs.machine_with(count.into(), options.slaves);
        let mut threads = EndpointThreads::start(count, clock, &options, &alarms)?;
        let (machine, reservation) = match &options.reservation {
            None => (machine, Ok(None)),
            Some(reservation) => match threads.reserve(reservation) {
                Ok((granted, wake_up)) => {
                    (granted.machine(charged(machine), wake_up), Ok(Some(granted)))
                }
                Err(why) => {
                    tracing::warn!(%why, "firm contracts are refused");
                    threads = EndpointThreads::start(count, clock, &options, &alarms)?;
                    (machine, Err(why))
                }
            },
        };
        let EndpointThreads { elements, reader, reader_tid, share } = threads;
        let shared = Arc::new(Shared {
            address: port.address(),
            transmitter: Arc::new(Mutex::new(transmitter)),
            rings: Arc::default(),
            socket_reader: Mutex::new(SocketReader::new(port.reader()?)),
            receiving: AtomicUsize::new(0),
            last_input: AtomicU64::new(0),
            clock,
            worker_pool: WorkerThreads::start(options.slaves).map_err(io::Error::other)?,
            connections: Connections::new(&options),
            manager: Mutex::new(Manager::new(machine, options.meta, clock.now())),
            options,
            elements,
            reader_tid,
            alarms,
            counters: Counters::default(),
            stop: false.into(),
            costs,
            reservation,
        });
        // The thread waits for it.
        let _ = share.send(Arc::clone(&shared));
        Ok(Self { shared, reader: Some(reader) })
    }

    /// The address of its socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The endpoint's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// With a static key: sets the keys of the peers that may connect from now on. Connections of
    /// other peers end at once.
    pub fn allow(&self, peers: &[PublicKey]) {
        self.shared.allow(peers);
    }

    /// Sets how the manager decides, from its next sample on.
    pub fn set(&self, meta: ManagerSettings) {
        lock(&self.shared.manager).set(meta);
    }

    /// The next connection that another host made; `None` if none arrived in time.
    #[must_use]
    pub fn accept(&self, patience: Duration) -> Option<Connection> {
        self.shared.connections.accept(patience).map(|opened| Connection::new(&self.shared, opened))
    }

    /// Makes a connection with this stack: `out` is the contract for messages that this end sends,
    /// `back` for those that it receives.
    pub fn connect(
        &self,
        peer: SocketAddr,
        line: &str,
        out: Contract,
        back: Contract,
    ) -> Result<Connection, ConnectError> {
        task::block_on(self.connect_async(peer, line, out, back))
    }

    /// [`Endpoint::connect`] for a task. The first probe is sent at once.
    pub fn connect_async(
        &self,
        peer: SocketAddr,
        line: &str,
        out: Contract,
        back: Contract,
    ) -> ConnectFuture {
        ConnectFuture::new(&self.shared, peer, line, [out, back])
    }

    /// [`Endpoint::accept`] for a task: ready when another host has made a connection.
    pub const fn accept_async(&self) -> AcceptFuture<'_> {
        AcceptFuture(self)
    }

    /// A snapshot of the endpoint. It briefly takes a lock of the connections; O(connections).
    #[must_use]
    pub fn view(&self) -> EndpointView {
        self.shared.view()
    }

    /// Places a module of a connection by hand. No decision moves the connection's modules from then on.
    ///
    /// # Errors
    /// [`PinError`]; then nothing is changed.
    pub fn pin(&self, pin: &ModulePin) -> Result<(), PinError> {
        self.shared.pin(pin)
    }

    /// Changes how the manager decides from its next sample on, about all connections or about one; returns the new settings.
    ///
    /// # Errors
    /// [`TuneError`]; then nothing is changed.
    pub fn tune(&self, tuning: &Tuning) -> Result<MetaView, TuneError> {
        let meta = self.shared.tune(tuning)?;
        // The thread may wait for a sample that is overdue by the new interval.
        if let Some(reader) = &self.reader {
            reader.thread().unpark();
        }
        Ok(meta.into())
    }
}

/// The threads of an endpoint before it is one.
struct EndpointThreads {
    elements: ElementThreads<ConnectionChain>,
    /// It waits for the endpoint, and ends if there is none.
    reader: JoinHandle<()>,
    reader_tid: Option<Tid>,
    share: Sender<Arc<Shared>>,
}

impl EndpointThreads {
    fn start(
        count: u8,
        clock: Clock,
        options: &Options,
        alarms: &Arc<DueWakers>,
    ) -> io::Result<Self> {
        let alarms = Arc::clone(alarms);
        let after = move || alarms.ring();
        let elements = ElementThreads::start_with(count, clock, options.senders_serve, after)?;
        let (named, name) = channel();
        let (share, take) = channel::<Arc<Shared>>();
        let reader = thread::Builder::new().name("stack reader".into()).spawn(move || {
            let _ = named.send(this_thread());
            take.recv().iter().for_each(read);
        })?;
        Ok(Self { elements, reader, reader_tid: name.recv().ok(), share })
    }

    /// Reserves time for them. If that fails they must be replaced.
    fn reserve(&self, reservation: &Reservation) -> Result<(Granted, WakeUp), ReservationError> {
        let wake_up = reservation.wake_up()?;
        let threads = self.elements.tids().iter().copied().chain(self.reader_tid).collect();
        let granted = reservation.grant(threads)?;
        self.elements.set_reserved();
        Ok((granted, wake_up))
    }
}

/// The next connection that another host makes.
#[derive(Debug)]
#[must_use = "nothing is accepted unless it is polled"]
pub struct AcceptFuture<'a>(&'a Endpoint);

impl Future for AcceptFuture<'_> {
    type Output = Connection;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Connection> {
        let shared = &self.0.shared;
        shared.connections.poll_accept(context).map(|opened| Connection::new(shared, opened))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let shared = &self.shared;
        let unclaimed = shared.connections.lock().endpoint.stop_accepting();
        let unclaimed = unclaimed.into_iter().map(|opened| Connection::new(shared, opened));
        let unclaimed: Vec<_> = unclaimed.collect();
        shared.stop.store(true, Ordering::Release);
        shared.connections.end_calls();
        Connection::close_all(unclaimed);
        let Some(reader) = self.reader.take() else { return };
        reader.thread().unpark();
        // With connections left the thread goes on reading for them, and ends with the last one.
        if shared.connections.is_idle() && reader.thread().id() != thread::current().id() {
            let _ = reader.join();
        }
    }
}

//! The connections through protocol stacks that carry a node's streams in place of plain UDP. They are
//! made when the node starts, and again whenever one breaks off.
//!
//! The link's engine passes a packet on when it may leave; here it becomes a message of the stream's
//! connection. Without a connection packets are lost, as they are on a network without receiver.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;
use selvedge_comm_stack::endpoint::{
    BindError, ConnectError, Connection, Endpoint, Options, RecvError, block_on_for,
};
use selvedge_comm_stack::reservation::Reservation;
use selvedge_control_config::{LinkConfig, NodeConfig, StreamConfig, carried};
use selvedge_data_stack::auto::Event;
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::module::Direction;
use selvedge_data_stream::{ReceiverReport, rtp};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{Carrier, Heard, StreamCarrier};
use selvedge_units::{Bitrate, Bytes, Duration};

use crate::acknowledged::Acknowledged;
use crate::control_server::StackControlServer;
use crate::credentials::{CredentialError, Credentials, PeersWatch};
use crate::keeper::{Keeper, Stop};

/// The first wait before a receiver is called again, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The shortest time between two new connections after `unknown` messages.
const AGAIN: Duration = Duration::from_millis(250);
/// How often a connection is polled.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Processing elements of an endpoint.
const ELEMENTS: u8 = 2;
/// The most streams of a link that are connected to find what this host refuses.
const REHEARSED_MAX: usize = 64;
/// A contract follows the link's rate if that has changed by more than so many hundredths.
const CHANGED_BY: u64 = 10;

/// Why a node's stacks can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// An endpoint can't be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The secret or the key of a link can't be read.
    #[error("link \"{link}\": {why}")]
    Credentials {
        /// The link.
        link: String,
        /// The reason.
        why: CredentialError,
        /// The key of the node file that names its file.
        key: &'static str,
    },
    /// A thread can't be started.
    #[error("can't start the thread of a stack: {0}")]
    Thread(#[from] std::io::Error),
}

impl StackError {
    /// The key of the node file that must be changed, if it is one.
    pub(crate) fn key(&self) -> Option<String> {
        match self {
            Self::Credentials { link, key, .. } => Some(format!("link.{link}.{key}")),
            _ => None,
        }
    }
}

/// The stacks of a node, by stream. Dropped, connections are flushed and closed.
#[derive(Default)]
pub(crate) struct NodeStacks {
    carriers: Vec<Option<(Arc<StreamConnection>, Bytes, Bytes)>>,
    keepers: Vec<Keeper>,
    /// All endpoints.
    endpoints: Arc<[Arc<Endpoint>]>,
    rates: LinkRates,
    control_server: Option<StackControlServer>,
}

/// The present rates of the links that have stacks, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkRates(Vec<(String, Arc<AtomicU64>)>);

impl LinkRates {
    fn of(&mut self, link: &LinkConfig) -> Arc<AtomicU64> {
        if let Some((_, rate)) = self.0.iter().find(|(name, _)| *name == link.name) {
            return Arc::clone(rate);
        }
        let rate = Arc::new(AtomicU64::new(link.rate.0));
        self.0.push((link.name.clone(), Arc::clone(&rate)));
        rate
    }

    /// Notes the present rate of a link: the contracts of its stacks follow it.
    pub(crate) fn set(&self, link: &str, rate: Bitrate) {
        if let Some((_, now)) = self.0.iter().find(|(name, _)| name == link) {
            now.store(rate.0, Ordering::Relaxed);
        }
    }
}

/// A stream's connection, when there is one.
#[derive(Debug)]
struct StreamConnection {
    name: String,
    to: SocketAddr,
    stack: String,
    terms: ContractTerms,
    endpoint: Arc<Endpoint>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Why there is no connection.
    problem: Mutex<Option<String>>,
    /// What is wrong with the connection's contract while it carries packets.
    remark: Mutex<Option<String>>,
    /// The reports of its receivers.
    acknowledged: Mutex<Acknowledged>,
    clock: Clock,
}

impl NodeStacks {
    /// Opens an endpoint for each link and family that needs one, and begins to connect.
    pub(crate) fn start(
        config: &NodeConfig,
        base: &Path,
        clock: Clock,
    ) -> Result<Self, StackError> {
        let mut stacks = Self::default();
        let mut endpoints: Vec<((usize, bool), Arc<Endpoint>)> = Vec::new();
        let mut watches = Vec::new();
        for stream in &config.streams {
            let Some(stack) = &stream.stack else {
                stacks.carriers.push(None);
                continue;
            };
            let (link, v6) = (&config.links[stream.link], stream.spec.to.is_ipv6());
            let which = (stream.link, v6);
            let known = endpoints.iter().find(|(of, _)| *of == which).map(|(_, e)| Arc::clone(e));
            let endpoint = match known {
                Some(endpoint) => endpoint,
                None => {
                    let (endpoint, watch) = open(link, v6, base)?;
                    let endpoint = Arc::new(endpoint);
                    endpoints.push((which, Arc::clone(&endpoint)));
                    watches.push((watch, Arc::clone(&endpoint)));
                    endpoint
                }
            };
            let fit = carried(stack, link, stream.spec.to);
            let terms = ContractTerms::new(config, stream, fit.message, stacks.rates.of(link));
            let line = Arc::new(StreamConnection {
                name: stream.spec.name.clone(),
                to: stream.spec.to,
                stack: stack.to_string(),
                terms,
                endpoint,
                connection: Mutex::default(),
                problem: Mutex::new(Some("not connected yet".to_owned())),
                remark: Mutex::default(),
                acknowledged: Mutex::default(),
                clock,
            });
            let below = if v6 { rtp::IPV6_UDP } else { rtp::IPV4_UDP };
            let overhead = fit.headers + below;
            stacks.carriers.push(Some((Arc::clone(&line), overhead, fit.message)));
            let name = format!("stack {}", stream.spec.name);
            stacks.keepers.push(Keeper::start(name, move |stop| line.maintain(stop))?);
        }
        if config.links.iter().any(|link| link.key.is_some()) {
            let follow = move |stop: &Stop| follow_peers(&mut watches, stop);
            stacks.keepers.push(Keeper::start("stack peers".to_owned(), follow)?);
        }
        stacks.endpoints = endpoints.into_iter().map(|(_, endpoint)| endpoint).collect();
        if !stacks.endpoints.is_empty() {
            let seen = Arc::clone(&stacks.endpoints);
            let name = format!("node {}", config.name);
            stacks.control_server = Some(StackControlServer::open(&name, move |each| {
                seen.iter().for_each(|endpoint| each(endpoint));
            }));
        }
        Ok(stacks)
    }

    /// The carrier of a stream, if not the engine's sockets; streams are numbered as in the node file.
    pub(crate) fn carried(&self, stream: usize) -> Option<StreamCarrier> {
        let (line, overhead, packet_max) = self.carriers.get(stream)?.as_ref()?;
        let by = Arc::clone(line) as Arc<dyn Carrier>;
        Some(StreamCarrier { by, overhead: *overhead, packet_max: *packet_max })
    }

    /// All endpoints as they are now, in JSON; `None` if there are none.
    pub(crate) fn listed(&self) -> Option<Arc<str>> {
        if self.endpoints.is_empty() {
            return None;
        }
        let views: Vec<_> = self.endpoints.iter().map(|endpoint| endpoint.view()).collect();
        serde_json::to_string(&views).ok().map(Into::into)
    }

    /// Why a stream's packets are not carried, if they are not.
    pub(crate) fn problem(&self, stream: usize) -> Option<String> {
        let (line, ..) = self.carriers.get(stream)?.as_ref()?;
        line.problem.lock().clone()
    }

    /// What is wrong with the contract of a stream whose packets are carried, if anything is.
    pub(crate) fn remark(&self, stream: usize) -> Option<String> {
        let (line, ..) = self.carriers.get(stream)?.as_ref()?;
        line.remark.lock().clone()
    }

    /// Where the present rates of links are noted.
    pub(crate) fn rates(&self) -> LinkRates {
        self.rates.clone()
    }

    /// The reports of a stream's receivers; `None` if no stack carries it.
    pub(crate) fn acknowledged<T>(
        &self,
        stream: usize,
        read: impl FnOnce(&Acknowledged) -> T,
    ) -> Option<T> {
        let (line, ..) = self.carriers.get(stream)?.as_ref()?;
        Some(read(&line.acknowledged.lock()))
    }

    /// What the receivers of streams report, by the streams' places in the node file.
    pub(crate) fn heard_by(&self, clock: Clock) -> impl Fn(usize) -> Heard + Send + use<> {
        let lines: Vec<_> =
            self.carriers.iter().map(|carried| Some(Arc::clone(&carried.as_ref()?.0))).collect();
        move |stream| {
            let Some(Some(line)) = lines.get(stream) else { return Heard::default() };
            line.acknowledged.lock().heard(clock.now())
        }
    }

    /// Whether all receivers are connected.
    pub(crate) fn all_connected(&self) -> bool {
        (0..self.carriers.len()).all(|stream| self.problem(stream).is_none())
    }
}

impl Drop for NodeStacks {
    fn drop(&mut self) {
        drop(self.control_server.take());
        // Each takes a moment to notice, so all are requested to stop before one is waited for.
        self.keepers.iter().for_each(Keeper::request_stop);
        self.keepers.clear();
    }
}

/// Why this host would refuse the stack of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRefusal {
    /// The stream's place in the node file.
    pub stream: usize,
    /// What the link grants it, and what the host lacks.
    pub why: String,
}

/// The first stream of each link with reserved processor time whose stack this host would refuse now. The streams are
/// connected over the loopback, as they would be to their receivers. Links whose time can't be reserved here are left
/// out: their contracts are estimates.
#[must_use]
pub fn refused_stacks(config: &NodeConfig) -> Vec<StackRefusal> {
    let of_link = |(at, link): (usize, &LinkConfig)| {
        link.stack_share?;
        let here = at_loopback(reserving(link))?;
        here.view().reservation?;
        let there = at_loopback(Options::default())?;
        let mut connections = Vec::new();
        let streams = config.streams.iter().enumerate().filter(|(_, stream)| stream.link == at);
        let first = streams.take(REHEARSED_MAX).find_map(|(n, stream)| {
            let stack = stream.stack.as_ref()?;
            let packet = carried(stack, link, stream.spec.to).message;
            let rate = Arc::new(AtomicU64::new(link.rate.0));
            let terms = ContractTerms::new(config, stream, packet, rate);
            let [mut out, back] = terms.contracts(terms.share());
            // The other end has no reserved time; what it refuses says nothing.
            out.quality.promise = Promise::Wanted;
            match here.connect(there.address(), &stack.to_string(), out, back) {
                Ok(connection) => {
                    connections.extend([Some(connection), there.accept(Duration::ZERO)]);
                    None
                }
                Err(why @ ConnectError::Local(_)) => {
                    Some(StackRefusal { stream: n, why: refused(terms.share(), &why) })
                }
                Err(_) => None,
            }
        });
        Connection::close_all(connections.into_iter().flatten().collect());
        first
    };
    config.links.iter().enumerate().filter_map(of_link).collect()
}

fn at_loopback(options: Options) -> Option<Endpoint> {
    Endpoint::bind(([127, 0, 0, 1], 0).into(), options).ok()
}

/// The options of a link's endpoint without its identity.
fn reserving(link: &LinkConfig) -> Options {
    let processors = link.stack_processors.clone();
    let reservation = link.stack_share.map(|share| Reservation { share, processors });
    Options { elements: ELEMENTS, reservation, ..Options::default() }
}

fn open(link: &LinkConfig, v6: bool, base: &Path) -> Result<(Endpoint, PeersWatch), StackError> {
    let place = |path: &String| base.join(path);
    let credentials = Credentials {
        secret: link.secret.as_ref().map(place),
        key: link.key.as_ref().map(place),
        peer: link.peer.clone(),
    };
    let options = credentials.read(reserving(link)).map_err(|why| StackError::Credentials {
        link: link.name.clone(),
        key: match (&why, &link.secret) {
            (CredentialError::NoPeer { .. }, _) => "peer",
            (_, Some(_)) => "secret",
            _ => "key",
        },
        why,
    })?;
    let at: SocketAddr = if v6 { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
    Ok((Endpoint::bind(at, options)?, credentials.watch()))
}

/// Makes endpoints allow the keys that their lists contain at present.
fn follow_peers(watches: &mut [(PeersWatch, Arc<Endpoint>)], stop: &Stop) {
    let clock = Clock::new();
    while !stop.is_requested() {
        for (watch, endpoint) in &mut *watches {
            if let Some(peers) = watch.poll(clock.now()) {
                endpoint.allow(&peers);
            }
        }
        stop.pause(POLL_EVERY);
    }
}

/// What is requested from hosts for a stream.
#[derive(Debug)]
struct ContractTerms {
    /// The link's present rate, in bit/s.
    rate: Arc<AtomicU64>,
    /// The streams on the link.
    beside: u64,
    packet: Bytes,
    delay: Duration,
    promise: Promise,
}

/// A refusal of this share of a link in words: what is scarce is either the share, or what a host lacks.
fn refused(share: Bitrate, why: &dyn std::fmt::Display) -> String {
    format!("for {share} of the link: {why}")
}

impl ContractTerms {
    /// Those of a stream in packets of this size, on its link of this present rate.
    fn new(
        config: &NodeConfig,
        stream: &StreamConfig,
        packet: Bytes,
        rate: Arc<AtomicU64>,
    ) -> Self {
        let wanted = stream.spec.contract.delay.unwrap_or(stream.spec.contract.period);
        let firm = config.links[stream.link].stack_delay;
        let beside = config.streams.iter().filter(|other| other.link == stream.link).count();
        Self {
            rate,
            beside: beside.max(1) as u64,
            packet,
            delay: firm.unwrap_or(wanted),
            promise: if firm.is_some() { Promise::Firm } else { Promise::Wanted },
        }
    }

    /// The stream's even share of the link.
    fn share(&self) -> Bitrate {
        Bitrate((self.rate.load(Ordering::Relaxed) / self.beside).max(1))
    }

    /// The contracts for this share, in packets of full size, and for the receivers' reports. If the stream sends
    /// more, processing elements are assigned anew; nothing is refused unless hosts lack processing power.
    fn contracts(&self, share: Bitrate) -> [Contract; 2] {
        let every = (self.packet / share).clamp(Duration::from_micros(1), Duration::from_secs(10));
        let quality = |delay, promise| Quality { delay, loss_burst: 0, promise };
        let reports = Bytes(ReceiverReport::LEN as u64);
        [
            Contract {
                traffic: Traffic::steady(every, self.packet),
                quality: quality(self.delay, self.promise),
            },
            Contract {
                traffic: Traffic::steady(Duration::from_millis(100), reports),
                quality: quality(Duration::from_secs(1), Promise::Wanted),
            },
        ]
    }
}

impl Carrier for StreamConnection {
    fn carry(&self, packet: &[u8]) -> bool {
        let connection = self.connection.lock().clone();
        connection.is_some_and(|connection| connection.send(packet, Duration::ZERO).is_ok())
    }
}

impl StreamConnection {
    /// Connects, and connects again, until requested to stop.
    fn maintain(&self, stop: &Stop) {
        let mut wait = RETRY.0;
        while !stop.is_requested() {
            let why = match self.connect(stop) {
                Some(Ok(connection)) => {
                    wait = RETRY.0;
                    tracing::info!(stream = self.name, to = %self.to, "stack connected");
                    match self.watch(connection, stop) {
                        Some(why) => why.to_string(),
                        None => return,
                    }
                }
                Some(Err(why)) => refused(self.terms.share(), &why),
                None => return,
            };
            if self.problem.lock().replace(why.clone()).as_ref() != Some(&why) {
                tracing::warn!(stream = self.name, to = %self.to, why, "stack not connected");
            }
            stop.pause(wait);
            wait = (wait * 2).min(RETRY.1);
        }
    }

    /// A connection, or the error; `None` when requested to stop.
    fn connect(&self, stop: &Stop) -> Option<Result<Connection, ConnectError>> {
        let [out, back] = self.terms.contracts(self.terms.share());
        let mut connecting = self.endpoint.connect_async(self.to, &self.stack, out, back);
        while !stop.is_requested() {
            if let Some(outcome) = block_on_for(&mut connecting, POLL_EVERY) {
                return Some(outcome);
            }
        }
        None
    }

    /// Lends the connection to the engine until it ends, and returns the reason; `None` when requested
    /// to stop.
    fn watch(&self, connection: Connection, stop: &Stop) -> Option<RecvError> {
        let mut connection = Arc::new(connection);
        *self.connection.lock() = Some(Arc::clone(&connection));
        *self.problem.lock() = None;
        self.acknowledged.lock().handle_connected(self.clock.now());
        let mut ended = None;
        let mut agreed = self.terms.share();
        let mut message = Vec::new();
        let mut again_at = self.clock.now();
        while ended.is_none() && !stop.is_requested() {
            stop.pause(POLL_EVERY);
            // Receivers send reports and nothing else.
            match connection.recv(&mut message, Duration::ZERO) {
                Ok(()) => {
                    if let Some(report) = ReceiverReport::from_bytes(&message) {
                        self.acknowledged.lock().handle_report(self.clock.now(), report);
                    }
                }
                Err(RecvError::Timeout) => {}
                Err(why) => ended = Some(why),
            }
            self.note_events(&connection);
            let share = self.terms.share();
            if share.0.abs_diff(agreed.0) > agreed.0 / CHANGED_BY {
                self.renegotiate(&connection, share, stop);
                agreed = share;
            }
            // The receiver may have been killed and started again. Any sender can forge such a message,
            // so packets use this connection until there is another.
            if self.clock.now() >= again_at && connection.take_unknown() {
                if let Some(Ok(other)) = self.connect(stop) {
                    let before = std::mem::replace(&mut connection, Arc::new(other));
                    *self.connection.lock() = Some(Arc::clone(&connection));
                    self.acknowledged.lock().handle_connected(self.clock.now());
                    // Closing waits for the peer, which may be gone.
                    let closing = thread::Builder::new().name("stack close".to_owned());
                    let _ = closing.spawn(move || drop(before));
                    ended = None;
                }
                again_at = self.clock.now() + AGAIN;
            }
        }
        *self.connection.lock() = None;
        *self.remark.lock() = None;
        self.acknowledged.lock().handle_disconnected();
        ended
    }

    /// Notes what happens to the contract of the stream's packets.
    fn note_events(&self, connection: &Connection) {
        for (_, event) in connection.events().into_iter().filter(|(to, _)| *to == Direction::Down) {
            let remark = match event {
                Event::Broken { what, .. } => Some(format!("its firm delay is not kept: {what}")),
                Event::Policed { refusal, .. } => {
                    Some(format!("it is held to its contract: {refusal}"))
                }
                Event::Mended { .. } | Event::Released { .. } => None,
                _ => continue,
            };
            self.set_remark(remark);
        }
    }

    /// Agrees on the contract of another share of the link; the old one holds if a host refuses that.
    fn renegotiate(&self, connection: &Connection, share: Bitrate, stop: &Stop) {
        let [out, _] = self.terms.contracts(share);
        let mut asking = connection.renegotiate_async(Direction::Down, out);
        while !stop.is_requested() {
            if let Some(outcome) = block_on_for(&mut asking, POLL_EVERY) {
                let error = outcome.err();
                self.set_remark(error.map(|why| refused(share, &why)));
                return;
            }
        }
    }

    fn set_remark(&self, remark: Option<String>) {
        if let Some(remark) = &remark {
            tracing::warn!(stream = self.name, remark, "the contract of a stack is not kept");
        }
        *self.remark.lock() = remark;
    }
}

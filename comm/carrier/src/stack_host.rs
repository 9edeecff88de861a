//! The endpoints of a process that carries streams over stacks, and the streams' connections. Streams of one link share an
//! endpoint for each family of addresses. See COMM-adapt, sections 2 and 4.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_comm_stack::endpoint::{BindError, Endpoint, EndpointView};
use selvedge_data_stack::compose::Fit;
use selvedge_data_stream::rtp;
use selvedge_os::clock::Clock;
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_place_engine::engine::{Carrier, StreamCarrier};
use selvedge_units::Bytes;

use crate::carried_state::CarriedState;
use crate::contract_terms::{ContractTerms, LinkRate};
use crate::control_server::StackControlServer;
use crate::credentials::{CredentialError, PeersWatch};
use crate::stack_spec::{EndSpec, StackSpec};
use crate::stream_connection::{POLL_EVERY, StreamConnection};

/// Why a stack can't be opened.
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
    #[must_use]
    pub fn key(&self) -> Option<String> {
        match self {
            Self::Credentials { link, key, .. } => Some(format!("link.{link}.{key}")),
            _ => None,
        }
    }
}

/// An endpoint that is open.
struct OpenEnd {
    spec: EndSpec,
    is_v6: bool,
    endpoint: Arc<Endpoint>,
    watch: PeersWatch,
}

type OpenEnds = Arc<Mutex<Vec<OpenEnd>>>;

/// The endpoints of a process. They are opened when a stream needs them, and closed after the last stream that did.
pub struct StackHost {
    /// The name by which `selvedge stack` shows this process.
    name: String,
    clock: Clock,
    control_server: Option<StackControlServer>,
    peers: Option<Keeper>,
    ends: OpenEnds,
}

/// Where a stream goes, in messages of which size.
#[derive(Clone, Debug)]
pub struct Target {
    /// The stream's name.
    pub name: String,
    /// The receiver.
    pub to: SocketAddr,
    /// How its packets fit into datagrams.
    pub fit: Fit,
    /// The present rate of its link.
    pub rate: LinkRate,
}

/// A stream that a stack carries. Dropped, its connection is flushed and closed, which may wait for the peer.
pub struct CarriedStream {
    line: Arc<StreamConnection>,
    keeper: Keeper,
    fit: Fit,
}

impl StackHost {
    /// A host without endpoints yet.
    #[must_use]
    pub fn new(name: String, clock: Clock) -> Self {
        Self { name, clock, control_server: None, peers: None, ends: OpenEnds::default() }
    }

    /// Begins to connect a stream.
    ///
    /// # Errors
    /// [`StackError`].
    pub fn carry(
        &mut self,
        spec: &StackSpec,
        target: Target,
        state: Arc<CarriedState>,
    ) -> Result<CarriedStream, StackError> {
        let Target { name, to, fit, rate } = target;
        let endpoint = self.endpoint(&spec.end, to.is_ipv6())?;
        let line = Arc::new(StreamConnection {
            name,
            to,
            modules: spec.modules.clone(),
            terms: ContractTerms::new(spec, fit.message, rate),
            endpoint,
            connection: Mutex::default(),
            state,
            clock: self.clock,
        });
        let kept = Arc::clone(&line);
        let keeper =
            Keeper::start(format!("stack {}", line.name), move |stop| kept.maintain(stop))?;
        Ok(CarriedStream { line, keeper, fit })
    }

    /// The views of all endpoints.
    #[must_use]
    pub fn views(&self) -> Vec<EndpointView> {
        self.ends.lock().iter().map(|end| end.endpoint.view()).collect()
    }

    /// The endpoint of this end, which is opened if it is not there.
    fn endpoint(&mut self, spec: &EndSpec, is_v6: bool) -> Result<Arc<Endpoint>, StackError> {
        let is_it = |end: &OpenEnd| end.is_v6 == is_v6 && end.spec == *spec;
        let known = {
            let mut ends = self.ends.lock();
            ends.retain(|end| Arc::strong_count(&end.endpoint) > 1);
            ends.iter().find(|end| is_it(end)).map(|end| Arc::clone(&end.endpoint))
        };
        if let Some(endpoint) = known {
            return Ok(endpoint);
        }
        let (endpoint, watch) = open(spec, is_v6)?;
        let endpoint = Arc::new(endpoint);
        let (spec, copy) = (spec.clone(), Arc::clone(&endpoint));
        let follows = spec.key.is_some();
        self.ends.lock().push(OpenEnd { spec, is_v6, endpoint: copy, watch });
        self.serve(follows)?;
        Ok(endpoint)
    }

    /// Starts what serves the endpoints, and what follows their lists of peers.
    fn serve(&mut self, follows: bool) -> Result<(), StackError> {
        if self.control_server.is_none() {
            let ends = Arc::clone(&self.ends);
            self.control_server = Some(StackControlServer::open(&self.name, move |each| {
                ends.lock().iter().for_each(|end| each(&end.endpoint));
            }));
        }
        if follows && self.peers.is_none() {
            let (ends, clock) = (Arc::clone(&self.ends), self.clock);
            let follow = move |stop: &Stop| follow_peers(&ends, clock, stop);
            self.peers = Some(Keeper::start("stack peers".to_owned(), follow)?);
        }
        Ok(())
    }
}

impl CarriedStream {
    /// What the link's engine hands packets to.
    #[must_use]
    pub fn carrier(&self) -> StreamCarrier {
        let by = Arc::clone(&self.line) as Arc<dyn Carrier>;
        let overhead = overhead(self.fit, self.line.to);
        StreamCarrier { by, overhead, packet_max: self.fit.message }
    }

    /// What is known of its connection.
    #[must_use]
    pub fn state(&self) -> &CarriedState {
        &self.line.state
    }

    /// Requests the end of its connection; `drop` waits for it.
    pub fn request_stop(&self) {
        self.keeper.request_stop();
    }
}

/// The bytes that a packet takes on the wire beside its own.
#[must_use]
pub fn overhead(fit: Fit, to: SocketAddr) -> Bytes {
    fit.headers + rtp::ip_udp(to)
}

fn open(spec: &EndSpec, is_v6: bool) -> Result<(Endpoint, PeersWatch), StackError> {
    let credentials = spec.credentials();
    let options = credentials.read(spec.reserving()).map_err(|why| StackError::Credentials {
        link: spec.link.clone(),
        key: spec.key_of(&why),
        why,
    })?;
    let at: SocketAddr = if is_v6 { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
    Ok((Endpoint::bind(at, options)?, credentials.watch()))
}

/// Makes endpoints allow the keys that their lists contain at present.
fn follow_peers(ends: &OpenEnds, clock: Clock, stop: &Stop) {
    while !stop.is_requested() {
        for end in &mut *ends.lock() {
            if let Some(peers) = end.watch.poll(clock.now()) {
                end.endpoint.allow(&peers);
            }
        }
        stop.pause(POLL_EVERY);
    }
}

//! The state that an endpoint's threads share: the connections, the manager, and the effects of its
//! decisions.
//!
//! Methods that serve one subject are with it: connection attempts in `hellos`, new contracts in `renegotiate`, snapshots in
//! `view`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use selvedge_comm_local::PeerId;
use selvedge_data_net_secure::Session;
use selvedge_data_stack::auto::{Event, Manager, ManagerSettings};
use selvedge_data_stack::compose::{Composition, Step};
use selvedge_data_stack::contract::Contract;
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::model::{Cost, Stream, StreamId};
use selvedge_data_stack::module::{Direction, WorkerPool};
use selvedge_data_stack::stack::ConnectionModules;
use selvedge_os::clock::Clock;
use selvedge_os::transmit::{Outgoing, Transmitter};
use selvedge_place_cpu::class::Tid;
use selvedge_units::{Duration, Instant};

use super::error::RefusedHere;
use super::open::{ConnectionState, Opened};
use super::options::{Counters, Options};
use super::socket_reader::SocketReader;
use super::state::Connections;
use super::tune::{ModulePin, PinError, TuneError, Tuning};
use crate::element::{EntryPort, External, Pipeline};
use crate::profile::Profile;
use crate::reservation::{Granted, ReservationError};
use crate::rings::{RingStatus, Rings};
use crate::sync::lock;
use crate::threads::ElementThreads;
use crate::wake::DueWakers;
use crate::work::{ConnectionChain, Lower, Sealing};

/// The parts of a connection.
pub(super) struct ConnectionParts<'a> {
    pub(super) id: u32,
    pub(super) peer: SocketAddr,
    pub(super) composition: &'a Composition,
    pub(super) session: Session,
    pub(super) streams: [StreamId; 2],
    /// The ring to the other end, for `net(shm)`.
    pub(super) ring: Option<PeerId>,
    /// The network's part of a delay.
    pub(super) network: Duration,
}

/// The longest time for delivering messages of a process that is gone.
const LEFTOVERS: Duration = Duration::from_secs(1);

/// The number of the manager's latest events that are kept for a connection.
const NEWS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: SocketAddr,
    pub(super) transmitter: Arc<Mutex<Transmitter>>,
    /// Shared memory below connections.
    pub(super) rings: Arc<Rings>,
    /// The socket's reading end, for the thread that reads at the moment.
    pub(super) socket_reader: Mutex<SocketReader>,
    /// Threads that wait in `recv`; one that leaves the socket to another thread counts twice.
    pub(super) receiving: AtomicUsize,
    /// How often one of these threads has read the socket.
    pub(super) last_input: AtomicU64,
    pub(super) clock: Clock,
    pub(super) options: Options,
    /// The threads that share the encryption of large messages.
    pub(super) worker_pool: Option<Arc<dyn WorkerPool>>,
    /// The processor time of the elements and of the thread that reads; given back before they end.
    pub(super) reservation: Result<Option<Granted>, ReservationError>,
    pub(super) elements: ElementThreads<ConnectionChain>,
    /// The system's number of the thread that reads the socket.
    pub(super) reader_tid: Option<Tid>,
    /// The tasks that elements wake.
    pub(super) alarms: Arc<DueWakers>,
    pub(super) manager: Mutex<Manager>,
    pub(super) connections: Connections,
    pub(super) counters: Counters,
    pub(super) stop: AtomicBool,
    pub(super) costs: Arc<Profile>,
}

impl Shared {
    /// Sends a datagram of the handshake; like any datagram it may be lost.
    pub(super) fn send(&self, bytes: &[u8], to: SocketAddr) {
        lock(&self.transmitter).send_batch(&[Outgoing { to, head: &[], bytes }]);
    }

    pub(super) fn modules(&self, composition: &Composition, direction: Direction) -> Vec<Cost> {
        let costs = composition.steps().iter().map(|step| self.costs.cost(step, direction));
        if direction == Direction::Down { costs.collect() } else { costs.rev().collect() }
    }

    /// Reserves both streams of a connection on this host, given the delays on the other host, or
    /// returns why not.
    pub(super) fn grant(
        &self,
        composition: &Composition,
        [out, back]: [Contract; 2],
        remote_delay: [Duration; 2],
    ) -> Result<[StreamId; 2], RefusedHere> {
        let mut manager = lock(&self.manager);
        let mut open = |contract, direction, remote_delay| {
            let stream = Stream::new(contract, self.modules(composition, direction));
            manager.open(Stream { remote_delay, ..stream }).map(|(id, _)| id)
        };
        let first = open(out, Direction::Down, remote_delay[0])?;
        let second = open(back, Direction::Up, remote_delay[1]);
        let second = second.inspect_err(|_| manager.close(first, &mut Vec::new()))?;
        Ok([first, second])
    }

    /// The longest that messages of these streams take on this host.
    pub(super) fn latencies(&self, streams: [StreamId; 2]) -> [Duration; 2] {
        let manager = lock(&self.manager);
        streams.map(|id| manager.granted(id).unwrap_or_default().guarantee.latency)
    }

    pub(super) fn release(&self, streams: [StreamId; 2]) {
        let mut events = Vec::new();
        let mut manager = lock(&self.manager);
        streams.into_iter().for_each(|id| manager.close(id, &mut events));
        drop(manager);
        self.notify_applications(&events);
        self.publish_assignments();
    }

    pub(super) fn open(&self, opening: ConnectionParts<'_>) -> Option<Opened> {
        let ConnectionParts { id, peer, composition, session, streams, ring, network } = opening;
        let Session { sealer, opener, module_keys, peer: identity } = session;
        let line = ConnectionModules::with_worker_pool(
            composition,
            id,
            Some(&module_keys),
            self.worker_pool.as_ref(),
        );
        let line = line.inspect_err(|_| self.release(streams)).ok()?;
        let below = match ring {
            None => Lower::Udp(Arc::clone(&self.transmitter)),
            Some(to) => Lower::Ring(Arc::clone(&self.rings), to),
        };
        let sealing = self.options.identity.is_sealed().then(|| Sealing::new(sealer, opener));
        let alarms = Arc::clone(&self.alarms);
        let work = ConnectionChain::new(line, below, sealing, peer, self.clock, alarms);
        let pipeline = Arc::new(Pipeline::new(work, 1024));
        let [disconnected, is_unknown] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let port = EntryPort::new(Arc::clone(&pipeline), External::Network);
        let sending = EntryPort::new(Arc::clone(&pipeline), External::Application);
        let (sending, negotiations) = (Arc::new(Mutex::new((sending, 0))), Arc::default());
        let (heard, news) = (self.clock.now(), Arc::new(Mutex::default()));
        let entry = ConnectionState {
            news: Arc::clone(&news),
            pipeline: Arc::clone(&pipeline),
            streams,
            port,
            sending: Arc::clone(&sending),
            negotiations: Arc::clone(&negotiations),
            identity,
            disconnected: Arc::clone(&disconnected),
            is_unknown: Arc::clone(&is_unknown),
            lost: None,
        };
        let opening = self.connections.lock().endpoint.open(id, entry, heard);
        if opening.is_err() {
            self.release(streams);
            return None;
        }
        // The ring may have gone before the connection existed. The lock of the rings must not be held here.
        if ring.is_some_and(|ring| self.rings.is_gone(ring))
            && let Some(connection) = self.connections.lock().endpoint.get_mut(id)
        {
            connection.lost = Some(heard);
        }
        self.elements.add(&pipeline);
        self.publish_assignments();
        Some(Opened {
            id,
            port: sending,
            negotiations,
            network,
            pipeline,
            streams,
            disconnected,
            is_unknown,
            news,
        })
    }

    /// Changes how the manager decides about all connections, or about one.
    pub(super) fn tune(&self, tuning: &Tuning) -> Result<ManagerSettings, TuneError> {
        let Some(id) = tuning.connection else {
            let mut manager = lock(&self.manager);
            let settings = tuning.of(manager.meta())?;
            manager.set(settings);
            return Ok(settings);
        };
        let mut state = self.connections.lock();
        let open = state.endpoint.get_mut(id).ok_or(TuneError::Connection(id))?;
        let mut manager = lock(&self.manager);
        let settings = tuning.of(manager.settings(open.streams[0]))?;
        open.streams.iter().for_each(|stream| manager.set_own(*stream, Some(settings)));
        Ok(settings)
    }

    /// Places a module of a connection by hand.
    pub(super) fn pin(&self, pin: &ModulePin) -> Result<(), PinError> {
        let mut state = self.connections.lock();
        let open = state.endpoint.get_mut(pin.connection);
        let open = open.ok_or(PinError::Connection(pin.connection))?;
        let (streams, composition) = (open.streams, open.pipeline.work().line.composition());
        let named = |step: &&Step| step.to_string() == pin.module || step.name() == pin.module;
        let steps = composition.steps();
        let place = steps.iter().position(|step| named(&step));
        let place = place.filter(|_| steps.iter().filter(named).count() == 1);
        let place = place.ok_or_else(|| PinError::Module {
            stack: composition.to_string(),
            module: pin.module.chars().take(40).collect(),
        })?;
        let places = [place, steps.len() - 1 - place];
        drop(state);
        let elements: ElementSet = pin.elements.iter().map(|&n| ElementId(n)).collect();
        let mut events = Vec::new();
        let mut manager = lock(&self.manager);
        // Both directions, or neither.
        let mut tried = manager.clone();
        for (id, place) in streams.into_iter().zip(places) {
            tried.pin(id, place, elements, &mut events)?;
        }
        *manager = tried;
        drop(manager);
        self.notify_applications(&events);
        self.publish_assignments();
        Ok(())
    }

    /// Publishes the assignment to all pipelines. Elements follow at their next turn.
    pub(super) fn publish_assignments(&self) {
        let state = self.connections.lock();
        let manager = lock(&self.manager);
        for (_, connection) in state.endpoint.connections() {
            let places = connection.pipeline.module_count();
            let [out, back] = connection.streams.map(|StreamId(n)| &manager.streams()[n].assigned);
            for (place, &elements) in out.iter().enumerate() {
                connection.pipeline.assign(place, Direction::Down, elements);
            }
            for (n, &elements) in back.iter().enumerate() {
                connection.pipeline.assign(places - 1 - n, Direction::Up, elements);
            }
        }
        drop((manager, state));
        self.elements.wake();
    }

    /// Reports the manager's events to the applications that they concern.
    pub(super) fn notify_applications(&self, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        let state = self.connections.lock();
        for event in events {
            tracing::info!(%event, "stack manager");
            for (_, connection) in state.endpoint.connections() {
                for (id, way) in connection.streams.iter().zip([Direction::Down, Direction::Up]) {
                    if event.concerns(*id) {
                        let mut news = lock(&connection.news);
                        if news.len() >= NEWS_MAX {
                            news.pop_front();
                        }
                        news.push_back((way, event.clone()));
                    }
                }
            }
        }
    }

    /// Lets the manager sample the connections.
    pub(super) fn sample(&self, now: Instant) {
        let mut events = Vec::new();
        {
            let state = self.connections.lock();
            let mut manager = lock(&self.manager);
            if now < manager.next_sample() {
                return;
            }
            let mut seen = HashMap::new();
            for (_, connection) in state.endpoint.connections() {
                let monitors = &connection.pipeline.work().monitors;
                let due = |(id, _): &(&StreamId, _)| manager.is_due(**id, now);
                for (id, monitor) in connection.streams.iter().zip(monitors).filter(due) {
                    monitor.watch(manager.settings(*id).detail);
                    let granted = manager.granted(*id).unwrap_or_default();
                    monitor.grant(granted.guarantee.latency);
                    seen.insert(*id, monitor.take());
                }
            }
            manager.sample(now, |id| seen.get(&id).copied().unwrap_or_default(), &mut events);
        }
        self.notify_applications(&events);
        if events.iter().any(|event| matches!(event, Event::Reassigned { .. })) {
            self.counters.reassigned.fetch_add(1, Ordering::Relaxed);
            self.publish_assignments();
        }
    }

    /// Sends what is due of handshakes and keepalives, and ends connections with silent peers.
    pub(super) fn run_timers(self: &Arc<Self>, now: Instant) {
        let gone = self.update(|endpoint| endpoint.handle_timeout(now));
        gone.into_iter().for_each(|id| self.remove_connection(id));
    }

    /// Continues connections whose rings are ready. Ends those whose rings are gone, once all
    /// messages from these rings are delivered.
    pub(super) fn poll_rings(&self, now: Instant) {
        for (id, change) in self.rings.poll_changes() {
            let mut state = self.connections.lock();
            let Some(connection) = state.endpoint.get_mut(id) else { continue };
            match change {
                RingStatus::Disconnected => _ = connection.lost.get_or_insert(now),
                RingStatus::Ready | RingStatus::Calling => {
                    let pipeline = Arc::clone(&connection.pipeline);
                    drop(state);
                    self.elements.run(&pipeline, true);
                }
            }
        }
        let state = self.connections.lock();
        let open = state.endpoint.connections();
        let lost: Vec<(u32, Instant)> =
            open.filter_map(|(id, open)| open.lost.map(|since| (id, since))).collect();
        drop(state);
        for (id, since) in lost {
            let drained = self.rings.is_drained(id);
            let mut state = self.connections.lock();
            let clear = state.endpoint.get_mut(id).is_none_or(|open| open.pipeline.is_drained());
            drop(state);
            if (drained && clear) || now.since(since) >= LEFTOVERS {
                self.remove_connection(id);
            }
        }
    }

    /// Removes a connection and frees its resources.
    pub(super) fn remove_connection(&self, id: u32) {
        let Some(connection) = self.connections.lock().endpoint.remove(id) else { return };
        self.rings.close(id);
        connection.disconnected.store(true, Ordering::Release);
        connection.pipeline.work().wake_all();
        lock(&connection.negotiations).wake();
        self.elements.remove(&connection.pipeline);
        self.release(connection.streams);
    }
}

//! The run: events in one total order, by time and then by number, on one clock.
//!
//! `poll_transmit -> hop (a Line) -> next hop -> ... -> handle_packet`. An event is a hop or an endpoint
//! that is due, or a packet that an endpoint sends. There is one thread, and the only clock is the time of
//! the event: the same network under the same seed gives the same events everywhere. What is pending is a
//! time for each hop and endpoint and the packets in the links; both have limits.

use std::any::Any;

use selvedge_data_net_line::Packet;
use selvedge_units::{Duration, Instant};

use crate::agenda::Agenda;
use crate::endpoint::Endpoint;
use crate::network::{NONE, Network, NetworkError};
use crate::packet::{Datagram, EndpointId, HostId};
use crate::results::{Event, Flow, HopResult, Observer, Results, Step};

/// What ends a run that would take for ever, or all memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most events.
    pub events: u64,
    /// The most packets in the network at once; each takes about 200 bytes.
    pub packets: u64,
}

impl Default for Limits {
    /// Some minutes' work, and 200 MB.
    fn default() -> Self {
        Self { events: 5_000_000_000, packets: 1_000_000 }
    }
}

/// Why a run ended early, at a virtual time. It cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// [`Limits::events`].
    #[error("more than {0} events, at {1}; run it for a shorter time, or raise the limit")]
    Events(u64, Duration),
    /// [`Limits::packets`].
    #[error("more than {0} packets in the network, at {1}; bound its queues, or raise the limit")]
    Packets(u64, Duration),
    /// An endpoint sent a packet of a flow that there is not.
    #[error("an endpoint sent a packet of flow {0}, at {1}; use the numbers that the network gave")]
    Flow(u64, Duration),
}

/// A network that runs.
pub struct Simulation {
    now: Instant,
    limits: Limits,
    network: Network,
    /// See [`Network::routes`].
    routes: Vec<Vec<u32>>,
    /// The hops, then the endpoints.
    agenda: Agenda,
    events: u64,
    /// Packets in all hops.
    packets: u64,
}

impl Simulation {
    /// A run of this network, at time 0.
    ///
    /// # Errors
    /// [`NetworkError::Unreachable`].
    pub fn new(network: Network, limits: Limits) -> Result<Self, NetworkError> {
        let (now, hops) = (Instant::ZERO, network.hops.len());
        let mut agenda = Agenda::new(hops + network.endpoints.len());
        for (number, endpoint) in network.endpoints.iter().enumerate() {
            agenda.set(now, hops + number, endpoint.poll_timeout());
        }
        let routes = network.routes()?;
        Ok(Self { now, limits, network, routes, agenda, events: 0, packets: 0 })
    }

    /// Does all that happens until this time. The observer sees each packet's way; `&mut |_| {}` sees nothing
    /// and costs nothing.
    ///
    /// # Errors
    /// A limit, or an endpoint that sends what it cannot.
    pub fn run(&mut self, until: Instant, observer: &mut impl Observer) -> Result<(), RunError> {
        while let Some((at, actor)) = self.agenda.next().filter(|(at, _)| *at <= until) {
            self.now = at;
            self.count_event()?;
            match actor.checked_sub(self.network.hops.len()) {
                None => self.serve_hop(actor, observer)?,
                Some(endpoint) => {
                    self.network.endpoints[endpoint].handle_timeout(at);
                    self.serve_endpoint(endpoint, observer)?;
                }
            }
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// An endpoint, if it is of this type.
    #[must_use]
    pub fn endpoint<T: Endpoint>(&self, id: EndpointId) -> Option<&T> {
        let endpoint: &dyn Any = self.network.endpoints.get(id.0 as usize)?.as_ref();
        endpoint.downcast_ref()
    }

    /// The endpoints of this type, in the order in which they were attached.
    pub fn endpoints<T: Endpoint>(&self) -> impl Iterator<Item = &T> {
        let endpoints = self.network.endpoints.iter();
        endpoints.filter_map(|endpoint| (endpoint.as_ref() as &dyn Any).downcast_ref())
    }

    /// What came of it until now.
    #[must_use]
    pub fn results(&self) -> Results {
        let Network { hosts, hops, flows, endpoints, .. } = &self.network;
        let (hosts, mut flows) = (hosts.clone(), flows.clone());
        endpoints.iter().for_each(|endpoint| endpoint.report(&mut flows));
        let hops =
            hops.iter().map(|hop| HopResult { counts: *hop.line.counts(), ..hop.result.clone() });
        Results { until: self.now, events: self.events, hosts, flows, hops: hops.collect() }
    }

    const fn count_event(&mut self) -> Result<(), RunError> {
        self.events += 1;
        if self.events > self.limits.events {
            return Err(RunError::Events(self.limits.events, self.now.since(Instant::ZERO)));
        }
        Ok(())
    }

    /// The flow of a packet in the network.
    fn flow(&mut self, packet: &Packet<Datagram>) -> &mut Flow {
        &mut self.network.flows[packet.flow as usize]
    }

    /// The endpoint that receives a packet's flow.
    fn receiver(&self, packet: &Packet<Datagram>) -> Option<usize> {
        let receiver = self.network.receivers[packet.flow as usize];
        (receiver != NONE).then_some(receiver as usize)
    }

    /// Takes the packets out that have come to a hop's end.
    fn serve_hop(&mut self, number: usize, observer: &mut impl Observer) -> Result<(), RunError> {
        while let Some(arrived) = self.network.hops[number].line.poll_packet(self.now) {
            let packet = arrived.packet;
            let result = &mut self.network.hops[number].result;
            result.queueing.record(arrived.dequeued.since(packet.payload.entered));
            let to = result.to;
            if let Some(bit) = arrived.wrong_bit {
                self.flow(&packet).lost += 1;
                self.observe(to, Step::Damaged, &packet, observer);
                if let Some(receiver) =
                    self.receiver(&packet).filter(|_| self.flow(&packet).to == to)
                {
                    self.network.endpoints[receiver].handle_damaged(self.now, packet, bit);
                    self.serve_endpoint(receiver, observer)?;
                }
                continue;
            }
            self.observe(to, Step::Arrived, &packet, observer);
            if self.flow(&packet).to == to {
                self.deliver(packet, observer)?;
            } else {
                self.forward(to, packet, observer)?;
            }
        }
        self.settle(number, observer)
    }

    /// Hands a packet to the hop that leads from this host to where it goes.
    fn forward(
        &mut self,
        host: HostId,
        mut packet: Packet<Datagram>,
        observer: &mut impl Observer,
    ) -> Result<(), RunError> {
        let to = self.flow(&packet).to;
        let number = self.routes[to.0 as usize][host.0 as usize] as usize;
        packet.payload.entered = self.now;
        self.network.hops[number].line.handle_packet(self.now, packet);
        self.settle(number, observer)
    }

    /// Keeps the books of a hop, after each call.
    fn settle(&mut self, number: usize, observer: &mut impl Observer) -> Result<(), RunError> {
        while let Some((packet, why)) = self.network.hops[number].line.poll_dropped() {
            self.network.hops[number].dropped += 1;
            self.flow(&packet).lost += 1;
            let from = self.network.hops[number].result.from;
            self.observe(from, Step::Dropped(why), &packet, observer);
        }
        let hop = &mut self.network.hops[number];
        self.agenda.set(self.now, number, hop.line.poll_timeout());
        let counts = hop.line.counts();
        let packets = counts.packets + counts.duplicated - counts.arrived - hop.dropped;
        self.packets = self.packets + packets - hop.packets;
        hop.packets = packets;
        if self.packets > self.limits.packets {
            return Err(RunError::Packets(self.limits.packets, self.now.since(Instant::ZERO)));
        }
        Ok(())
    }

    /// Hands a packet to the endpoint that receives its flow.
    fn deliver(
        &mut self,
        packet: Packet<Datagram>,
        observer: &mut impl Observer,
    ) -> Result<(), RunError> {
        let now = self.now;
        let flow = self.flow(&packet);
        flow.arrived += 1;
        flow.arrived_bytes += packet.size;
        flow.delays.record(now.since(packet.payload.sent));
        flow.last = now;
        let Some(receiver) = self.receiver(&packet) else { return Ok(()) };
        self.network.endpoints[receiver].handle_packet(now, packet);
        self.serve_endpoint(receiver, observer)
    }

    /// Sends what an endpoint wants to send, and asks it when it is due next.
    fn serve_endpoint(
        &mut self,
        number: usize,
        observer: &mut impl Observer,
    ) -> Result<(), RunError> {
        let now = self.now;
        while let Some(mut packet) = self.network.endpoints[number].poll_transmit(now) {
            self.count_event()?;
            let flow = self.network.flows.get_mut(packet.flow as usize);
            let flow = flow.ok_or_else(|| RunError::Flow(packet.flow, now.since(Instant::ZERO)))?;
            flow.sent += 1;
            flow.sent_bytes += packet.size;
            flow.first.get_or_insert(now);
            packet.payload.sent = now;
            let from = flow.from;
            self.observe(from, Step::Sent, &packet, observer);
            self.forward(from, packet, observer)?;
        }
        let timeout = self.network.endpoints[number].poll_timeout();
        self.agenda.set(now, self.network.hops.len() + number, timeout);
        Ok(())
    }

    fn observe(
        &self,
        host: HostId,
        step: Step,
        packet: &Packet<Datagram>,
        observer: &mut impl Observer,
    ) {
        let flow = &self.network.flows[packet.flow as usize];
        observer(&Event { at: self.now, host, step, flow, packet });
    }
}

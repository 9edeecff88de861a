//! Streams over several paths in the simulator: the product's bond between a paced link and its paths, and at the far
//! end.
//!
//! Each path has hosts of its own, so that its packets go over its link.

use std::collections::BTreeMap;
use std::sync::Arc;

use selvedge_data_net_bond as bond;
use selvedge_data_net_bond::{OVERHEAD, PathId, PathParams, PathState, PathStatus, StreamId};
use selvedge_data_net_line::{Ecn, Packet};
use selvedge_data_stream::rtp;
use selvedge_sim::media::{Receiver, Sender};
use selvedge_sim::{
    Datagram, Endpoint, EndpointId, Flow, FlowId, HostId, Network, NetworkError, Payload,
};
use selvedge_units::{Bytes, Duration, Instant};

/// How often encoders follow what is known of the paths, as in a node.
const LEAD_EVERY: Duration = Duration::from_millis(20);

/// What goes over a bond.
#[derive(Debug)]
pub(crate) enum BondedLoad {
    /// The streams of a link.
    Streams(Box<Sender>),
    /// Packets as fast as the paths carry them.
    Flood(Flood),
}

/// Packets that always wait. Each begins with its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    flow: FlowId,
    size: Bytes,
    delay: Duration,
    /// When the next leaves, and its number.
    next: Instant,
    number: u64,
}

impl Flood {
    /// Packets of this size, at least eight bytes, each due so long after it was sent, from `start` on. They are the
    /// useful bytes of this flow.
    #[must_use]
    pub(crate) fn new(flow: FlowId, size: Bytes, delay: Duration, start: Instant) -> Self {
        Self { flow, size: size.max(Bytes(8)), delay, next: start, number: 0 }
    }

    fn packet(&mut self) -> Arc<[u8]> {
        let mut bytes = vec![0; self.size.0 as usize];
        self.number += 1;
        bytes[..8].copy_from_slice(&self.number.to_be_bytes());
        bytes.into()
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct BondedSender {
    load: BondedLoad,
    bond: bond::Sender,
    /// Of the packets on each path.
    flows: BTreeMap<PathId, FlowId>,
    /// When the encoders follow next; never if none does.
    lead: Option<Instant>,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct BondedReceiver {
    bond: bond::Receiver,
    /// Of the reports on each path.
    flows: BTreeMap<PathId, FlowId>,
    streams: BTreeMap<StreamId, Receiver>,
    /// Bytes of floods, and the number of the latest packet.
    floods: BTreeMap<StreamId, (Bytes, u64)>,
    disordered: u64,
}

impl BondedSender {
    /// Adds both ends, with a path between each pair of hosts; the streams' receivers are those of these flows.
    /// Errors are those of [`Network::flow`]. Returns the sending and the receiving end.
    pub(crate) fn attach(
        network: &mut Network,
        name: &str,
        paths: &[([HostId; 2], PathParams)],
        load: BondedLoad,
        streams: &[FlowId],
    ) -> Result<[EndpointId; 2], NetworkError> {
        let mut sender = bond::Sender::new(rtp::IPV4_UDP);
        let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
        for (number, (hosts, params)) in paths.iter().enumerate() {
            let id = PathId(number as u8);
            let flows = network.flow_and_answers(&format!("{name} path {number}"), *hosts)?;
            sender.add_path(Instant::ZERO, id, *params);
            there.insert(id, flows[0]);
            back.insert(id, flows[1]);
        }
        let receives =
            |flows: &BTreeMap<PathId, FlowId>| flows.values().copied().collect::<Vec<_>>();
        let [packets, reports] = [receives(&there), receives(&back)];
        let streams = streams.iter().map(|flow| (StreamId(flow.0 as u16), Receiver::new(*flow)));
        let (streams, floods, bond) =
            (streams.collect(), BTreeMap::new(), bond::Receiver::default());
        let receiver = BondedReceiver { bond, flows: back, streams, floods, disordered: 0 };
        let receiver = network.attach(Box::new(receiver), &packets)?;
        let leads = matches!(&load, BondedLoad::Streams(sender) if sender.leads());
        let lead = leads.then_some(Instant::ZERO);
        let sender = Self { load, bond: sender, flows: there, lead };
        Ok([network.attach(Box::new(sender), &reports)?, receiver])
    }

    /// What is known of each path.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (PathId, PathStatus)> {
        self.bond.paths()
    }

    /// Makes the link of the streams follow what is known of the paths.
    fn follow(&mut self, now: Instant) {
        let BondedLoad::Streams(sender) = &mut self.load else { return };
        let shortest = sender.shortest_delay().unwrap_or(Duration(u64::MAX));
        self.bond.set_reserve_most(shortest / 2);
        self.bond.set_demand(sender.offered(now));
        sender.set_path(now, self.bond.estimate());
    }

    /// Gives the bond the next packet of the load, if one may leave now.
    fn take_packet(&mut self, now: Instant) -> bool {
        self.follow(now);
        let owed = self.bond.take_owed();
        match &mut self.load {
            BondedLoad::Streams(sender) => {
                sender.owe(owed);
                let Some(packet) = sender.poll_transmit(now) else { return false };
                let Payload::Bytes(bytes) = packet.payload.payload else { return false };
                let stream = StreamId(packet.flow as u16);
                let tag = rtp::Packet::parse(&bytes).ok().and_then(|packet| packet.tag);
                let tag = tag.filter(|_| sender.selects());
                self.bond.handle_packet(now, stream, sender.deadline(), tag.as_ref(), bytes);
            }
            BondedLoad::Flood(flood) => {
                let rate = self.bond.rate();
                // What waits for longer than its delay expires, and is not paid for.
                flood.next = (flood.next + owed / rate).min(now.max(flood.next) + flood.delay);
                if flood.next > now {
                    return false;
                }
                flood.next = flood.next.max(now) + (flood.size + OVERHEAD + rtp::IPV4_UDP) / rate;
                let (stream, deadline) = (StreamId(flood.flow.0 as u16), now + flood.delay);
                self.bond.handle_packet(now, stream, deadline, None, flood.packet());
            }
        }
        true
    }
}

impl Endpoint for BondedSender {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        if let Payload::Bytes(bytes) = &packet.payload.payload {
            // What is no datagram changes nothing.
            let _ = self.bond.handle_datagram(now, bytes);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.bond.handle_timeout(now);
        self.follow(now);
        if let BondedLoad::Streams(sender) = &mut self.load {
            if self.lead.is_some_and(|due| due <= now) {
                self.lead = Some(now + LEAD_EVERY);
                // Nothing is known of paths that deliver nothing.
                if self
                    .bond
                    .paths()
                    .any(|(_, path)| path.state == PathState::Active && path.is_used)
                {
                    sender.lead(now, self.bond.estimate());
                }
            }
            sender.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        loop {
            if let Some(transmit) = self.bond.poll_transmit(now) {
                let flow = self.flows.get(&transmit.path)?;
                let packet = Datagram::udp(*flow, transmit.bytes.into());
                return Some(Packet { ecn: Ecn::Capable, ..packet });
            }
            if !self.take_packet(now) {
                return None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let load = match &self.load {
            BondedLoad::Streams(sender) => sender.poll_timeout(),
            BondedLoad::Flood(flood) => Some(flood.next),
        };
        [load, self.bond.poll_timeout(), self.lead].into_iter().flatten().min()
    }

    fn report(&self, flows: &mut [Flow]) {
        if let BondedLoad::Streams(sender) = &self.load {
            sender.report(flows);
        }
    }
}

impl BondedReceiver {
    /// Records the packets of all streams from now on.
    pub(crate) fn record(&mut self) {
        self.streams.values_mut().for_each(Receiver::record);
    }

    /// The receiver of the stream of this flow.
    #[must_use]
    pub(crate) fn stream(&self, flow: FlowId) -> Option<&Receiver> {
        self.streams.get(&StreamId(flow.0 as u16))
    }

    /// Packets of floods that came behind a later one.
    #[must_use]
    pub(crate) const fn disordered(&self) -> u64 {
        self.disordered
    }

    fn deliver(&mut self, now: Instant) {
        while let Some(bond::Delivered { stream, packet }) = self.bond.poll_packet() {
            let size = Bytes(packet.len() as u64);
            let Some(receiver) = self.streams.get_mut(&stream) else {
                let number = packet.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
                let (bytes, last) = self.floods.entry(stream).or_default();
                self.disordered += u64::from(number <= *last);
                (*bytes, *last) = (*bytes + size, number.max(*last));
                continue;
            };
            let flow = FlowId(stream.0.into());
            receiver
                .handle_packet(now, Datagram::packet(flow, size, Payload::Bytes(packet.into())));
        }
    }
}

impl Endpoint for BondedReceiver {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        if let Payload::Bytes(bytes) = &packet.payload.payload {
            let is_marked = packet.ecn == Ecn::Marked;
            let _ = self.bond.handle_datagram(now, bytes, is_marked);
            self.deliver(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.bond.handle_timeout(now);
        self.deliver(now);
        for receiver in self.streams.values_mut() {
            if receiver.poll_timeout().is_some_and(|due| due <= now) {
                receiver.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        let transmit = self.bond.poll_transmit(now)?;
        let flow = self.flows.get(&transmit.path)?;
        Some(Datagram::udp(*flow, transmit.bytes.into()))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let streams = self.streams.values().filter_map(Receiver::poll_timeout);
        self.bond.poll_timeout().into_iter().chain(streams).min()
    }

    fn report(&self, flows: &mut [Flow]) {
        for receiver in self.streams.values() {
            receiver.report(flows);
        }
        for (stream, (bytes, _)) in &self.floods {
            if let Some(flow) = flows.get_mut(usize::from(stream.0)) {
                flow.useful = Some(*bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Connections of the product's endpoint between two hosts: handshakes, sealed datagrams and stacks.
//!
//! The program at the first host opens connections, one after the other, and sends messages on each. The program at
//! the second host accepts one every 3 s, so some wait; what arrives for them is read meanwhile. Both share a secret.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use selvedge_data_net_line::{Packet, Random};
use selvedge_data_net_secure::{Event, Identity, Key, Opener, Sealer, Session};
use selvedge_data_stack::compose::BuildError;
use selvedge_data_stack::deliver::Order;
use selvedge_data_stack::endpoint::{self, Input, Peer};
use selvedge_data_stack::stack::{ConnectionModules, Stack};
use selvedge_units::{Bytes, Duration, Instant};

use super::messages::{Program, Wire, message, number_of};
use crate::endpoint::Endpoint;
use crate::packet::{Datagram, FlowId, Payload};
use crate::promise::{Breach, Promise};
use crate::results::Flow;

/// From one connection to the next that is opened, and that is accepted.
const OPENS: Duration = Duration::from_millis(200);
const ACCEPTS: Duration = Duration::from_secs(3);
/// A peer may be silent for so long.
const SILENCE: Duration = Duration::from_secs(60);
/// By then an attempt to connect has an outcome: 30 probes and 30 hellos, 100 ms apart.
const ATTEMPT: Duration = Duration::from_secs(7);
const SECRET: Identity = Identity::Secret(Key([7; 32]));

/// One open connection at one end.
#[derive(Debug)]
struct Open {
    peer: SocketAddr,
    stack: Stack,
    sealer: Sealer,
    opener: Opener,
    was_heard: bool,
    next: Instant,
    sent: u64,
    received: u64,
}

impl Open {
    fn new(
        program: &Program,
        id: u32,
        peer: SocketAddr,
        session: Session,
        now: Instant,
    ) -> Result<Self, BuildError> {
        let Session { sealer, opener, module_keys, .. } = session;
        let modules = ConnectionModules::new(&program.stack, id, Some(&module_keys))?;
        let (stack, was_heard) = (Stack::new(modules), false);
        Ok(Self { peer, stack, sealer, opener, was_heard, next: now, sent: 0, received: 0 })
    }

    fn opened<'d>(&mut self, datagram: &'d mut [u8]) -> Option<&'d [u8]> {
        let text = self.opener.open(datagram).ok()?;
        self.was_heard = true;
        Some(text)
    }
}

impl Peer for Open {
    fn address(&self) -> SocketAddr {
        self.peer
    }

    fn is_sealed(&self) -> bool {
        true
    }

    fn has_ring(&self) -> bool {
        false
    }

    fn was_heard(&mut self) -> bool {
        std::mem::take(&mut self.was_heard)
    }

    fn is_spent(&self) -> bool {
        false
    }

    fn keepalive(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.sealer.packet(&[], now).ok()
    }

    fn handle_keepalive(&mut self, _: &[u8]) {}
}

/// An attempt to connect, and how it ended: whether the other end answered.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    begun: Instant,
    answered: Option<bool>,
}

/// One end of all connections.
#[derive(Debug)]
pub struct ConnectionEnd {
    program: Program,
    /// So many are still to be opened by this end.
    left: u32,
    /// When it opens or accepts the next one.
    next: Instant,
    peer: SocketAddr,
    sends: FlowId,
    receives: FlowId,
    endpoint: endpoint::Endpoint<Open, (), u32>,
    random: Random,
    attempts: BTreeMap<u32, Attempt>,
    /// How often the other end has opened a connection of this number.
    opened: BTreeMap<u32, u32>,
    outgoing: VecDeque<Arc<[u8]>>,
    wire: Wire,
    breaches: Vec<Breach>,
}

fn key(random: &mut Random) -> Key {
    Key(std::array::from_fn(|_| random.bits() as u8))
}

impl ConnectionEnd {
    /// The two ends; the first opens `connections`, sends the first flow and receives the second.
    #[must_use]
    pub fn pair(
        program: &Program,
        connections: u32,
        [there, back]: [FlowId; 2],
        random: [Random; 2],
    ) -> [Self; 2] {
        let [first, second] = random;
        let end = |left, host: u8, [sends, receives]: [FlowId; 2], mut random: Random| Self {
            program: program.clone(),
            left,
            next: program.start,
            peer: ([10, 0, 0, host], 7000).into(),
            sends,
            receives,
            endpoint: endpoint::Endpoint::new(SECRET, &key(&mut random), SILENCE),
            random,
            attempts: BTreeMap::new(),
            opened: BTreeMap::new(),
            outgoing: VecDeque::new(),
            wire: Wire::default(),
            breaches: Vec::new(),
        };
        [end(connections, 2, [there, back], first), end(0, 1, [back, there], second)]
    }

    /// The datagrams that this end sends.
    pub(crate) fn wire(&self) -> Wire {
        self.wire.clone()
    }

    /// The flow of its datagrams.
    pub(crate) const fn flow(&self) -> FlowId {
        self.sends
    }

    /// The promises that the peer broke to this end, which opens, if the run ended now. `is_whole` is whether every
    /// packet of both arrived by now, once and within a second.
    pub(crate) fn breaches(&self, peer: &Self, is_whole: bool, now: Instant) -> Vec<Breach> {
        let mut breaches = [&self.breaches[..], &peer.breaches].concat();
        let mut add = |promise, what| breaches.push(Breach { promise, what });
        for (id, times) in &peer.opened {
            if *times > 1 || !self.attempts.contains_key(id) {
                add(Promise::Handshake, format!("connection {id:08x} was opened {times} times"));
            }
        }
        for (id, attempt) in &self.attempts {
            if attempt.answered.is_none() && now.since(attempt.begun) >= ATTEMPT {
                add(Promise::Waits, format!("the attempt {id:08x} has no outcome"));
            }
            if attempt.answered == Some(false) && is_whole {
                add(Promise::Waits, format!("the attempt {id:08x} was not answered"));
            }
        }
        if !is_whole || self.program.stack.order() != Order::InOrder {
            return breaches;
        }
        let far: BTreeMap<u32, &Open> = peer.endpoint.connections().collect();
        for (id, near) in self.endpoint.connections() {
            let received = far.get(&id).map_or(0, |far| far.received);
            if received < near.sent {
                let what = format!(
                    "connection {id:08x}: {received} of {} messages, though no packet was lost",
                    near.sent
                );
                add(Promise::Waits, what);
            }
        }
        breaches
    }

    fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) {
        let Self { program, peer, endpoint, random, opened, .. } = self;
        for _ in 0..2 {
            match endpoint.handle_datagram(*peer, bytes, || key(random), now) {
                Input::Packet(open) => {
                    let mut datagram = bytes.to_vec();
                    match open.opened(&mut datagram) {
                        None | Some([]) => {}
                        Some(text) => open.stack.handle_datagram(now, text),
                    }
                    break;
                }
                Input::Confirmed(id, confirmed) => {
                    *opened.entry(id).or_default() += 1;
                    let open = Open::new(program, id, confirmed.from, confirmed.session, now);
                    let is_open = open.is_ok_and(|open| endpoint.open(id, open, now).is_ok());
                    if is_open && endpoint.enqueue_unaccepted(id).is_err() {
                        endpoint.remove(id);
                    }
                }
                Input::Handled | Input::Stranger => break,
            }
        }
        self.finish(now);
    }

    /// Handles what the endpoint decided, takes messages, and enqueues datagrams.
    fn finish(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            self.handle_event(event, now);
        }
        let ids: Vec<u32> = self.endpoint.connections().map(|(id, _)| id).collect();
        for id in ids {
            let Some(open) = self.endpoint.get_mut(id) else { continue };
            while let Some(datagram) = open.stack.poll_transmit() {
                let sealed = open.sealer.packet(datagram.bytes(), now);
                open.stack.recycle(datagram);
                self.outgoing.extend(sealed.ok().map(Arc::from));
            }
            while let Some(message) = open.stack.poll_message() {
                let number = number_of(message.bytes(), self.program.size.0 as usize);
                let is_next = number == Some(open.received);
                open.received += 1;
                let promise = match (number, self.program.stack.order()) {
                    (None, _) => Promise::OpensOnce,
                    (_, Order::InOrder) if !is_next => Promise::InOrder,
                    _ => continue,
                };
                let what = format!("connection {id:08x}: {number:?} after {}", open.received - 1);
                self.breaches.push(Breach { promise, what });
            }
        }
        while let Some(transmit) = self.endpoint.poll_transmit() {
            self.outgoing.push_back(Arc::from(transmit.bytes));
        }
    }

    fn handle_event(&mut self, event: Event<()>, now: Instant) {
        let (program, peer) = (&self.program, self.peer);
        let (over, answered) = match event {
            Event::Reached { connection, .. } => {
                let seed = key(&mut self.random);
                let text = program.stack.to_string();
                let handshakes = self.endpoint.handshakes();
                let proposed = handshakes.propose(connection, text.as_bytes(), &seed, now);
                (proposed.is_err().then_some(connection), false)
            }
            Event::Hello(hello) => {
                let room = self.endpoint.check_room(hello.connection);
                let handshakes = self.endpoint.handshakes();
                match room {
                    Ok(()) => _ = handshakes.answer(*hello, b"", (), now),
                    Err(why) => handshakes.refuse(*hello, &why.to_string(), now),
                }
                (None, false)
            }
            Event::Welcomed { connection, session, .. } => {
                if let Ok(open) = Open::new(program, connection, peer, *session, now) {
                    let _ = self.endpoint.open(connection, open, now);
                }
                (Some(connection), true)
            }
            Event::Refused { connection, .. } => (Some(connection), true),
            Event::Silent { connection } => (Some(connection), false),
            Event::Unknown { .. } | Event::Expired { .. } => (None, false),
        };
        if let Some(attempt) = over.and_then(|id| self.attempts.get_mut(&id)) {
            attempt.answered = Some(answered);
        }
    }

    /// Opens a connection, or accepts one, if it is time.
    fn open_or_accept(&mut self, now: Instant) {
        if self.next > now {
            return;
        }
        if self.left == 0 {
            self.endpoint.accept();
            self.next += ACCEPTS;
            return;
        }
        (self.left, self.next) = (self.left - 1, self.next + OPENS);
        let (id, seed) = ((self.random.bits() as u32).max(1), key(&mut self.random));
        let begun = self.endpoint.handshakes().connect(id, self.peer, None, &seed, now);
        if begun.is_ok() {
            self.attempts.insert(id, Attempt { begun: now, answered: None });
        }
    }

    /// Whether this end opens connections and sends messages.
    fn is_first(&self) -> bool {
        self.left > 0 || !self.attempts.is_empty()
    }
}

impl Endpoint for ConnectionEnd {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        if let Payload::Bytes(bytes) = packet.payload.payload {
            self.handle_datagram(now, &bytes);
        }
    }

    fn handle_damaged(&mut self, now: Instant, packet: Packet<Datagram>, bit: u64) {
        if let Some(bytes) = packet.payload.with_wrong_bit(bit) {
            self.handle_datagram(now, &bytes);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.open_or_accept(now);
        for id in self.endpoint.handle_timeout(now) {
            self.endpoint.remove(id);
        }
        let sends = self.is_first();
        let ids: Vec<u32> = self.endpoint.connections().map(|(id, _)| id).collect();
        for id in ids {
            let Some(open) = self.endpoint.get_mut(id) else { continue };
            open.stack.handle_timeout(now);
            if sends && open.next <= now.min(self.program.until) {
                open.next += self.program.every.max(Duration(1));
                let bytes = message(open.sent, self.program.size.0 as usize);
                open.sent += u64::from(open.stack.handle_message(now, &bytes).is_ok());
            }
        }
        self.finish(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        let bytes = self.outgoing.pop_front()?;
        self.wire.record(&bytes);
        Some(Datagram::udp(self.sends, bytes))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let (sends, until) = (self.is_first(), self.program.until);
        let of = |(_, open): (u32, &Open)| {
            let next = (sends && open.next <= until).then_some(open.next);
            open.stack.poll_timeout().into_iter().chain(next).min()
        };
        let open = self.endpoint.connections().filter_map(of);
        let next = (self.left > 0 || !sends).then_some(self.next);
        open.chain(self.endpoint.poll_timeout()).chain(next).min()
    }

    fn report(&self, flows: &mut [Flow]) {
        if let Some(flow) = flows.get_mut(self.receives.0 as usize) {
            let received: u64 = self.endpoint.connections().map(|(_, open)| open.received).sum();
            flow.useful = Some(Bytes(received * self.program.size.0));
        }
    }
}

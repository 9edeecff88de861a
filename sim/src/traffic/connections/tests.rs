//! Connections keep what is promised over bad lines and beside attackers; ends with faults are found.

use selvedge_control_config::network::{self, FileError, NetworkConfig};

use super::*;
use crate::fuzz;
use crate::network::Network;
use crate::scenario::Scenario;
use crate::simulation::{Limits, Simulation};

const BAD: &str = "loss = \"20 %\"\ncorrupts = \"5 %\"\nduplicates = \"5 %\"\nreorders = true\n\
                   delay = \"20 ms\"\njitter = \"10 ms\"\n";
const GOOD: &str = "delay = \"10 ms\"\n";
const RELIABLE: &str = "ui | reliable | frag(300) | net";

/// Connections from `a` to `b` on a line of this kind, and an attacker of each.
fn network(stack: &str, line: &str) -> NetworkConfig {
    let text = format!(
        "[network]\nsource = \"made up\"\nlasts = \"8 s\"\n[host.a]\n[host.b]\n[link.l]\nbetween = [\"a\", \"b\"]\n\
         {line}[traffic.m]\nkind = \"messages\"\nfrom = \"a\"\nto = \"b\"\nevery = \"20 ms\"\nsize = \"700 B\"\n\
         stack = \"{stack}\"\nconnections = 12\n\
         [traffic.x]\nkind = \"hostile\"\nfrom = \"a\"\nto = \"b\"\nevery = \"3 ms\"\n\
         [traffic.y]\nkind = \"hostile\"\nfrom = \"b\"\nto = \"a\"\nevery = \"3 ms\"\n"
    );
    network::parse(&text, "test", &mut |_| Err(FileError::NotText)).unwrap()
}

fn run(stack: &str, line: &str) -> (Simulation, Vec<Breach>) {
    let config = network(stack, line);
    let network = Scenario::new(&config, &[], None, 5, None).unwrap().network;
    let mut simulation = Simulation::new(network, Limits::default()).unwrap();
    simulation.run(Instant::ZERO + config.lasts, &mut |_: &_| {}).unwrap();
    let breaches = fuzz::messages(&config, &simulation);
    (simulation, breaches)
}

fn sent_and_received(simulation: &Simulation) -> [u64; 2] {
    let ends: Vec<&ConnectionEnd> = simulation.endpoints().collect();
    let open = || ends[0].endpoint.connections();
    let received = ends[1].endpoint.connections().map(|(_, open)| open.received).sum();
    [open().map(|(_, open)| open.sent).sum(), received]
}

#[test]
fn all_messages_arrive_beside_an_attacker_though_connections_wait_to_be_accepted() {
    for stack in fuzz::STACKS {
        let (simulation, breaches) = run(stack, GOOD);
        assert_eq!(breaches, [], "{stack}");
        let [sent, received] = sent_and_received(&simulation);
        assert!(sent > 2_000 && received == sent, "{stack}: {received} of {sent}");
    }
}

#[test]
fn connections_keep_their_promises_over_a_bad_line() {
    for stack in fuzz::STACKS {
        let (simulation, breaches) = run(stack, BAD);
        assert_eq!(breaches, [], "{stack}");
        let [sent, received] = sent_and_received(&simulation);
        assert!(received > sent / 4 && sent > 500, "{stack}: {received} of {sent}");
    }
}

/// The second end with a fault: what it takes instead of this datagram.
struct Faulty<F>(ConnectionEnd, F);

impl<F: FnMut(&mut ConnectionEnd, Arc<[u8]>) -> Vec<Arc<[u8]>> + 'static> Endpoint for Faulty<F> {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        let Payload::Bytes(bytes) = packet.payload.payload else { return };
        for bytes in (self.1)(&mut self.0, bytes) {
            self.0.handle_datagram(now, &bytes);
        }
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.0.handle_timeout(now);
    }
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        self.0.poll_transmit(now)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }
}

/// What is broken beside an end with this fault, on a line that loses nothing.
fn broken<F>(fault: F) -> Vec<Promise>
where
    F: FnMut(&mut ConnectionEnd, Arc<[u8]>) -> Vec<Arc<[u8]>> + 'static,
{
    let mut network = Network::new(3);
    let hosts = ["a", "b"].map(|name| network.host(name).unwrap());
    let line = [(); 2].map(|()| selvedge_data_net_line::LineModel::default());
    network.link("l", hosts, line).unwrap();
    let flows = network.flow_and_answers("m", hosts).unwrap();
    let (start, until) = (Instant::ZERO, Instant::ZERO + Duration::from_secs(6));
    let (every, size) = (Duration::from_millis(20), Bytes(100));
    let stack = RELIABLE.parse().unwrap();
    let program = Program { stack, start, until, every, size };
    let random = ["1", "2"].map(|end| network.random(end));
    let [first, second] = ConnectionEnd::pair(&program, 12, flows, random);
    let first = network.attach(Box::new(first), &[flows[1]]).unwrap();
    let second = network.attach(Box::new(Faulty(second, fault)), &[flows[0]]).unwrap();
    let mut simulation = Simulation::new(network, Limits::default()).unwrap();
    let end = Instant::ZERO + Duration::from_secs(8);
    simulation.run(end, &mut |_: &_| {}).unwrap();
    let first: &ConnectionEnd = simulation.endpoint(first).unwrap();
    let Faulty(second, _): &Faulty<F> = simulation.endpoint(second).unwrap();
    let breaches = first.breaches(second, true, end).into_iter();
    let mut promises: Vec<_> = breaches.map(|breach| breach.promise).collect();
    promises.sort();
    promises.dedup();
    promises
}

#[test]
fn an_end_that_stops_reading_while_a_second_connection_waits_is_found() {
    assert_eq!(broken(|_, bytes| vec![bytes]), []);
    let waits = |end: &ConnectionEnd| end.opened.len() as u64 > end.next.0 / ACCEPTS.0 + 1;
    let fault = move |end: &mut ConnectionEnd, bytes| match waits(end) {
        true => Vec::new(),
        false => vec![bytes],
    };
    assert_eq!(broken(fault), [Promise::Waits]);
}

#[test]
fn a_connection_that_nobody_opened_or_opened_twice_is_found() {
    let invented = |end: &mut ConnectionEnd, bytes| {
        end.opened.insert(77, 1);
        vec![bytes]
    };
    assert_eq!(broken(invented), [Promise::Handshake]);
    let twice = |end: &mut ConnectionEnd, bytes| {
        end.opened.values_mut().for_each(|times| *times = 2);
        vec![bytes]
    };
    assert_eq!(broken(twice), [Promise::Handshake]);
}

#[test]
fn messages_that_are_not_what_was_sent_are_found() {
    let skipped = |end: &mut ConnectionEnd, bytes| {
        let ids: Vec<u32> = end.endpoint.connections().map(|(id, _)| id).collect();
        if let Some(open) = ids.first().and_then(|id| end.endpoint.get_mut(*id)) {
            open.received = 1_000;
        }
        vec![bytes]
    };
    assert_eq!(broken(skipped), [Promise::InOrder]);
    let larger = |end: &mut ConnectionEnd, bytes| {
        end.program.size = Bytes(101);
        vec![bytes]
    };
    assert_eq!(broken(larger), [Promise::OpensOnce]);
}

#[test]
fn an_attempt_without_an_outcome_is_found() {
    assert_eq!(broken(|_, _| Vec::new()), [Promise::Waits]);
    let program = Program {
        stack: RELIABLE.parse().unwrap(),
        start: Instant::ZERO,
        until: Instant::ZERO,
        every: Duration(1),
        size: Bytes(20),
    };
    let random = ["1", "2"].map(|name| Random::named(1, name));
    let [mut first, second] = ConnectionEnd::pair(&program, 1, [FlowId(0), FlowId(1)], random);
    first.handle_timeout(Instant::ZERO);
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    assert_eq!(first.breaches(&second, true, at(6_999)), []);
    let breaches = first.breaches(&second, true, at(7_000));
    assert_eq!(breaches.len(), 1);
    assert_eq!(breaches[0].promise, Promise::Waits);
}

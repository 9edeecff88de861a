//! Hosts, links, routes, limits; what is counted.

use std::sync::Arc;

use selvedge_data_net_line::{Drop, LossModel, Packet};
use selvedge_sim::{
    Datagram, Endpoint, FlowId, Limits, Network, Payload, RunError, Simulation, Step,
};
use selvedge_units::{Bytes, Duration, Instant};

use crate::{at, line, ms, run, simulation};

/// Sends these packets at these times in ms, and keeps what comes.
#[derive(Default)]
struct Program {
    sends: Vec<(u64, Packet<Datagram>)>,
    got: Vec<(Instant, Packet<Datagram>)>,
}

impl Endpoint for Program {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        self.got.push((now, packet));
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        self.sends.pop_if(|(time, _)| at(*time) <= now).map(|(_, packet)| packet)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.sends.last().map(|(time, _)| at(*time))
    }
}

fn filler(flow: FlowId, size: u64) -> Packet<Datagram> {
    Datagram::packet(flow, Bytes(size), Payload::Filler)
}

/// A chain of hosts with links of 1 Mbit/s and 10 ms; a flow from the first to the last.
fn chain(links: usize, limit: u64) -> (Network, FlowId) {
    let mut network = Network::new(1);
    let hosts: Vec<_> = (0..=links).map(|n| network.host(&n.to_string()).unwrap()).collect();
    for (n, ends) in hosts.windows(2).enumerate() {
        let models = [line(1, 10, limit), line(1, 10, limit)];
        network.link(&format!("link{n}"), [ends[0], ends[1]], models).unwrap();
    }
    let flow = network.flow("flow", hosts[0], hosts[links]).unwrap();
    (network, flow)
}

#[test]
fn a_packet_takes_each_hop_and_its_books_are_exact() {
    let (mut network, flow) = chain(3, 1 << 20);
    // 10 ms each: the second and third wait for those in front, at the first hop only.
    let sends = (0..3).map(|_| (0, filler(flow, 1_250))).collect();
    let receiver = network.attach(Box::new(Program::default()), &[flow]).unwrap();
    network.attach(Box::new(Program { sends, ..Program::default() }), &[]).unwrap();
    let mut simulation = simulation(network);
    let results = run(&mut simulation, 1_000);
    let got = &simulation.endpoint::<Program>(receiver).expect("it is one").got;
    assert_eq!(got.iter().map(|(now, _)| *now).collect::<Vec<_>>(), [at(60), at(70), at(80)]);
    let flow = &results.flows[0];
    assert_eq!((flow.sent, flow.arrived, flow.lost, flow.last), (3, 3, 0, at(80)));
    assert_eq!((flow.delays.min(), flow.delays.max()), (Some(ms(60)), Some(ms(80))));
    assert_eq!(flow.goodput(), Bytes(3_750) / ms(80));
    let there: Vec<_> = results.hops.iter().step_by(2).collect();
    let waits: Vec<_> = there.iter().map(|hop| hop.queueing.max().unwrap()).collect();
    assert_eq!(waits, [ms(20), ms(0), ms(0)]);
    assert_eq!(there[0].queueing.mean(), Some(ms(10)));
    assert!(results.hops.iter().skip(1).step_by(2).all(|hop| hop.counts.packets == 0));
    // Three were sent; at each hop each leaves the transmitter and arrives, some at the same time.
    assert!((13..=22).contains(&results.events), "{}", results.events);
}

#[test]
fn datagrams_arrive_as_they_were_sent_and_are_not_copied() {
    let (mut network, flow) = chain(2, 1 << 20);
    let bytes: Arc<[u8]> = Arc::from(&b"real bytes"[..]);
    let packet = Datagram::packet(flow, Bytes(38), Payload::Bytes(Arc::clone(&bytes)));
    let receiver = network.attach(Box::new(Program::default()), &[flow]).unwrap();
    network
        .attach(Box::new(Program { sends: vec![(5, packet)], ..Program::default() }), &[])
        .unwrap();
    let mut simulation = simulation(network);
    run(&mut simulation, 100);
    let [(_, got)] = &simulation.endpoint::<Program>(receiver).unwrap().got[..] else {
        panic!("one arrives")
    };
    let Payload::Bytes(arrived) = &got.payload.payload else { panic!("they are bytes") };
    assert!(Arc::ptr_eq(arrived, &bytes) && got.payload.sent == at(5));
}

#[test]
fn every_packet_is_accounted_for() {
    for seed in 0..20 {
        let mut network = Network::new(seed);
        let (a, b) = (network.host("a").unwrap(), network.host("b").unwrap());
        let share = |text: &str| text.parse().unwrap();
        let bad = selvedge_data_net_line::LineModel {
            loss: LossModel::Bernoulli(share("10 %")),
            corrupts: share("5 %"),
            duplicates: share("5 %"),
            ..line(1, 10, 5_000)
        };
        network.link("bad", [a, b], [bad.clone(), bad]).unwrap();
        let flow = network.flow("flow", a, b).unwrap();
        let sends = (0..500).rev().map(|n| (n * 9, filler(flow, 1_250))).collect();
        network.attach(Box::new(Program { sends, ..Program::default() }), &[]).unwrap();
        let mut simulation = simulation(network);
        let mut seen = [0_u64; 4];
        let mut observe = |event: &selvedge_sim::Event<'_>| match event.step {
            Step::Sent => seen[0] += 1,
            Step::Arrived => seen[1] += 1,
            Step::Damaged => seen[2] += 1,
            Step::Dropped(_) => seen[3] += 1,
        };
        simulation.run(at(10_000), &mut observe).unwrap();
        let results = simulation.results();
        let (flow, counts) = (&results.flows[0], results.hops[0].counts);
        assert_eq!([flow.sent, flow.arrived], [500, seen[1]]);
        assert_eq!(flow.lost, seen[2] + seen[3]);
        assert_eq!(flow.sent + counts.duplicated, flow.arrived + flow.lost);
        let dropped = [Drop::Full, Drop::Lost].map(|why| counts.dropped(why));
        assert_eq!(dropped.iter().sum::<u64>(), seen[3]);
        assert!(dropped.iter().all(|count| *count > 10) && seen[2] > 5, "{dropped:?} {seen:?}");
    }
}

/// Sends without end.
struct Flood(FlowId, Duration);

impl Endpoint for Flood {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        (self.1 == Duration::ZERO).then(|| filler(self.0, 100))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(Instant::ZERO)
    }
}

#[test]
fn what_would_never_end_ends_with_an_error() {
    let limits = Limits { events: 10_000, packets: 1_000 };
    let error = |flood: fn(FlowId) -> Flood, queue| {
        let (mut network, flow) = chain(1, queue);
        network.attach(Box::new(flood(flow)), &[]).unwrap();
        let mut simulation = Simulation::new(network, limits).unwrap();
        simulation.run(at(1), &mut |_| {}).unwrap_err()
    };
    // It fills a queue without a limit; its packets are dropped; it sends nothing and is always due.
    let elapsed = Duration::ZERO;
    let endless = |flow| Flood(flow, Duration::ZERO);
    assert_eq!(error(endless, u64::MAX), RunError::Packets(1_000, elapsed));
    assert_eq!(error(endless, 500), RunError::Events(10_000, elapsed));
    assert_eq!(error(|flow| Flood(flow, ms(1)), 500), RunError::Events(10_000, elapsed));
    assert_eq!(error(|_| Flood(FlowId(7), Duration::ZERO), 500), RunError::Flow(7, elapsed));
    let text = RunError::Packets(1_000, ms(1_500)).to_string();
    assert!(text.starts_with("more than 1000 packets in the network, at 1500 ms;"), "{text}");
}

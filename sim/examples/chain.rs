//! How many events a second it runs: ten flows in bursts over a chain of four hops.
//!
//! ```text
//! cargo run --release -p selvedge-sim --example chain -- [SECONDS]
//! ```
//!
//! 1500-byte packets at 1 Gbit/s, 10 ms a hop. An event is a hop or an endpoint that is due, or a packet
//! that is sent; a hop is due when a packet leaves its transmitter, and when one arrives. A binary heap of as many
//! times, of which the first is taken and put back later, is what such a run costs at least.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use selvedge_data_net_line::{
    CodelParams, DelayModel, DisciplineParams, FqCodelParams, LineModel, Packet, QueueModel, Rate,
};
use selvedge_sim::{Datagram, Endpoint, FlowId, Limits, Network, Payload, Simulation};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// A burst of each flow, again and again, as fast as the link carries all of them.
struct Bursts {
    flow: FlowId,
    left: u32,
    next: Instant,
}

const FLOWS: u64 = 10;
const BURST: u32 = 10;
const EVERY: Duration = Duration::from_micros(FLOWS * BURST as u64 * 12);

impl Endpoint for Bursts {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn handle_timeout(&mut self, _now: Instant) {
        self.left = BURST;
        self.next += EVERY;
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        self.left = self.left.checked_sub(1)?;
        Some(Datagram::packet(self.flow, Bytes(1_500), Payload::Filler))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }
}

fn run(name: &str, queue: QueueModel, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut network = Network::new(1);
    let hosts: Vec<_> = (0..5).map(|n| network.host(&n.to_string())).collect::<Result<_, _>>()?;
    let model = LineModel {
        rate: Some(Rate::Constant(Bitrate::from_mbps(1_000))),
        queue,
        delay: DelayModel { delay: Duration::from_millis(10), ..DelayModel::default() },
        ..LineModel::default()
    };
    for ends in hosts.windows(2) {
        network.link("link", [ends[0], ends[1]], [model.clone(), model.clone()])?;
    }
    for n in 0..FLOWS {
        let flow = network.flow(&n.to_string(), hosts[0], hosts[4])?;
        let next = Instant::ZERO + Duration::from_micros(n);
        network.attach(Box::new(Bursts { flow, left: 0, next }), &[])?;
    }
    let mut simulation = Simulation::new(network, Limits::default())?;
    let began = std::time::Instant::now();
    simulation.run(Instant::ZERO + Duration::from_secs(seconds), &mut |_| {})?;
    let took = began.elapsed().as_secs_f64();
    let results = simulation.results();
    let hops: u64 = results.hops.iter().map(|hop| hop.counts.arrived).sum();
    let lost: u64 = results.flows.iter().map(|flow| flow.lost).sum();
    let millions = |count: u64| count as f64 / took / 1e6;
    println!(
        "{name:10} {:.1} M events/s, {:.1} M packets/s through a hop; {} events in {took:.2} s, {lost} lost",
        millions(results.events),
        millions(hops),
        results.events,
    );
    Ok(())
}

/// Millions of times a second that a bare heap gives.
fn heap() -> f64 {
    const TIMES: u64 = 10_000_000;
    let mut heap: BinaryHeap<_> = (0..8 + FLOWS).map(|n| Reverse((n * 997, n))).collect();
    let began = std::time::Instant::now();
    for number in 0..TIMES {
        if let Some(Reverse((at, _))) = heap.pop() {
            heap.push(Reverse((at + 1 + (at ^ number) % 12_000, number)));
        }
    }
    assert_eq!(heap.len() as u64, 8 + FLOWS);
    TIMES as f64 / began.elapsed().as_secs_f64() / 1e6
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(20), |word| word.parse())?;
    println!("a bare heap gives {:.1} M times/s", heap());
    let codel = CodelParams::default();
    let drop_tail = QueueModel::DropTail { limit: codel.limit };
    run("drop-tail", drop_tail, seconds)?;
    run("codel", QueueModel::Codel(codel), seconds)?;
    run("fq-codel", QueueModel::FqCodel(FqCodelParams::default()), seconds)?;
    run("drr", QueueModel::Discipline(DisciplineParams::default()), seconds)
}

//! How fast packets pass the models of links of `data/net/line`, through one and through a chain of four:
//! `cargo run --release -p selvedge-lab-measure --no-default-features --example lines`.
//!
//! Packets of 1500 bytes of eight flows come at random times to links of 1 Gbit/s that they load to 90 %, each
//! with a delay of 5 ms. An event is a packet's coming to the chain, the end of its sending, or its arrival.
//! With the name of a queue behind, only with that one.

use std::time::Instant as Clock;

use selvedge_data_net_line::{
    DelayModel, DisciplineParams, DualPi2Params, Ecn, FqCodelParams, Line, LineModel, Packet,
    QueueModel, Random, Rate,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const PACKETS: u64 = 1_000_000;
const SIZE: Bytes = Bytes(1_500);
const FLOWS: u64 = 8;
const RUNS: usize = 5;

/// Sends all packets through a chain of lines; returns how many arrived at its end, and how many events
/// there were.
fn pass(queue: &QueueModel, hops: usize) -> (u64, u64) {
    let model = LineModel {
        rate: Some(Rate::Constant(Bitrate::from_mbps(1_000))),
        queue: queue.clone(),
        delay: DelayModel { delay: Duration::from_millis(5), ..DelayModel::default() },
        ..LineModel::default()
    };
    let mut lines: Vec<Line<u64>> =
        (0..hops).map(|hop| Line::new(model.clone(), 1, &format!("hop {hop}"))).collect();
    let mut random = Random::named(1, "packets");
    let gap = 2 * (SIZE / Bitrate::from_mbps(900)).0;
    let (mut sent, mut arrived, mut events) = (0, 0, 0);
    let mut next_packet = Instant::ZERO;
    loop {
        let source = if sent < PACKETS { next_packet } else { Instant::MAX };
        let timeouts = lines.iter().map(|line| line.poll_timeout().unwrap_or(Instant::MAX));
        let (next, now) = timeouts.enumerate().min_by_key(|(_, at)| *at).unwrap_or_default();
        if source.min(now) == Instant::MAX {
            return (arrived, events);
        }
        events += 1;
        if source <= now {
            let flow = random.below(FLOWS);
            let packet = Packet { size: SIZE, flow, port: 0, ecn: Ecn::NotCapable, payload: sent };
            lines[0].handle_packet(source, packet);
            next_packet += Duration(random.below(gap));
            sent += 1;
            continue;
        }
        while let Some(packet) = lines[next].poll_packet(now) {
            match lines.get_mut(next + 1) {
                Some(line) => line.handle_packet(now, packet.packet),
                None => arrived += 1,
            }
        }
        while lines[next].poll_dropped().is_some() {}
    }
}

fn main() {
    println!("queue                 lines  packets/s    events/s  arrived");
    let queues = [
        ("drop-tail", LineModel::default().queue),
        ("drr", QueueModel::Discipline(DisciplineParams::default())),
        ("fq-codel", QueueModel::FqCodel(FqCodelParams::default())),
        ("dualpi2", QueueModel::DualPi2(DualPi2Params::default())),
    ];
    let only = std::env::args().nth(1);
    for (name, queue) in queues {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        for hops in [1, 4] {
            let mut runs: Vec<(f64, u64, u64)> = (0..RUNS)
                .map(|_| {
                    let begin = Clock::now();
                    let (arrived, events) = pass(&queue, hops);
                    (begin.elapsed().as_secs_f64(), arrived, events)
                })
                .collect();
            runs.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (seconds, arrived, events) = runs[RUNS / 2];
            let (packets, events) = (PACKETS as f64 / seconds, events as f64 / seconds);
            println!("{name:20} {hops:6} {packets:10.0} {events:11.0} {arrived:8}");
        }
    }
}

//! What a packet costs in Selvedge's qdisc, beside others: small datagrams over the loopback, one by
//! one, the same for each qdisc; less what they cost without any. Where time is counted in
//! instructions (`tools/kernel.sh bench`) the unit is instructions, else nanoseconds.
//! Changes the loopback's qdisc: for a virtual machine or a network namespace of one's own.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::error::Error;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Instant;

use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Window};
use selvedge_place_kernel::{Filter, Setup, StreamSetup, attach, detach};
use selvedge_units::Duration;

use selvedge_lab_measure::median;

const ROUNDS: usize = 7;
const PACKETS: usize = 500;
const STREAMS_MAX: usize = 64;
const OTHERS: [&str; 3] = ["pfifo", "fq_codel", "fq"];
/// Discipline, streams, and whether each has filters; otherwise all packets belong to the rest.
const OURS: [(Discipline, usize, bool); 11] = [
    (Discipline::Dwcs, 1, true),
    (Discipline::Dwcs, 4, true),
    (Discipline::Dwcs, 16, true),
    (Discipline::Dwcs, 64, true),
    (Discipline::Dwcs, 64, false),
    (Discipline::Vds, 64, true),
    (Discipline::Sfq, 64, true),
    (Discipline::Drr, 64, true),
    (Discipline::Wfq, 64, true),
    (Discipline::Hwfq, 64, true),
    (Discipline::Mixed, 64, true),
];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let unit = std::env::args().nth(1).unwrap_or_else(|| "ns".to_owned());
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let senders: Vec<UdpSocket> = (0..STREAMS_MAX)
        .map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(receiver.local_addr()?)?;
            Ok(socket)
        })
        .collect::<Result<_>>()?;
    // Each round measures all of them, so that what else the machine does is in each alike.
    let mut plain = Vec::new();
    let mut costs = vec![Vec::new(); OTHERS.len() + OURS.len()];
    for _ in 0..ROUNDS {
        let none = measure(&receiver, &senders)?;
        plain.push(none);
        for (cost, kind) in costs.iter_mut().zip(OTHERS) {
            tc(&["qdisc", "add", "dev", "lo", "root", kind])?;
            cost.push(measure(&receiver, &senders)? - none);
            tc(&["qdisc", "del", "dev", "lo", "root"])?;
        }
        for (cost, (discipline, streams, filtered)) in costs.iter_mut().skip(OTHERS.len()).zip(OURS)
        {
            let setup = Setup { discipline, ..setup(streams, &senders, filtered)? };
            attach("lo", &setup)?;
            let measured = measure(&receiver, &senders);
            detach("lo")?;
            cost.push(measured? - none);
        }
    }
    println!(
        "{:<36}{:>7.0} {unit} a packet, sent and received",
        "no qdisc",
        median(plain.iter().copied())
    );
    let costs: Vec<f64> = costs.into_iter().map(median).collect();
    println!("{:<36}{unit:>7} {:>11} {:>7}", "beyond that", "x fq_codel", "x fq");
    let ours = OURS.map(|(discipline, streams, filtered)| {
        let which = if filtered { " by port" } else { ", the rest" };
        format!("selvedge {discipline}, {streams} streams{which}")
    });
    for (name, cost) in OTHERS.map(str::to_owned).iter().chain(&ours).zip(&costs) {
        println!("{name:<36}{cost:>7.0} {:>11.2} {:>7.2}", cost / costs[1], cost / costs[2]);
    }
    Ok(())
}

/// A packet, sent and received: the mean of many, after some to warm up.
fn measure(receiver: &UdpSocket, senders: &[UdpSocket]) -> Result<f64> {
    let mut buffer = [0; 300];
    let mut began = Instant::now();
    for packet in 0..PACKETS + STREAMS_MAX {
        if packet == STREAMS_MAX {
            began = Instant::now();
        }
        senders[packet % senders.len()].send(&[0; 200])?;
        receiver.recv(&mut buffer)?;
    }
    Ok(began.elapsed().as_nanos() as f64 / PACKETS as f64)
}

fn setup(streams: usize, senders: &[UdpSocket], filtered: bool) -> Result<Setup> {
    let mut setup = Setup::default();
    for (n, chunk) in senders.chunks(senders.len() / streams).enumerate() {
        let contract = Contract::new(Duration::from_millis(40), Window { lose: 1, of: 5 });
        let mut stream = StreamSetup::new(&format!("s{n}"), contract);
        for sender in chunk.iter().filter(|_| filtered) {
            stream.filters.push(Filter::SourcePort(sender.local_addr()?.port()));
        }
        setup.streams.push(stream);
    }
    Ok(setup)
}

fn tc(arguments: &[&str]) -> Result<()> {
    let status = Command::new("tc").args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(format!("tc {arguments:?}: {status}").into()) }
}

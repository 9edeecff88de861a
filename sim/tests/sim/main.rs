//! Networks in virtual time, from the outside.

mod network;
mod ns3;
mod same;
mod tcp;
mod traffic;

use selvedge_data_net_line::{DelayModel, Limit, LineModel, QueueModel, Rate};
use selvedge_sim::{HostId, Limits, Network, Results, Simulation};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(time: u64) -> Instant {
    Instant::ZERO + ms(time)
}

/// A line of this rate in Mbit/s and delay in ms; so many bytes wait in front of it.
fn line(mbps: u64, delay: u64, queue: u64) -> LineModel {
    LineModel {
        rate: Some(Rate::Constant(Bitrate::from_mbps(mbps))),
        queue: QueueModel::DropTail { limit: Limit::bytes(Bytes(queue)) },
        delay: DelayModel { delay: ms(delay), ..DelayModel::default() },
        ..LineModel::default()
    }
}

/// Two senders, a link between two routers, two receivers; the access lines are fast and take no time.
/// Gives the senders, then the receivers.
fn dumbbell(seed: u64, models: [LineModel; 2]) -> (Network, [HostId; 4]) {
    let mut network = Network::new(seed);
    let mut host = |name: &str| network.host(name).expect("there is room");
    let ends = [host("s0"), host("s1"), host("d0"), host("d1")];
    let routers = [host("left"), host("right")];
    network.link("middle", routers, models).expect("both are hosts");
    for (n, end) in ends.into_iter().enumerate() {
        let access = [line(1_000, 0, 1 << 30), line(1_000, 0, 1 << 30)];
        network.link(&format!("access{n}"), [end, routers[n / 2]], access).expect("both are hosts");
    }
    (network, ends)
}

fn simulation(network: Network) -> Simulation {
    Simulation::new(network, Limits::default()).expect("all can be reached")
}

fn run(simulation: &mut Simulation, until: u64) -> Results {
    simulation.run(at(until), &mut |_| {}).expect("it stays within the limits");
    simulation.results()
}

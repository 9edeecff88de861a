//! Networks in virtual time, from the outside.

mod network;

use selvedge_data_net_line::{DelayModel, Limit, LineModel, QueueModel, Rate};
use selvedge_sim::{Limits, Network, Results, Simulation};
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

fn simulation(network: Network) -> Simulation {
    Simulation::new(network, Limits::default()).expect("all can be reached")
}

fn run(simulation: &mut Simulation, until: u64) -> Results {
    simulation.run(at(until), &mut |_| {}).expect("it stays within the limits");
    simulation.results()
}

//! Several paths between two ends in the simulator, for the experiments on bonds.

use selvedge_data_net_line::{
    DelayModel, Jitter, Limit, LineModel, LossModel, Outages, QueueModel, Rate,
};
use selvedge_sim::{HostId, Network};
use selvedge_units::{Bitrate, Bytes, Duration, Share};

use crate::experiment::RunError;

/// What the queue before each path holds.
const QUEUE: Duration = Duration::from_millis(250);

/// A path in one direction; the way back has the same delay and outages, and is never full.
#[derive(Clone, Debug)]
pub(super) struct Road {
    pub(super) rate: Bitrate,
    pub(super) delay: Duration,
    /// Packets are this much earlier or later, in order.
    pub(super) jitter: Duration,
    pub(super) outages: Option<Outages>,
}

impl Road {
    pub(super) fn new(rate: Bitrate, delay: u64) -> Self {
        let (delay, jitter) = (Duration::from_millis(delay), Duration::from_millis(2));
        Self { rate, delay: delay + jitter, jitter, outages: None }
    }

    fn models(&self) -> [LineModel; 2] {
        let bytes = (self.rate * QUEUE).max(Bytes(6_000));
        let queue = QueueModel::DropTail { limit: Limit { packets: u32::MAX, bytes } };
        let jitter = Jitter::Uniform(self.jitter);
        let delay = DelayModel { delay: self.delay, jitter, reorders: false };
        let outages = self.outages;
        let back = LineModel { delay: delay.clone(), outages, ..LineModel::default() };
        let rate = Some(Rate::Constant(self.rate));
        [LineModel { rate, queue, delay, outages, ..LineModel::default() }, back]
    }
}

/// A network of these paths, each with hosts of its own.
pub(super) fn network(roads: &[Road], seed: u64) -> Result<(Network, Vec<[HostId; 2]>), RunError> {
    let mut network = Network::new(seed);
    let mut hosts = Vec::new();
    for (number, road) in roads.iter().enumerate() {
        let ends =
            [network.host(&format!("near {number}"))?, network.host(&format!("far {number}"))?];
        network.link(&format!("path {number}"), ends, road.models())?;
        hosts.push(ends);
    }
    Ok((network, hosts))
}

/// Of 1 % of the packets, in bursts of four.
pub(super) fn bursts() -> LossModel {
    LossModel::GilbertElliott {
        worsens: percent("0.5 %"),
        recovers: percent("25 %"),
        good: percent("0 %"),
        bad: percent("50 %"),
    }
}

fn percent(text: &str) -> Share {
    text.parse().expect("it is a share")
}

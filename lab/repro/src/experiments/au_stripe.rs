//! `au-stripe`: striping over channels of unequal rate and delay (Aurora 1:4.1.2, 2:2.3), by the product's bond, in the
//! simulator: what a flood gets, whether its order is kept, and what the loss of a channel costs.

use selvedge_data_net_bond::PathParams;
use selvedge_data_net_line::Outages;
use selvedge_sim::{Limits, Simulation};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::bonds::{Road, network};
use crate::bonded::{BondedLoad, BondedReceiver, BondedSender, Flood};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::spread;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "au-stripe",
    title: "A flood over several channels",
    paper: "Aurora",
    section: "1:4.1.2 and 2:2.3",
    kind: Kind::Virtual,
    claim: "order is kept, 95 % of the sum of the channels arrives, and one of them may be lost",
    edits: &[],
    run,
};

const SIZE: Bytes = Bytes(1_400);
const DELAY: Duration = Duration::from_millis(500);
const SECOND: Duration = Duration::from_secs(1);

/// Channels, and what is measured of a flood over them.
struct Channels {
    name: &'static str,
    roads: Vec<Road>,
    /// The first one is dead in the seconds 20 to 30.
    loses_one: bool,
}

/// What came of a flood, in the time that counts.
struct Flooded {
    /// The goodput as a share of the rates of the channels that live.
    share: f64,
    /// Packets that came behind a later one.
    disordered: u64,
}

fn channels() -> Vec<Channels> {
    let roads = |roads: &[(u64, u64)]| {
        roads.iter().map(|(mbps, delay)| Road::new(Bitrate::from_mbps(*mbps), *delay)).collect()
    };
    let four = [(5, 10), (5, 40), (5, 80), (5, 150)];
    let new = |name, all: &[(u64, u64)], loses_one| Channels { name, roads: roads(all), loses_one };
    vec![
        new("10 and 10 Mbit/s", &[(10, 20), (10, 20)], false),
        new("10 and 2 Mbit/s", &[(10, 20), (2, 20)], false),
        new("10 and 10 Mbit/s, 140 ms of skew", &[(10, 20), (10, 160)], false),
        new("four of 5 Mbit/s, 10 to 150 ms", &four, false),
        new("four, one of them lost", &four, true),
    ]
}

impl Channels {
    fn flood(&self, seed: u64, params: PathParams) -> Result<Flooded, RunError> {
        let mut roads = self.roads.clone();
        if self.loses_one {
            roads[0].outages =
                Some(Outages { every: SECOND * 20, lasts: SECOND * 10, holds: false });
        }
        let (mut network, hosts) = network(&roads, seed)?;
        let flow = network.flow("flood", hosts[0][0], hosts[0][1])?;
        let flood = Flood::new(flow, SIZE, DELAY, Instant::ZERO);
        let paths: Vec<_> = hosts.iter().map(|ends| (*ends, params)).collect();
        let load = BondedLoad::Flood(flood);
        let [_, receiver] = BondedSender::attach(&mut network, "bond", &paths, load, &[])?;
        let mut simulation = Simulation::new(network, Limits::default())?;
        let mut useful = [0; 2];
        let (from, until) = if self.loses_one { (21, 29) } else { (10, 30) };
        for (at, useful) in [from, until].into_iter().zip(&mut useful) {
            simulation.run(Instant::ZERO + SECOND * at, &mut |_| {})?;
            let results = simulation.results();
            *useful = results.flows[flow.0 as usize].useful.unwrap_or_default().0;
        }
        let living = &self.roads[usize::from(self.loses_one)..];
        let rate: u64 = living.iter().map(|road| road.rate.0).sum();
        let goodput = (useful[1] - useful[0]) as f64 * 8.0 / (until - from) as f64;
        let receiver = simulation.endpoint::<BondedReceiver>(receiver);
        let disordered = receiver.map_or(u64::MAX, BondedReceiver::disordered);
        Ok(Flooded { share: goodput / rate as f64, disordered })
    }
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seeds = params.amount(100, 2);
    let columns = ["channels", "of the sum, least", "median", "largest", "out of order"];
    let mut table = Table::new("Goodput of a flood", &columns);
    // Of channels that all live, and of those of which one is lost.
    let (mut least, mut disordered) = ([f64::INFINITY; 2], 0);
    for channels in channels() {
        watch.go_on(channels.name)?;
        let mut shares = Vec::new();
        let mut behind = 0;
        for seed in 0..seeds {
            let flooded = channels.flood(params.seed.wrapping_add(seed), PathParams::default())?;
            shares.push(flooded.share);
            behind += flooded.disordered;
        }
        let spread = spread(shares);
        let least = &mut least[usize::from(channels.loses_one)];
        (*least, disordered) = (least.min(spread[0]), disordered + behind);
        let cells = spread.map(|share| Cell::rounded(share, 3));
        table.row(
            [Cell::from(channels.name.to_owned())]
                .into_iter()
                .chain(cells)
                .chain([Cell::Count(behind)]),
        );
    }
    let mut outcome = Outcome { tables: vec![table], ..Outcome::default() };
    claim(&mut outcome, least, disordered);
    outcome.note("The channels and the packets are simulated; the bond is the product's. The goodput is without all headers, which are 3.4 % of a packet.");
    Ok(outcome)
}

fn claim(outcome: &mut Outcome, [all, others]: [f64; 2], disordered: u64) {
    outcome.claim(
        "a flood gets 95 % of the sum of the channels",
        all >= 0.95,
        format!("at least {all:.3}"),
    );
    outcome.claim(
        "where one is lost it gets 94 % of the sum of the others",
        others >= 0.94,
        format!("at least {others:.3}"),
    );
    outcome.claim("order is kept", disordered == 0, format!("{disordered} packets out of order"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each claim fails where the bond is kept from what it would do.
    #[test]
    fn the_claims_can_fail() {
        let mut params = PathParams::default();
        params.rate.most = Bitrate::from_mbps(8);
        let kept = channels()[0].flood(1, params).unwrap();
        assert!(kept.share < 0.95, "{}", kept.share);
        let mut outcome = Outcome::default();
        claim(&mut outcome, [kept.share; 2], 1);
        assert!(outcome.claims.iter().all(|claim| !claim.passed));
    }
}

//! `ca-f6-real`: throughput and latency against connections, by configuration of real elements.

use selvedge_lab_peers_stack::configurations::Configuration;
use selvedge_units::{Bytes, Duration};

use super::ca_real::{ENCRYPTED, PLAIN, SCATTERED, TOGETHER, Trial, notes, processors};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::Outcome;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f6-real",
    title: "Throughput and latency by configuration and number of connections, real elements",
    paper: super::CA,
    section: "Figure 6, section 3",
    kind: Kind::Real,
    claim: "one stage is soonest when calm; two balanced ones carry more than four, and keep dear messages sooner under load",
    edits: &[TOGETHER, SCATTERED],
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let pipeline =
        |n| params.edited(TOGETHER.name, Configuration::Pipeline(n), Configuration::Pipeline(1));
    // Only of the single stage: what is compared with it must not change too.
    let single =
        params.edited(SCATTERED.name, Configuration::Pipeline(1), Configuration::Scattered(2));
    let ways = [("1p", single), ("2p", pipeline(2)), ("4p", pipeline(4))];
    let size = Bytes(1024);
    let calm = Trial {
        title: "a message of 1 kB each millisecond",
        line: PLAIN,
        size,
        every: Duration::from_millis(1),
        slaves: 0,
        ways: &ways,
        connections: &[1],
    };
    let found = calm.run(params, &mut outcome, watch)?;
    let sooner = "a single message is at the interface soonest with one stage";
    found.claim(&mut outcome, sooner, [1, 0], &[0], |of| of.latency[0], |ratio| ratio > 1.15);
    let later = "it is later with four stages than with two";
    found.claim(&mut outcome, later, [2, 1], &[0], |of| of.latency[0], |ratio| ratio > 1.02);

    let loaded = Trial {
        title: "messages of 1 kB as fast as the stack takes them",
        every: Duration::ZERO,
        connections: &[1, 4, 10],
        ..calm
    };
    let found = loaded.run(params, &mut outcome, watch)?;
    let worse = "under load four stages carry less than two balanced ones";
    found.claim(&mut outcome, worse, [2, 1], &[1, 2], |of| of.rate, |ratio| ratio < 0.9);
    if processors() <= 2 {
        let equal = "other than the paper found, two stages carry no more than one on two processors, one of which the applications use";
        found.claim(&mut outcome, equal, [1, 0], &[1, 2], |of| of.rate, |ratio| ratio < 1.15);
    } else {
        let more = "under load two balanced stages carry more than one";
        found.claim(&mut outcome, more, [1, 0], &[1, 2], |of| of.rate, |ratio| ratio > 1.05);
    }

    let dear = Trial {
        title: "messages of 1 kB with encryption as fast as the stack takes them",
        line: ENCRYPTED,
        connections: &[1, 4],
        ways: &ways[..2],
        ..loaded
    };
    let found = dear.run(params, &mut outcome, watch)?;
    let sooner = "with encryption messages under load are sooner at the interface with two stages than with one";
    found.claim(&mut outcome, sooner, [1, 0], &[0, 1], |of| of.latency[0], |ratio| ratio < 0.8);
    notes(&mut outcome, "ca-f6");
    Ok(outcome)
}

//! `ca-f7-real`: what each processor contributes, by configuration of real elements.

use selvedge_lab_peers_stack::configurations::Configuration;
use selvedge_units::{Bytes, Duration};

use super::ca_real::{CROWDED, PLAIN, SCATTERED, Trial, notes};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::Outcome;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f7-real",
    title: "Efficiency per processor by configuration, real elements",
    paper: super::CA,
    section: "Figure 7, section 3",
    kind: Kind::Real,
    claim: "on two processors a pipeline does more than message parallel; other than the paper found, connectional does most",
    edits: &[SCATTERED, CROWDED],
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let pipeline =
        params.edited(SCATTERED.name, Configuration::Pipeline(2), Configuration::Scattered(2));
    let connectional =
        params.edited(CROWDED.name, Configuration::Connectional(2), Configuration::Connectional(1));
    let trial = Trial {
        title: "messages of 1 kB as fast as the stack takes them, on two elements each",
        line: PLAIN,
        size: Bytes(1024),
        every: Duration::ZERO,
        slaves: 0,
        ways: &[("2p", pipeline), ("c", connectional), ("m", Configuration::MessageParallel(2))],
        connections: &[2, 4, 10],
    };
    let found = trial.run(params, &mut outcome, watch)?;
    let more = "the balanced pipeline does more than message parallel on as many processors (4 connections)";
    found.claim(&mut outcome, more, [0, 2], &[1], |of| of.rate, |ratio| ratio > 1.05);
    let less = "other than the paper found, connectional does more than the pipeline on as many processors (4 and 10 connections)";
    found.claim(&mut outcome, less, [1, 0], &[1, 2], |of| of.rate, |ratio| ratio > 1.2);
    outcome.note("All have two elements, so messages a second compare as messages a second and processor do.");
    notes(&mut outcome, "ca-f7");
    Ok(outcome)
}

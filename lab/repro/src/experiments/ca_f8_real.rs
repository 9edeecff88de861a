//! `ca-f8-real`: encryption serial, data-parallel and message-parallel, on real elements.

use selvedge_lab_peers_stack::configurations::Configuration;
use selvedge_units::{Bytes, Duration};

use super::ca_real::{ALONE, CROWDED, ENCRYPTED, Trial, notes};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::Outcome;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f8-real",
    title: "Encryption: serial, data-parallel, message-parallel, real elements",
    paper: super::CA,
    section: "Figure 8, section 3",
    kind: Kind::Real,
    claim: "on two processors message-parallel wins, strictly with one connection",
    edits: &[ALONE, CROWDED],
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let parallel = params.edited(
        ALONE.name,
        Configuration::MessageParallel(2),
        Configuration::Connectional(2),
    );
    let serial =
        params.edited(CROWDED.name, Configuration::Connectional(2), Configuration::Connectional(1));
    let trial = Trial {
        title: "messages of 48 kB with encryption as fast as the stack takes them",
        line: ENCRYPTED,
        size: Bytes(48_000),
        every: Duration::ZERO,
        slaves: 0,
        ways: &[("c: serial", serial), ("m: message-parallel", parallel)],
        connections: &[1, 2, 4],
    };
    let whole = trial.run(params, &mut outcome, watch)?;
    let more = "message-parallel does more than serial with one connection on two processors";
    whole.claim(&mut outcome, more, [1, 0], &[0], |of| of.rate, |ratio| ratio > 1.2);
    let equal =
        "with more connections connectional does as much, as the paper's curves do not show";
    whole.claim(&mut outcome, equal, [1, 0], &[1, 2], |of| of.rate, |ratio| ratio < 1.2);
    let ways = [("1p: data-parallel, 1 slave", Configuration::Pipeline(1))];
    let shared = Trial { slaves: 1, ways: &ways, ..trial };
    let mut shared = shared.run(params, &mut outcome, watch)?;
    shared.append(whole);
    let more = "message-parallel does more than data-parallel with one connection";
    shared.claim(&mut outcome, more, [2, 0], &[0], |of| of.rate, |ratio| ratio > 1.1);
    notes(&mut outcome, "ca-f8");
    Ok(outcome)
}

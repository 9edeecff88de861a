//! `ni-f6`: a scheduler in the coprocessor beside load.

use super::load_immunity::{self, FIFO, ORDINARY, least};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::Outcome;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-f6",
    title: "Scheduler in the coprocessor beside load",
    paper: super::NI,
    section: "Figure 6, section 3.4.2",
    kind: Kind::Real,
    claim: "beside four loops a core each stream's rate is within 2 % and its decodable share within 1 % of unloaded",
    edits: &[ORDINARY, FIFO],
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let figures = load_immunity::run(EXPERIMENT.id, params, watch)?;
    let mut outcome = load_immunity::show(&figures);
    let place = load_immunity::coprocessor(params);
    // What is kept must have been there without loops.
    let is_sound = figures.of(place, 0).all(|row| row.decodable >= 0.5);
    let rate = least(&figures, place, |row| -(row.kbps_ratio - 1.0).abs());
    outcome.claim(
        "each stream's rate beside four loops a core is within 2 % of unloaded",
        rate >= -0.02 && is_sound,
        format!("{:.2} % off at most", -rate * 100.0),
    );
    let decodable = least(&figures, place, |row| -(row.decodable_ratio - 1.0).abs());
    outcome.claim(
        "each stream's decodable share beside four loops a core is within 1 % of unloaded",
        decodable >= -0.01 && is_sound,
        format!("{:.2} % off at most", -decodable * 100.0),
    );
    let share = least(&figures, place, |row| row.decodable);
    outcome.claim(
        "at least 0.98 of each stream's frames are decodable beside bulk and four loops a core",
        share >= 0.98,
        format!("{share:.4}"),
    );
    outcome.note("The paper's streams kept their 260 kbit/s and their delay under every load.");
    if figures.is_noisy() {
        outcome.judge_nothing();
    }
    Ok(outcome)
}

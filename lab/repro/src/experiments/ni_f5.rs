//! `ni-f5`: a scheduler on a thread of the producers' process beside load.

use selvedge_lab_measure::immunity::Place;

use super::load_immunity::{self, FIFO, IDLE, ORDINARY, least};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::Outcome;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-f5",
    title: "Scheduler in the host beside load",
    paper: super::NI,
    section: "Figure 5, section 3.4.2",
    kind: Kind::Real,
    claim: "on a plain thread a stream waits longer beside four loops a core, where those of ni-f6 do not",
    edits: &[IDLE, FIFO, ORDINARY],
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let figures = load_immunity::run(EXPERIMENT.id, params, watch)?;
    let mut outcome = load_immunity::show(&figures);
    // What is lost must have been there without loops.
    let is_sound = figures.of(Place::Plain, 0).all(|row| row.decodable >= 0.5);
    let coprocessor = load_immunity::coprocessor(params);
    let plain = load_immunity::wait_grows(&figures, Place::Plain);
    outcome.claim(
        "on a plain thread a stream's longest waits grow by a tenth or more beside four loops a core",
        plain >= 1.1 && is_sound,
        format!("{plain:.2} times the 99.9th percentile of unloaded"),
    );
    let placed = load_immunity::wait_grows(&figures, coprocessor);
    outcome.claim(
        "in the same minutes those of the coprocessor grow by less than a quarter of that",
        placed - 1.0 < (plain - 1.0) / 4.0,
        format!("{placed:.2} beside {plain:.2} times"),
    );
    let rate = least(&figures, Place::Plain, |row| row.kbps_ratio);
    let hidden = least(&figures, Place::Inline, |row| row.decodable_ratio);
    outcome.note(format!(
        "Weaker than the paper's finding: on Solaris streams fell from 250 to 230 and 125 kbit/s, by 8 and 50 %, and their \
         queueing delay grew from 10 to 30 s. Today's kernel hides most of that: it gives a thread that woke up its turn \
         within milliseconds, and the plain thread kept {rate:.3} of its rate. A node's own thread requests a short \
         slice and a better nice value, and Linux grants both: it kept {hidden:.3} of its decodable frames. The plain \
         thread is the same one after both were taken from it, as on a kernel before 6.12 without the right to a nice \
         value."
    ));
    if figures.is_noisy() {
        outcome.judge_nothing();
    }
    Ok(outcome)
}

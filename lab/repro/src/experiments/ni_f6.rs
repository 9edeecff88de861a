//! `ni-f6`: a scheduler in the coprocessor beside a web server under load.

use super::web_load::{self, Placement};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::Outcome;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-f6",
    title: "Scheduler in the coprocessor under web load",
    paper: super::NI,
    section: "Figure 6, section 3.4.2",
    kind: Kind::Real,
    claim: "bandwidth and delay within 2 % of unloaded, lateness under 1 ms",
    edits: &[],
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let all = web_load::run(Placement::Coprocessor, params, watch)?;
    let mut outcome = web_load::show(Placement::Coprocessor, &all);
    let unloaded = &all[0];
    let off = |of: fn(&web_load::Measured) -> f64| {
        let base = of(unloaded).max(f64::MIN_POSITIVE);
        all.iter().map(|one| (of(one) / base - 1.0).abs()).fold(0.0, f64::max)
    };
    let (bandwidth, delay) = (off(web_load::Measured::bandwidth), off(|one| one.delay()));
    outcome.claim(
        "bandwidth stays within 2 % of unloaded",
        bandwidth <= 0.02,
        format!("{:.2} % off at most", bandwidth * 100.0),
    );
    outcome.claim(
        "queueing delay stays within 2 % of unloaded",
        delay <= 0.02,
        format!("{:.2} % off at most", delay * 100.0),
    );
    let late = all.iter().map(web_load::Measured::lateness_us).fold(0.0, f64::max);
    outcome.claim(
        "the 99.9th percentile of lateness is under 1 ms under every load",
        late < 1000.0,
        format!("{late:.0} us at most"),
    );
    outcome.note("The paper's streams kept their 260 kbit/s and their delay under every load.");
    Ok(outcome)
}

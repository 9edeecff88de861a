//! `ni-f5`: a scheduler in the producers' process beside a web server under load.

use super::web_load::{self, Placement};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::Outcome;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-f5",
    title: "Scheduler in the host under web load",
    paper: super::NI,
    section: "Figure 5, section 3.4.2",
    kind: Kind::Real,
    claim: "it degrades with load: packets leave later than the link's rate has it",
    edits: &[],
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let all = web_load::run(Placement::Inline, params, watch)?;
    let mut outcome = web_load::show(Placement::Inline, &all);
    let (unloaded, worst) = (&all[0], &all[all.len() - 1]);
    outcome.claim(
        "the 99.9th percentile of lateness grows with the web load",
        worst.lateness_us() > 1.2 * unloaded.lateness_us(),
        format!("{:.0} us unloaded, {:.0} us at 90 %", unloaded.lateness_us(), worst.lateness_us()),
    );
    outcome.note(
        "The paper's streams fell from 250 to 230 and 125 kbit/s on Solaris, their queueing delay \
         grew from 10 to 30 s. Linux lets the engine ask for a short slice and a better nice \
         value, so bandwidth is kept far better than that.",
    );
    Ok(outcome)
}

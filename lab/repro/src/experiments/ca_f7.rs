//! `ca-f7`: what each processor contributes, by configuration.

use selvedge_units::{Bytes, Duration};

use super::CA;
use super::ca_costs::{Costs, with_each};
use super::ca_f6::{Configuration, load};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f7",
    title: "Efficiency per processor by configuration",
    paper: CA,
    section: "Figure 7, section 3",
    kind: Kind::Model,
    claim: "quasi-pipelined at least as good per processor as connectional and message parallel",
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = with_each(params, watch, with)?;
    outcome.note("A model in virtual time: what decides is how many elements stand at the interface, each of which slows the others by a quarter.");
    Ok(outcome)
}

fn with(
    costs: &Costs,
    long: Duration,
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let whose = costs.whose;
    let mut table = Table::new(
        format!("Messages of 1 kB a second and processor, ten connections, with {whose}"),
        &["configuration", "elements", "messages/s", "per element"],
    );
    let mut per_element = Vec::new();
    for way in [
        Configuration::Pipeline(2),
        Configuration::Connectional(2),
        Configuration::MessageParallel(2),
        Configuration::Connectional(3),
        Configuration::MessageParallel(3),
        Configuration::Connectional(4),
        Configuration::MessageParallel(4),
    ] {
        watch.go_on(&format!("{}, {whose}", way.name()))?;
        let rate = load(costs, way, 10, Bytes(1024), long).rate;
        let each = rate / f64::from(way.elements());
        let count = Cell::from(u64::from(way.elements()));
        table.row([way.name().into(), count, Cell::rounded(rate, 0), Cell::rounded(each, 0)]);
        per_element.push(each);
    }
    outcome.tables.push(table);
    for (name, others) in [("connectional", [3, 5]), ("message parallel", [4, 6])] {
        let best = others.map(|n| per_element[n]).into_iter().fold(0.0, f64::max);
        outcome.claim(
            format!(
                "the balanced pipeline does more per processor than {name} on three or four ({whose})"
            ),
            per_element[0] >= best,
            format!("{:.0} and at most {best:.0} messages/s", per_element[0]),
        );
    }
    outcome.note(format!(
        "With {whose}, on two elements, where hardly anything contends, connectional and message parallel do {:.0} and {:.0} a processor, and the pipeline {:.0}.",
        per_element[1], per_element[2], per_element[0],
    ));
    Ok(())
}

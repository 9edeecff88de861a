//! `ca-f7`: what each processor contributes, by configuration.

use selvedge_lab_peers_stack::configurations::Configuration;
use selvedge_units::{Bytes, Duration};

use super::CA;
use super::ca_costs::{Costs, HEAVY_POLLING, NO_POLLING, POLLINGS, with_each};
use super::ca_f6::load;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f7",
    title: "Efficiency per processor by configuration",
    paper: CA,
    section: "Figure 7, section 3",
    kind: Kind::Model,
    claim: "per processor a pipeline of two does more than connectional and message parallel on three or four; on two \
            it does less, other than the paper found",
    edits: &[NO_POLLING, HEAVY_POLLING],
    run,
};

const WAYS: [Configuration; 7] = [
    Configuration::Pipeline(2),
    Configuration::Connectional(2),
    Configuration::MessageParallel(2),
    Configuration::Connectional(3),
    Configuration::MessageParallel(3),
    Configuration::Connectional(4),
    Configuration::MessageParallel(4),
];

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = with_each(params, watch, with)?;
    outcome.note("A model in virtual time: what decides is how many elements stand at the interface, and how much those that wait slow the others. Claims are for 1/4 with the paper's costs, as the paper gives no figure, and for the measured part with this machine's. Real elements: ca-f7-real.");
    Ok(outcome)
}

/// Messages a second and element, of each configuration.
fn per_element(
    costs: &Costs,
    long: Duration,
    watch: &dyn ProgressWatch,
) -> Result<[f64; WAYS.len()], RunError> {
    let mut found = [0.0; WAYS.len()];
    for (found, way) in found.iter_mut().zip(WAYS) {
        watch.go_on(&format!("{}, {}", way.name(), costs.whose))?;
        *found = load(costs, way, 10, Bytes(1024), long).rate / f64::from(way.elements());
    }
    Ok(found)
}

/// The most of a configuration on three and on four.
fn best(per_element: &[f64], others: [usize; 2]) -> f64 {
    others.map(|n| per_element[n]).into_iter().fold(0.0, f64::max)
}

fn with(
    _: &Params,
    costs: &Costs,
    long: Duration,
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let whose = costs.whose;
    let mut table = Table::new(
        format!(
            "Messages of 1 kB a second and element, ten connections, by the cost of polling, with {whose}"
        ),
        &["configuration", "elements", "none", "1/16", "1/8", "1/4"],
    );
    let mut swept = Vec::new();
    for polling in POLLINGS {
        swept.push(per_element(&costs.polled(polling), long, watch)?);
    }
    for (n, way) in WAYS.into_iter().enumerate() {
        let front = [way.name().into(), Cell::from(u64::from(way.elements()))];
        table.row(front.into_iter().chain(swept.iter().map(|found| Cell::rounded(found[n], 0))));
    }
    outcome.tables.push(table);
    let here = per_element(&costs.polled(costs.polling_here), long, watch)?;
    let found = per_element(costs, long, watch)?;
    for (name, [two, others @ ..]) in [("connectional", [1, 3, 5]), ("message parallel", [2, 4, 6])]
    {
        let most = best(&found, others);
        outcome.claim(
            format!("the balanced pipeline does more per processor than {name} on three or four ({whose})"),
            found[0] > most,
            format!("{:.0} and at most {most:.0} messages/s", found[0]),
        );
        outcome.claim(
            format!("other than the paper found, it does no more than {name} on two ({whose})"),
            found[0] <= found[two],
            format!("{:.0} and {:.0} messages/s", found[0], found[two]),
        );
        let shape = format!("more per processor than {name} on three or four");
        outcome.note(costs.at_measured(&shape, here[0] > best(&here, others)));
        let from = POLLINGS.iter().zip(&swept).find(|(_, found)| found[0] > best(*found, others));
        let from =
            from.map_or_else(|| "no".to_owned(), |(&polling, _)| Costs::polling_in_words(polling));
        outcome.note(format!(
            "With {whose} the pipeline does more than {name} on three or four from a cost of polling of {from} on."
        ));
    }
    Ok(())
}

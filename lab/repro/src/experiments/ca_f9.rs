//! `ca-f9`: the network interface against the processors that touch it.

use selvedge_units::{Bytes, Duration};

use super::CA;
use super::ca_costs::{Costs, with_each};
use super::ca_f6::{Configuration, load};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f9",
    title: "Network interface bottleneck against processors touching it",
    paper: CA,
    section: "Figure 9, section 3",
    kind: Kind::Model,
    claim: "contention grows; one or two feeding processors avoid it",
    run,
};

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = with_each(params, watch, with)?;
    outcome.note("A model: the interface is a lock, held for what it costs, and each element that waits for it slows its holder by a quarter. That quarter is assumed; the paper gives no figure.");
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
        format!("Messages of 1 kB a second through the interface, twelve connections, {whose}"),
        &["configuration", "touching it", "messages/s", "latency, us"],
    );
    let mut measure = |way: Configuration, touching: u64| {
        watch.go_on(&format!("{}, {whose}", way.name()))?;
        let found = load(costs, way, 12, Bytes(1024), long);
        let latency = Cell::rounded(found.latency.0 as f64 / 1e3, 1);
        table.row([way.name().into(), touching.into(), Cell::rounded(found.rate, 0), latency]);
        Ok::<f64, RunError>(found.rate)
    };
    let pipeline = measure(Configuration::Pipeline(2), 1)?;
    let mut rates = [Vec::new(), Vec::new()];
    for n in [2, 3, 4, 6, 8] {
        rates[0].push(measure(Configuration::Connectional(n), n.into())?);
        rates[1].push(measure(Configuration::MessageParallel(n), n.into())?);
    }
    outcome.tables.push(table);
    for (name, rates) in ["connectional", "message parallel"].into_iter().zip(&rates) {
        outcome.claim(
            format!("{name}: beyond two processors each more makes it slower ({whose})"),
            rates[1..].windows(2).all(|pair| pair[1] <= pair[0] * 1.01) && rates[4] < rates[0],
            format!("{:.0?}", rates),
        );
        outcome.claim(
            format!(
                "{name} on eight is slower than a pipeline with one at the interface ({whose})"
            ),
            rates[4] < pipeline,
            format!("{:.0} and {pipeline:.0} messages/s", rates[4]),
        );
    }
    Ok(())
}

//! `ca-f9`: the network interface against the processors that touch it.

use selvedge_lab_peers_stack::configurations::Configuration;
use selvedge_units::{Bytes, Duration};

use super::CA;
use super::ca_costs::{Costs, NO_POLLING, POLLINGS, with_each};
use super::ca_f6::load;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f9",
    title: "Network interface bottleneck against processors touching it",
    paper: CA,
    section: "Figure 9, section 3",
    kind: Kind::Model,
    claim: "from three processors on each more that touches the interface costs throughput; one or two that feed it avoid that",
    edits: &[NO_POLLING],
    run,
};

/// A configuration by its number of elements.
type OnElements = fn(u8) -> Configuration;

const ELEMENTS: [u8; 5] = [2, 3, 4, 6, 8];

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = with_each(params, watch, with)?;
    outcome.note("A model: the interface is a lock, held for what it costs, and each element that waits for it slows its holder by a part. Claims are for a quarter with the paper's costs, as the paper gives no figure, and for the measured part with this machine's. Real elements: ca-f9-real.");
    Ok(outcome)
}

/// Messages a second of a pipeline of two, and of one way on each number of elements.
struct Swept {
    pipeline: f64,
    rates: [f64; ELEMENTS.len()],
}

impl Swept {
    fn new(
        costs: &Costs,
        way: OnElements,
        long: Duration,
        watch: &dyn ProgressWatch,
    ) -> Result<Self, RunError> {
        let measure = |way: Configuration| {
            watch.go_on(&format!("{}, {}", way.name(), costs.whose))?;
            Ok::<_, RunError>(load(costs, way, 12, Bytes(1024), long).rate)
        };
        let mut rates = [0.0; ELEMENTS.len()];
        for (rate, n) in rates.iter_mut().zip(ELEMENTS) {
            *rate = measure(way(n))?;
        }
        Ok(Self { pipeline: measure(Configuration::Pipeline(2))?, rates })
    }

    /// From three elements on each more makes it slower, and eight are slower than two.
    fn degrades(&self) -> bool {
        let [two, from_three @ ..] = &self.rates;
        from_three.windows(2).all(|pair| pair[1] <= pair[0] * 1.01) && from_three[3] < *two
    }

    fn is_below_the_pipeline(&self) -> bool {
        self.rates[4] < self.pipeline
    }
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
            "Messages of 1 kB a second through the interface, twelve connections, by the cost of polling, {whose}"
        ),
        &["configuration", "polling", "2p", "2", "3", "4", "6", "8 elements"],
    );
    let ways: [(&str, OnElements); 2] = [
        ("connectional", Configuration::Connectional),
        ("message parallel", Configuration::MessageParallel),
    ];
    for (name, way) in ways {
        let mut from = "no".to_owned();
        for polling in POLLINGS.into_iter().rev() {
            let swept = Swept::new(&costs.polled(polling), way, long, watch)?;
            let words = Costs::polling_in_words(polling);
            let rates = [swept.pipeline].into_iter().chain(swept.rates);
            let front = [Cell::from(name), Cell::from(words.as_str())];
            table.row(front.into_iter().chain(rates.map(|rate| Cell::rounded(rate, 0))));
            if swept.degrades() && swept.is_below_the_pipeline() {
                from = words;
            }
        }
        outcome.note(format!(
            "With {whose} the paper's shape of {name} appears from a cost of polling of {from} on."
        ));
        let here = Swept::new(&costs.polled(costs.polling_here), way, long, watch)?;
        let appears = here.degrades() && here.is_below_the_pipeline();
        outcome.note(costs.at_measured(&format!("the paper's shape of {name}"), appears));
        let swept = Swept::new(costs, way, long, watch)?;
        outcome.claim(
            format!("{name}: from three processors on each more makes it slower, and eight are slower than two ({whose})"),
            swept.degrades(),
            format!("{:.0?}", swept.rates),
        );
        outcome.claim(
            format!(
                "{name} on eight is slower than a pipeline with one at the interface ({whose})"
            ),
            swept.is_below_the_pipeline(),
            format!("{:.0} and {:.0} messages/s", swept.rates[4], swept.pipeline),
        );
    }
    outcome.tables.push(table);
    Ok(())
}

//! `ca-f9-real`: the network interface against the processors that touch it: this machine's, by real elements.

use selvedge_lab_peers_stack::configurations::{Configuration, ConfigurationError};
use selvedge_lab_peers_stack::interface::{Sharing, sharing};
use selvedge_units::{Bytes, Duration};

use super::ca_costs::POLLING;
use super::ca_real::{ALONE, CROWDED, PLAIN, Trial, judge, notes};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::{median, spread};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f9-real",
    title: "Network interface bottleneck against processors touching it, real elements",
    paper: super::CA,
    section: "Figure 9, section 3",
    kind: Kind::Real,
    claim: "two processors at one interface send less than one; elements avoid that by handing over many messages at once",
    edits: &[APART, CROWDED, ALONE],
    run,
};

const APART: Edit = Edit { name: "apart", what: "each of the two has an interface of its own" };

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    watch.go_on("the interface")?;
    let lasts = params.amount(Duration::from_millis(400), Duration::from_millis(60));
    let found = sharing(5, lasts, params.is_edited(APART.name));
    let found = found.map_err(ConfigurationError::from)?;
    let mut table = Table::new(
        "Real: datagrams of 1 kB a second through one interface, a call each; medians of 5 rounds",
        &["threads", "datagrams/s", "least", "most"],
    );
    for (n, of) in [(1_u64, (|one| one.alone) as fn(&Sharing) -> f64), (2, |one| one.both)] {
        let [least, middle, most] = spread(found.iter().map(of));
        table.row(
            [n.into()].into_iter().chain([middle, least, most].map(|rate| Cell::rounded(rate, 0))),
        );
    }
    outcome.tables.push(table);
    let polling = median(found.iter().map(Sharing::polling));
    let held = |holds: fn(&Sharing) -> bool| found.iter().map(holds).collect::<Vec<_>>();
    let words = format!("{polling:.2} of its time");
    let less = "two processors that send a message a call send less than one";
    judge(&mut outcome, less, &held(|one| one.both < one.alone * 0.9), words.clone());
    let more = "an element that waits slows the one at the interface by more than the quarter that the models assume";
    judge(&mut outcome, more, &held(|one| one.polling() > POLLING), words);

    let connectional =
        params.edited(CROWDED.name, Configuration::Connectional(2), Configuration::Connectional(1));
    let parallel = params.edited(
        ALONE.name,
        Configuration::MessageParallel(2),
        Configuration::Connectional(2),
    );
    let trial = Trial {
        title: "messages of 1 kB as fast as the stack takes them, by elements at the interface",
        line: PLAIN,
        size: Bytes(1024),
        every: Duration::ZERO,
        slaves: 0,
        ways: &[
            ("1p: one at the interface", Configuration::Pipeline(1)),
            ("c: two", connectional),
            ("m: two", parallel),
        ],
        connections: &[4, 10],
    };
    let elements = trial.run(params, &mut outcome, watch)?;
    let less =
        "message parallel with two at the interface does less than one element that feeds it";
    elements.claim(&mut outcome, less, [2, 0], &[0, 1], |of| of.rate, |ratio| ratio < 0.97);
    let more = "other than the paper found, connectional with two at the interface does more than one: many messages go in a call";
    elements.claim(&mut outcome, more, [1, 0], &[0, 1], |of| of.rate, |ratio| ratio > 1.15);
    notes(&mut outcome, "ca-f9");
    Ok(outcome)
}

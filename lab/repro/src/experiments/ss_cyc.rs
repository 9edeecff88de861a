//! `ss-cyc`: hardware clocks a decision, counted on the simulated Verilog.

use selvedge_lab_rtl::cycles;
use selvedge_lab_rtl::{Design, Routing, Simulator, Slots};

use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ss-cyc",
    title: "Hardware clocks a decision",
    paper: super::SS,
    section: "section 5.1",
    kind: Kind::Virtual,
    claim: "2, 3, 4, 5 clocks to the winner of 4, 8, 16, 32 slots; a full sort in log2 squared",
    edits: &[Edit {
        name: "two-clocks",
        what: "each compare takes two clocks, and there is no tree",
    }],
    run,
};

/// What the paper has, by slots.
const THEIRS: [(Slots, u64); 4] =
    [(Slots::S4, 2), (Slots::S8, 3), (Slots::S16, 4), (Slots::S32, 5)];

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        "Clocks, counted over a thousand decisions of the simulated Verilog",
        &["slots", "paper", "winner only", "update included", "full sort", "with compute-ahead"],
    );
    for (slots, theirs) in THEIRS.into_iter().take(params.amount(4, 2)) {
        let piped = params.is_edited("two-clocks");
        let plain = |routing| Design { piped, ..Design::plain(slots, routing) };
        let count = |design: Design| {
            watch.go_on(&format!("{} slots", slots.count()))?;
            Ok::<_, RunError>(cycles::count(&Simulator::of(design)?)?)
        };
        let winner = count(plain(Routing::WinnerOnly))?;
        let sorted = count(plain(Routing::FullSort))?;
        let routing = params.edited("two-clocks", Routing::Tree, Routing::WinnerOnly);
        let tree = count(Design { ahead: true, ..plain(routing) })?;
        table.row([
            Cell::from(slots.count() as u64),
            theirs.into(),
            winner.to_winner.into(),
            winner.a_decision.into(),
            sorted.to_winner.into(),
            tree.a_decision.into(),
        ]);
        let (n, log2) = (slots.count(), u64::from(slots.log2()));
        outcome.claim(
            format!("{n} slots: the winner after {theirs} clocks"),
            winner.to_winner == theirs,
            format!("{} clocks", winner.to_winner),
        );
        outcome.claim(
            format!("{n} slots: a full sort within {} clocks", log2 * log2),
            sorted.to_winner <= log2 * log2,
            format!("{} clocks", sorted.to_winner),
        );
        outcome.claim(
            format!("{n} slots: with a tree and compute-ahead a decision in at most 2 clocks"),
            tree.a_decision <= 2,
            format!("{} clocks", tree.a_decision),
        );
    }
    outcome.tables.push(table);
    outcome.note("The tree has N - 1 decision blocks where the recirculating network has N / 2.");
    Ok(outcome)
}

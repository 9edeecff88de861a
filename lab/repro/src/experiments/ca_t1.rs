//! `ca-t1`: what each protocol module, pipe and hand-over costs, measured.

use selvedge_comm_stack::profile;

use super::CA;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::processor;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-t1",
    title: "Cost of each protocol module, of pipes and of hand-overs",
    paper: CA,
    section: "Table 1, section 2.2",
    kind: Kind::Real,
    claim: "a locked pipe is dearer than an unlocked one; a hand-over on the same processor is far \
            cheaper than across; encryption dominates",
    run,
};

/// What the paper has: microseconds for no bytes, and for 1 kB more.
fn theirs(module: &str) -> [Cell; 2] {
    let pair = |null: f64, kilobyte: f64| [Cell::from(null), kilobyte.into()];
    match module {
        "ui" => pair(14.0, 0.0),
        "unreliable" => pair(7.0, 120.0),
        "reliable" => pair(27.0, 120.0),
        "net" => pair(45.0, 0.0),
        "encrypt(chacha20)" => pair(1800.0, 10_000.0),
        _ => [Cell::None, Cell::None],
    }
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    watch.go_on("modules")?;
    let modules = profile::modules(params.amount(101, 11));
    let mut table = Table::new(
        format!("Modules on {}: ns, and the paper's us", processor()),
        &["module", "down, 0 B", "+1 kB", "up, 0 B", "+1 kB", "paper, 0 B, us", "+1 kB, us"],
    );
    for profile in &modules {
        let [null, kilobyte] = theirs(&profile.module);
        let figures = profile.down.into_iter().chain(profile.up).map(|ns| Cell::rounded(ns, 1));
        let name = Cell::from(profile.module.as_str());
        table.row([name].into_iter().chain(figures).chain([null, kilobyte]));
    }
    outcome.tables.push(table);
    watch.go_on("pipes and hand-overs")?;
    let pipes = profile::pipes(params.amount(15, 5));
    let mut table = Table::new("Pipes and hand-overs", &["", "ns", "paper, us"]);
    for (what, ours, paper) in [
        ("put and get, one user on each side", pipes.unlocked, 20.0),
        ("put and get, several users", pipes.locked, 38.0),
        ("to a module on the same element", pipes.same, 4.0),
        ("to a module on another element", pipes.other, 21.0),
    ] {
        table.row([Cell::from(what), Cell::rounded(ours, 1), paper.into()]);
    }
    outcome.tables.push(table);
    outcome.claim(
        "a pipe with a lock is dearer than one without",
        pipes.locked > pipes.unlocked,
        format!("{:.1} ns and {:.1} ns", pipes.locked, pipes.unlocked),
    );
    outcome.claim(
        "a hand-over on the same element costs less than half of one across",
        pipes.same * 2.0 < pipes.other,
        format!("{:.1} ns and {:.1} ns", pipes.same, pipes.other),
    );
    let at = |size: f64, name: &str| {
        let found = modules.iter().find(|profile| profile.module == name);
        found.map_or(0.0, |profile| profile.down[0] + profile.down[1] * size)
    };
    let cipher = at(8.0, "encrypt(chacha20)");
    let others: f64 = ["ui", "unreliable", "net"].iter().map(|name| at(8.0, name)).sum();
    outcome.claim(
        "encryption costs more than the rest of an unreliable stack, at 8 kB",
        cipher > others,
        format!("{cipher:.0} ns and {others:.0} ns"),
    );
    outcome.note("Across: a message's time in a stream of them between two threads, all included.");
    outcome.note("The paper's module is DES in software; its columns are for the KSR-2.");
    Ok(outcome)
}

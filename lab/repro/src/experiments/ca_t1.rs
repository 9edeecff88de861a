//! `ca-t1`: what each protocol module, pipe and hand-over costs, measured.

use selvedge_comm_stack::profile;

use super::CA;
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::processor;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-t1",
    title: "Cost of each protocol module, of pipes and of hand-overs",
    paper: CA,
    section: "Table 1, section 2.2",
    kind: Kind::Real,
    claim: "a locked pipe is dearer than an unlocked one; a hand-over on the same processor is far \
            cheaper than across; encryption costs more than the other modules",
    edits: &[ONE_USER, SAME_ELEMENT, NO_CIPHER],
    run,
};

const ONE_USER: Edit =
    Edit { name: "one-user", what: "the pipe with a lock has one user on each side, and so none" };
const SAME_ELEMENT: Edit =
    Edit { name: "same-element", what: "the hand-over across stays on one element" };
const NO_CIPHER: Edit =
    Edit { name: "no-cipher", what: "the user interface stands in for the cipher" };

/// What the paper has, outwards and inwards: microseconds for no bytes, and for 1 kB more. Its NP cuts messages,
/// as `frag` does; its proxy UI copies for the application, which no module of ours does.
const THEIRS: [(&str, [f64; 2], [f64; 2]); 5] = [
    ("ui", [14.0, 0.0], [21.0, 0.0]),
    ("unreliable", [7.0, 120.0], [7.0, 120.0]),
    ("reliable", [27.0, 120.0], [62.0, 120.0]),
    ("frag", [45.0, 0.0], [62.0, 0.0]),
    ("encrypt(chacha20)", [1800.0, 10_000.0], [1800.0, 10_000.0]),
];

fn theirs(module: &str) -> [Cell; 4] {
    let found = THEIRS.iter().find(|(name, ..)| *name == module);
    found.map_or([const { Cell::None }; 4], |&(_, [a, b], [c, d])| [a, b, c, d].map(Cell::from))
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    watch.go_on("modules")?;
    let modules = profile::modules(params.amount(101, 11));
    let mut table = Table::new(
        format!("Modules on {}: ns, and the paper's us", processor()),
        &[
            "module",
            "down, 0 B",
            "+1 kB",
            "up, 0 B",
            "+1 kB",
            "paper, down, 0 B, us",
            "+1 kB, us",
            "up, 0 B, us",
            "+1 kB, us",
        ],
    );
    for profile in &modules {
        let figures = profile.down.into_iter().chain(profile.up).map(|ns| Cell::rounded(ns, 1));
        let name = Cell::from(profile.module.as_str());
        table.row([name].into_iter().chain(figures).chain(theirs(&profile.module)));
    }
    outcome.tables.push(table);
    watch.go_on("pipes and hand-overs")?;
    let mut pipes = profile::pipes(params.amount(15, 5));
    pipes.locked = params.edited(ONE_USER.name, pipes.locked, pipes.unlocked);
    pipes.other = params.edited(SAME_ELEMENT.name, pipes.other, pipes.same);
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
    let cipher = at(8.0, params.edited(NO_CIPHER.name, "encrypt(chacha20)", "ui"));
    let others: f64 = ["ui", "unreliable", "net"].iter().map(|name| at(8.0, name)).sum();
    let call = profile::call(params.amount(31, 5));
    let [null, kilobyte] =
        call.map_err(|error| RunError::Needs(format!("UDP on the loopback: {error}")))?;
    let call = null + kilobyte * 8.0;
    outcome.claim(
        "encryption costs more than the rest of an unreliable stack, at 8 kB",
        cipher > others,
        format!("{cipher:.0} ns and {others:.0} ns"),
    );
    outcome.note(format!(
        "With the kernel's call, {call:.0} ns for a datagram of 8 kB, the whole way without encryption takes {:.0} ns, \
         and encryption adds {:.0} %.",
        others + call,
        cipher / (others + call) * 100.0
    ));
    outcome.note(
        "The paper has three rows more: the proxy UI (125 and 92 us, and 7 a kilobyte) copies for the application, and \
         an acknowledgement of RTP takes 70 us. Its NP is beside frag, as it cuts messages.",
    );
    outcome.note("Across: a message's time in a stream of them between two threads, all included.");
    outcome.note("The paper's module is DES in software; its columns are for the KSR-2.");
    Ok(outcome)
}

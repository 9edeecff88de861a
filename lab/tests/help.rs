//! The examples in the help of `selvedge-lab`: each command has one, and each example works as it stands.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::Path;

use support::help::Expected::{self, Parsed};
use support::help::{Examples, Network, Page, pages};
use support::{Folder, skipped};

const BENCH: &str = "measures for minutes; lab/measure's tests run each measurement for a moment";
const REPRO: &str = "computes for minutes; tools/repro.sh and lab/tests/repro.rs run experiments";

/// The examples that do not just end with status 0.
const EXPECTED: [(&str, Expected); 10] = [
    ("selvedge-lab bench decide --json", Parsed(BENCH)),
    ("taskset -c 1 selvedge-lab bench dataplane", Parsed(BENCH)),
    ("selvedge-lab bench stack --configuration c,1p,2p,4p,m --connections 1..10", Parsed(BENCH)),
    ("selvedge-lab bench channels --sinks 20", Parsed(BENCH)),
    ("selvedge-lab bench channels --sinks 100 --json", Parsed(BENCH)),
    ("selvedge-lab bench immunity --quick", Parsed(BENCH)),
    (
        "selvedge-lab bench immunity --loops 0,4 --placement ordinary,coprocessor --json",
        Parsed(BENCH),
    ),
    ("selvedge-lab repro ss-t3 ni-t3 --out plots", Parsed(REPRO)),
    ("selvedge-lab repro --all --kind V --quick", Parsed(REPRO)),
    (
        "selvedge-lab schedule vectors/01-dwcs-backlogged.json --engine rtl",
        Parsed("compiles a simulation with verilator; lab/tests/schedule.rs runs it"),
    ),
];

/// The files that examples name.
fn files(folder: &Folder) {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    std::os::unix::fs::symlink(vectors, folder.join("vectors")).expect("a new name");
}

fn all() -> (Vec<Page>, Examples<'static>) {
    let binary = Path::new(env!("CARGO_BIN_EXE_selvedge-lab"));
    (pages(binary), Examples { binary, expected: &EXPECTED, beside: &[], files })
}

#[test]
fn every_command_has_an_example_and_every_exception_is_of_one() {
    let (pages, examples) = all();
    assert!(pages.len() > 3, "{} pages", pages.len());
    examples.check(&pages);
}

#[test]
fn every_example_works() {
    if let Err(why) = Network::new() {
        return skipped("every_example_works", &format!("needs network namespaces: {why}"));
    }
    let (pages, examples) = all();
    examples.run(&pages);
}

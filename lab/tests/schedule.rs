//! `selvedge-lab schedule --engine rtl` from the outside: a shared vector's lines, and what is refused.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use support::{Ended, Running, TIMEOUT, program, skipped};

fn vector(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors").join(name)
}

fn schedule(trace: &Path, more: &[&str]) -> Ended {
    let mut command = program(env!("CARGO_BIN_EXE_selvedge-lab"));
    command.args(["schedule", "--engine", "rtl"]).args(more).arg(trace);
    // The first time, the simulation is compiled.
    Running::start(&mut command).end(5 * TIMEOUT)
}

#[test]
fn the_hardware_prints_a_vectors_lines() {
    if Command::new("verilator").arg("--version").output().is_err() {
        return skipped("the_hardware_prints_a_vectors_lines", "verilator is not installed");
    }
    let trace = vector("01-dwcs-backlogged.json");
    let expected = std::fs::read_to_string(trace.with_extension("jsonl")).expect("its pair");
    let ended = schedule(&trace, &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.stdout == expected, "other lines");
}

#[test]
fn an_unknown_discipline_is_refused() {
    let trace = vector("01-dwcs-backlogged.json");
    let ended = schedule(&trace, &["--discipline", "dwsc"]);
    ended.refused(&["selvedge-lab: there is no discipline \"dwsc\"", "dwcs, dwcs98, edf"]);
}

//! The measurements themselves: real processes, every call, every event delivered. How long they take is no
//! test's matter.

mod place;

use std::process::Command;

use place::Place;
use selvedge_lab_measure::call::{BenchError, calls, peer, preference};

const CHILD: &str = "SELVEDGE_ECALL_BENCH";

#[test]
fn in_another_process() {
    if let Some(spec) = std::env::var_os(CHILD) {
        println!();
        peer(spec.to_str().unwrap()).unwrap();
    }
}

fn start(spec: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "in_another_process", "--nocapture"]).env(CHILD, spec);
    command
}

#[test]
fn calls_are_measured() {
    let place = Place::new("calls");
    let costs = calls(&place.0, &start, 2).unwrap();
    assert!(costs.fast_ns > 0.0 && costs.deferred_ns > 0.0 && costs.generic_us > 0.0, "{costs:?}");
}

#[test]
fn deliveries_under_load_are_measured() {
    let place = Place::new("load");
    match preference(&place.0, &start, 100) {
        Ok(found) => {
            assert_eq!(found.map(|one| (one.preferred, one.events)), [(false, 100), (true, 100)]);
            assert!(found.iter().all(|one| one.median_us <= one.max_us && one.median_us > 0.0));
        }
        // Without the right to real-time priorities.
        Err(BenchError::System(why)) => assert!(why.contains("SCHED_FIFO"), "{why}"),
        Err(error) => panic!("{error}"),
    }
}

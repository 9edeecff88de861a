//! The measurement itself: two processes, every way, nothing lost.

mod place;

use std::process::Command;

use place::Place;
use selvedge_lab_measure::local::{BenchPath, channel, measure, peer};

const CHILD: &str = "SELVEDGE_LOCAL_BENCH";

#[test]
fn in_another_process() {
    if let Some(spec) = std::env::var_os(CHILD) {
        peer(spec.to_str().unwrap()).unwrap();
    }
}

fn start(spec: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "in_another_process"]).env(CHILD, spec);
    command
}

#[test]
fn a_channels_operations_are_measured() {
    let place = Place::new("channel");
    let costs = channel(&place.0, &start, 2).unwrap();
    assert!(costs.submit_us > 0.0 && costs.poll_us > 0.0 && costs.open_us > 0.0, "{costs:?}");
}

#[test]
fn every_way_is_measured() {
    let place = Place::new("ways");
    // Signals would end the test's main thread, which does not block them.
    let signals = [BenchPath::BareSignal, BenchPath::RingSignal];
    let ways: Vec<BenchPath> =
        BenchPath::ALL.into_iter().filter(|way| !signals.contains(way)).collect();
    let mut rounds = 0;
    let found = measure(&place.0, &start, &ways, (2, 20, 2000), &mut |_| rounds += 1).unwrap();
    assert_eq!((found.len(), rounds), (ways.len(), 2));
    for one in &found {
        let is_flood = one.path.is_flood();
        assert!(is_flood || one.median_us.is_some_and(|us| us > 0.0), "{one:?}");
        assert_eq!(one.over_floor.is_some(), one.path.floor().is_some());
        assert_eq!(one.event_ns.is_some(), is_flood || one.path.is_batch());
    }
}

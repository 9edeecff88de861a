//! Every trace of `vectors/`, and generated ones, through a whole engine in simulated time: the frame
//! producers, the rings, the loop of the engine's thread, its poller, real datagrams. The same lines as the
//! scheduler alone, byte for byte.

#![allow(clippy::disallowed_methods, reason = "the tests read files")]

use std::path::{Path, PathBuf};

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::{Outcome, Trace};
use selvedge_data_sched::trace::generate::{self, GenerateOptions};
use selvedge_place_engine::engine::unit_slot::UnitSlots;

fn through_the_engine(name: &str, trace: &Trace) -> String {
    let outcome = UnitSlots::inline(trace).and_then(UnitSlots::run);
    let outcome = outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    outcome.lines(trace)
}

/// The first line that differs, for a readable failure.
fn same(name: &str, ours: &str, expected: &str) {
    for (n, (ours, expected)) in ours.lines().zip(expected.lines()).enumerate() {
        assert_eq!(ours, expected, "{name}, line {}", n + 1);
    }
    assert_eq!(ours.lines().count(), expected.lines().count(), "{name}");
}

#[test]
fn all_vectors_decide_alike_in_the_engine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let (mut count, mut widest) = (0, 0);
    let (mut misses, mut drops, mut late) = (0, 0, 0);
    for path in paths.iter().filter(|path| path.extension().is_some_and(|ext| ext == "json")) {
        let name = path.display().to_string();
        let trace = Trace::parse(&std::fs::read_to_string(path).unwrap(), &name).unwrap();
        let expected = std::fs::read_to_string(path.with_extension("jsonl")).unwrap();
        same(&name, &through_the_engine(&name, &trace), &expected);
        count += 1;
        widest = widest.max(trace.streams.len());
        misses += expected.matches("\"miss\"").count();
        drops += expected.matches("\"drop\"").count();
        late += expected.matches("\"late\": true").count();
    }
    println!("{count} vectors: {misses} misses, {drops} drops, {late} sent late");
    assert!(count >= 200, "only {count} vectors were found");
    assert!(widest >= 32 && misses > 500 && drops > 500 && late > 100);
}

#[test]
fn generated_traces_decide_alike_in_the_engine() {
    for seed in 5000..5110 {
        let discipline = Discipline::ALL[seed as usize % Discipline::ALL.len()];
        let streams = Some(1 + seed as u32 % 32);
        let wanted =
            GenerateOptions { discipline: Some(discipline), streams, ..GenerateOptions::of(seed) };
        let trace = generate::trace(&wanted);
        let name = format!("{discipline}, seed {seed}");
        let expected = Outcome::of(&trace).lines(&trace);
        same(&name, &through_the_engine(&name, &trace), &expected);
    }
}

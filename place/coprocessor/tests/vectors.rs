//! Every trace of `vectors/`, and generated ones, through shared memory and the coprocessor's engine in
//! simulated time: the same lines as inline.

use std::path::Path;

use selvedge_data_sched::replay::{Outcome, Trace};
use selvedge_data_sched::trace::generate::{self, GenerateOptions};
use selvedge_place_coprocessor::unit_slot::shared;

fn through_shared_memory(name: &str, trace: &Trace) -> String {
    let (slots, refused) = shared(trace).unwrap_or_else(|error| panic!("{name}: {error}"));
    let outcome = slots.run().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(refused.iter().map(|one| one.read().total()).sum::<u64>(), 0, "{name}");
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
fn all_vectors_decide_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = std::fs::read_to_string(path.with_extension("jsonl")).unwrap();
        let trace = Trace::parse(&text, &name).unwrap();
        same(&name, &through_shared_memory(&name, &trace), &expected);
        count += 1;
    }
    assert!(count >= 200, "only {count} vectors were found");
}

#[test]
fn generated_traces_decide_alike() {
    let (mut misses, mut drops, mut late) = (0, 0, 0);
    for seed in 1000..1200 {
        let streams = Some(1 + seed as u32 % 32);
        let trace = generate::trace(&GenerateOptions { streams, ..GenerateOptions::of(seed) });
        let name = format!("seed {seed}");
        let expected = Outcome::of(&trace).lines(&trace);
        same(&name, &through_shared_memory(&name, &trace), &expected);
        misses += expected.matches("\"miss\"").count();
        drops += expected.matches("\"drop\"").count();
        late += expected.matches("\"late\": true").count();
    }
    assert!(misses > 500 && drops > 500 && late > 100, "{misses}, {drops}, {late}");
}

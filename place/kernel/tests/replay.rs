//! Traces through the kernel's program: the same lines as the software's, byte for byte. They need a kernel
//! that has BPF qdiscs, and root: `tools/kernel.sh test` boots one and runs them.

#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::path::PathBuf;

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::{Outcome, Trace};
use selvedge_data_sched::trace::generate::{GenerateOptions, Kind, trace};
use selvedge_data_sched::trace::run;
use selvedge_place_kernel::{PacketReplay, Replay};

/// Generated traces for dwcs; a fifth of them for each other discipline.
const GENERATED: u64 = 200;

/// The committed vectors, or their place on the machine that runs the tests.
fn vectors() -> PathBuf {
    let beside = PathBuf::from("/vectors");
    if beside.is_dir() {
        beside
    } else {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
    }
}

fn assert_same(name: &str, found: &str, expected: &str) {
    for (number, (found, expected)) in (1..).zip(found.lines().zip(expected.lines())) {
        assert_eq!(found, expected, "{name}: line {number}");
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
}

/// Every vector; the name, the trace, the lines.
fn committed() -> Vec<(String, Trace, String)> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(vectors()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let json = names.iter().filter(|path| path.extension().is_some_and(|found| found == "json"));
    let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let vectors = json.map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let (text, expected) = (read(path), read(&path.with_extension("jsonl")));
        let mut out = Vec::new();
        run(&text, &name, None, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{name}");
        (name.clone(), Trace::parse(&text, &name).unwrap(), expected)
    });
    vectors.collect()
}

/// Traces of all kinds, up to 32 streams, both late policies; a third of them with weights to the end of
/// their range, and deep trees.
fn generated(discipline: Discipline, count: u64) -> impl Iterator<Item = (String, Trace)> {
    let kinds = Kind::ALL;
    (0..count).map(move |n| {
        let kind = kinds[(n % kinds.len() as u64) as usize];
        let streams = (n % 3 == 0).then_some(1 + (n * 7 % 32) as u32);
        let seed = 9000 + n;
        let wanted = GenerateOptions {
            discipline: Some(discipline),
            kind: Some(kind),
            streams,
            ticks: Some(60),
            weight_max: (n % 3 == 1).then_some(u32::MAX),
            nodes: (n % 3 == 1 && discipline == Discipline::Hwfq).then_some(40),
            ..GenerateOptions::of(seed)
        };
        (format!("{discipline} {} seed {seed}", kind.name()), trace(&wanted))
    })
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn every_vector_has_the_same_lines_in_the_kernel() {
    let vectors = committed();
    assert!(vectors.len() >= 200, "{} vectors", vectors.len());
    let mut done = 0;
    for discipline in Discipline::ALL {
        let replay = Replay::load(discipline).unwrap();
        let of_it = vectors.iter().filter(|(_, trace, _)| trace.discipline == discipline);
        let mut count = 0;
        for (name, trace, expected) in of_it {
            assert_same(name, &replay.run(trace).unwrap().lines(trace), expected);
            count += 1;
        }
        println!("{count} vectors of {discipline}");
        assert!(count > 0, "no vector of {discipline}");
        done += count;
    }
    println!("{done} vectors of {}, none left out", vectors.len());
    assert_eq!(done, vectors.len());
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn generated_traces_have_the_same_lines_in_the_kernel() {
    let (mut sent, mut late, mut dropped, mut violations, mut widest) = (0, 0, 0, 0, 0);
    for discipline in Discipline::ALL {
        let replay = Replay::load(discipline).unwrap();
        let dwcs = discipline == Discipline::Dwcs;
        let count = if dwcs { GENERATED } else { GENERATED / 5 };
        for (name, trace) in generated(discipline, count) {
            let outcome = replay.run(&trace).unwrap();
            assert_same(&name, &outcome.lines(&trace), &Outcome::of(&trace).lines(&trace));
            widest = widest.max(trace.streams.len());
            for (counters, _) in outcome.totals {
                sent += counters.sent;
                late += counters.late;
                dropped += counters.dropped;
                violations += counters.violations;
            }
        }
    }
    println!("{sent} sent, {late} of them late, {dropped} dropped, {violations} violations");
    assert!(widest >= 32 && late > 500 && dropped > 1000 && violations > 1000);
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn real_packets_through_the_qdisc_have_the_same_lines() {
    let vectors = committed();
    for discipline in Discipline::ALL {
        let of_it = vectors.iter().filter(|(_, trace, _)| trace.discipline == discipline);
        let mut traces: Vec<(String, Trace)> =
            of_it.map(|(name, trace, _)| (name.clone(), trace.clone())).collect();
        let dwcs = discipline == Discipline::Dwcs;
        traces.extend(generated(discipline, if dwcs { GENERATED } else { GENERATED / 10 }));
        as_packets(discipline, &traces);
    }
}

/// These traces with real packets, under a discipline.
fn as_packets(discipline: Discipline, traces: &[(String, Trace)]) {
    let mut packets = 0;
    let replay = PacketReplay::load("lo", discipline).unwrap();
    for (name, trace) in traces {
        let (outcome, received) = replay.run(trace).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_same(name, &outcome.lines(trace), &Outcome::of(trace).lines(trace));
        // The packets leave the device in the order of the decisions.
        let decided = outcome.events.iter().filter_map(|event| match event.action {
            selvedge_data_sched::replay::ReplayAction::Send { frame, .. } => {
                Some((frame.stream, frame.seq))
            }
            _ => None,
        });
        assert_eq!(received, decided.collect::<Vec<_>>(), "{name}");
        packets += received.len();
    }
    println!("{} traces, {packets} packets under {discipline}", traces.len());
    assert!(packets > 0, "{discipline}");
}

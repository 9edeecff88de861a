//! The committed vectors: replayed byte for byte, and their coverage.

#![allow(clippy::disallowed_methods, reason = "tests and tools read files")]

mod oracle;
#[path = "oracle/vectors.rs"]
mod vectors;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use selvedge_data_sched::trace::run;
use vectors::{VECTORS, vector};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

fn stems(extension: &str) -> BTreeSet<String> {
    fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

fn read(stem: &str, extension: &str) -> String {
    let path = folder().join(format!("{stem}.{extension}"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn plain_vectors() -> impl Iterator<Item = (String, oracle::Trace)> {
    (1..=VECTORS).map(vector).map(|(name, made)| (name, oracle::plain(&made)))
}

fn replay(text: &str, file_name: &str) -> String {
    let mut out = Vec::new();
    run(text, file_name, None, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_vector_replays_to_its_lines() {
    let stems = stems("json");
    assert!(stems.len() >= 40, "{} vectors", stems.len());
    for stem in stems {
        let out = replay(&read(&stem, "json"), &stem);
        for (number, (found, expected)) in (1..).zip(out.lines().zip(read(&stem, "jsonl").lines()))
        {
            assert_eq!(found, expected, "{stem}.jsonl:{number}");
        }
        assert_eq!(out, read(&stem, "jsonl"), "{stem}");
    }
}

#[test]
fn the_generated_vectors_are_what_the_oracle_says() {
    for (name, trace) in plain_vectors() {
        assert_eq!(read(&name, "json"), trace.json(), "{name}: run trace_gen --vectors");
        assert_eq!(read(&name, "jsonl"), trace.expected(), "{name}: run trace_gen --vectors");
    }
}

#[test]
fn traces_and_lines_come_in_pairs() {
    assert_eq!(stems("json"), stems("jsonl"));
}

/// Each feature occurs and has an effect: the lines show it.
#[test]
fn every_discipline_meets_every_feature() {
    let by_head = ["dwcs", "dwcs98", "edf", "priority", "fifo"];
    let sharing = ["vds", "wfq", "sfq", "drr", "hwfq", "mixed"];
    for discipline in by_head.into_iter().chain(sharing) {
        let vectors = plain_vectors().map(|(_, trace)| trace);
        let mine: Vec<_> = vectors.filter(|trace| trace.discipline == discipline).collect();
        let streams = || mine.iter().flat_map(|trace| &trace.streams);
        let shows = |text: &str| mine.iter().any(|trace| trace.expected().contains(text));
        assert!(mine.iter().any(|trace| trace.arrivals.is_none()));
        if sharing.contains(&discipline) {
            assert!(streams().any(|stream| stream.weight > 1));
            let arrivals = || mine.iter().flat_map(|trace| trace.arrivals.iter().flatten());
            assert!(arrivals().any(|(.., size)| *size != oracle::SIZE));
        } else {
            assert!(mine.iter().any(|trace| trace.streams.len() == 32));
            assert!(streams().any(|stream| stream.window == (0, 0)));
        }
        assert!(streams().any(|stream| stream.window.0 == 0 && stream.window.1 > 0));
        assert!(streams().any(|stream| !stream.work_conserving));
        assert!(streams().any(|stream| stream.first_deadline.is_some()));
        for text in ["\"drop\"", "\"miss\"", "\"idle\"", "\"late\": true"] {
            assert!(shows(text), "{discipline}: no {text}");
        }
        if discipline == "hwfq" {
            let nested = |trace: &oracle::Trace| trace.nodes.iter().any(|node| node.0 > 0);
            assert!(mine.iter().any(nested));
            assert!(mine.iter().any(|trace| trace.remap.is_some()));
            assert!(mine.iter().any(|trace| trace.remap.is_none()));
        }
        if discipline == "mixed" {
            for class in ["edf", "priority", "fair"] {
                assert!(streams().any(|stream| stream.class == class));
            }
        }
    }
}

#[test]
fn the_crate_and_the_oracle_write_the_same_file() {
    for (name, made) in (1..=VECTORS).map(vector) {
        assert_eq!(made.json(), oracle::plain(&made).json(), "{name}");
    }
}

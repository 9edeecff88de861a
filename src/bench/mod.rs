//! `selvedge bench`: what this machine does, as medians and ratios.

mod decide;
mod send;
mod streams;

use std::io::Write;

use serde_json::{Map, Value};

use crate::cli::{BenchArgs, BenchWhat, Failure};

/// Measures for so many seconds at most.
type Measure = fn(u64) -> Result<Measurement, Failure>;

/// One measurement: its rows, as JSON and as a table.
struct Measurement {
    name: &'static str,
    json: Value,
    text: String,
}

pub(crate) fn command(args: &BenchArgs) -> Result<(), Failure> {
    let wanted = |what: BenchWhat| args.what.is_none_or(|only| only == what);
    let mut out = std::io::stdout().lock();
    let mut all = Map::new();
    let measurements: [(BenchWhat, Measure); 3] = [
        (BenchWhat::Decide, decide::measure),
        (BenchWhat::Send, send::measure),
        (BenchWhat::Streams, streams::measure),
    ];
    for (what, measure) in measurements {
        if !wanted(what) {
            continue;
        }
        let done = measure(args.seconds)?;
        if args.json {
            all.insert(done.name.to_owned(), done.json);
        } else {
            writeln!(out, "{}", done.text)?;
        }
    }
    if args.json {
        writeln!(out, "{}", Value::Object(all))?;
    }
    Ok(())
}

//! `bench decide`: nanoseconds and instructions a decision, by discipline and number of streams;
//! without misses and at twofold overload, beside a binary heap.

use selvedge_cli_terminal::{Failure, Table};
use selvedge_data_sched::Discipline;
use selvedge_lab_measure::Load;
use selvedge_lab_measure::decide::decide;
use serde_json::json;

use super::instructions::{self, Source};
use super::{Measurement, cell, samples, tenths};
use crate::cli::BenchArgs;

const STREAMS: [u32; 5] = [4, 32, 1024, 65_536, 1 << 20];
/// Above this a sample is less disturbed than it costs to begin.
const MANY: u32 = 100_000;

pub(super) fn measure(args: &BenchArgs) -> Result<Measurement, Failure> {
    // Ours, the heap's, overload twice.
    let samples = samples(args.seconds, Discipline::ALL.len() * STREAMS.len() * 4);
    let source = Source::new(args.instructions)?;
    let mut table = Table::default().left(["discipline"]).right([
        "streams",
        "ns a decision",
        "heap's",
        "ns an update in overload",
        "ratio",
        "told apart",
        "instructions",
    ]);
    let mut list = Vec::new();
    for discipline in Discipline::ALL {
        for streams in STREAMS {
            let samples = if streams > MANY { samples.div_ceil(3) } else { samples };
            let load = Load { discipline, streams, ties: args.ties };
            let done = decide(load, samples);
            let ratio = done.overload_ns / done.ns;
            let count = source.count(discipline, streams)?;
            table.row([
                discipline.name().to_owned(),
                streams.to_string(),
                format!("{:.1}", done.ns),
                cell(done.heap_ns),
                format!("{:.1}", done.overload_ns),
                format!("{ratio:.2}"),
                format!("{:.1}", done.told_apart_ns),
                cell(count),
            ]);
            list.push(json!({
                "discipline": discipline.name(),
                "streams": streams,
                "ns": tenths(done.ns),
                "heap_ns": done.heap_ns.map(tenths),
                "overload_ns": tenths(done.overload_ns),
                "overload_ratio": (ratio * 100.0).round() / 100.0,
                "told_apart_ns": tenths(done.told_apart_ns),
                "overload_misses": (done.overload_misses * 100.0).round() / 100.0,
                "instructions": count,
            }));
        }
    }
    let text = format!(
        "Expire, choose, serve, next head; medians of {samples} samples of 0.3 ms. Beside it std's \
         BinaryHeap\nin the same order with the same state, in turns; and twofold overload, where \
         each miss is an update,\nby a caller that counts misses, and by one that goes another way \
         for them (told apart).\nInstructions: {}.\n{table}",
        instructions::origin(&source)
    );
    Ok(Measurement { name: "decide", json: json!(list), text })
}

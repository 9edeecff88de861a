//! `bench coprocessor`: what the placement in a process of its own costs on this machine.

use selvedge_place_coprocessor::bench::{self, Spread};
use selvedge_units::Span;
use serde_json::json;

use super::Measurement;
use crate::cli::Failure;
use crate::table::{Align, Table};

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let scale = usize::try_from(seconds).unwrap_or(60).min(60);
    let hand_over = bench::hand_over(3000 * scale, 1000).map_err(Failure::failed)?;
    let wake = bench::wake(100 * scale).map_err(Failure::failed)?;
    let throughput = bench::throughput(5 + scale).map_err(Failure::failed)?;
    let us = |span: Span| span.0 as f64 / 1000.0;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("median", Align::Right),
        ("p99", Align::Right),
        ("longest", Align::Right),
    ]);
    let mut row = |what: &str, spread: &Spread| {
        let cell = |span| format!("{:.2} us", us(span));
        let Spread { median, p99, longest, .. } = *spread;
        table.row([what.to_owned(), cell(median), cell(p99), cell(longest)]);
    };
    row("hand-over of a frame, one way, both awake", &hand_over);
    row("the same, the coprocessor asleep", &wake);
    let text = format!(
        "A frame of 1000 bytes, through memory that two threads have mapped apart.\n{table}\
         1200-byte packets: {:.0} a second inline, {:.0} through a coprocessor; median ratio of \
         neighbouring samples {:.3}.\n",
        throughput.inline_pps, throughput.coprocessor_pps, throughput.ratio
    );
    let spread = |spread: &Spread| {
        json!({
            "samples": spread.samples,
            "median_us": us(spread.median),
            "p99_us": us(spread.p99),
            "longest_us": us(spread.longest),
        })
    };
    let json = json!({
        "hand_over": spread(&hand_over),
        "wake": spread(&wake),
        "packets_per_second": {
            "inline": throughput.inline_pps.round(),
            "coprocessor": throughput.coprocessor_pps.round(),
            "ratio": throughput.ratio,
        },
    });
    Ok(Measurement { name: "coprocessor", json, text })
}

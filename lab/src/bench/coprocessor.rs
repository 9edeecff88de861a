//! `bench coprocessor`: what the placement in a process of its own costs on this machine.

use selvedge_cli_terminal::{Failure, Table};
use selvedge_lab_measure::coprocessor::{Percentiles, Wake, measure_hand_over, throughput, wake};
use selvedge_units::Duration;
use serde_json::json;

use super::Measurement;

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let scale = usize::try_from(seconds).unwrap_or(60).min(60);
    let handed_over = measure_hand_over(3000 * scale, 1000).map_err(Failure::failed)?;
    let woken = wake(100 * scale, Wake::Realtime, Duration::ZERO).map_err(Failure::failed)?;
    let rates = throughput(5 + scale).map_err(Failure::failed)?;
    let us = |span: Duration| span.0 as f64 / 1000.0;
    let mut table = Table::default().left([""]).right(["median", "p99", "longest"]);
    let mut row = |what: &str, spread: &Percentiles| {
        let cell = |span| format!("{:.2} us", us(span));
        let Percentiles { median, p99, longest, .. } = *spread;
        table.row([what.to_owned(), cell(median), cell(p99), cell(longest)]);
    };
    row("hand-over of a frame, one way, both awake", &handed_over);
    row("the same, the coprocessor asleep", &woken);
    let text = format!(
        "A frame of 1000 bytes, through memory that two threads have mapped apart.\n{table}\
         1200-byte packets: {:.0} a second inline, {:.0} through a coprocessor; median ratio of \
         neighbouring samples {:.3}.\n",
        rates.inline_pps, rates.coprocessor_pps, rates.ratio
    );
    let spread = |spread: &Percentiles| {
        json!({
            "samples": spread.samples,
            "median_us": us(spread.median),
            "p99_us": us(spread.p99),
            "longest_us": us(spread.longest),
        })
    };
    let json = json!({
        "hand_over": spread(&handed_over),
        "wake": spread(&woken),
        "packets_per_second": {
            "inline": rates.inline_pps.round(),
            "coprocessor": rates.coprocessor_pps.round(),
            "ratio": rates.ratio,
        },
    });
    Ok(Measurement { name: "coprocessor", json, text })
}

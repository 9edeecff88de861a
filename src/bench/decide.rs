//! `bench decide`: nanoseconds a decision, by discipline and number of streams.

use selvedge_sched::{Discipline, bench};
use serde_json::json;

use super::Measurement;
use crate::cli::Failure;
use crate::table::{Align, Table};

const STREAMS: [u32; 3] = [4, 32, 1024];
/// A sample takes 1.5 ms; more than this add nothing to a median.
const SAMPLES: std::ops::RangeInclusive<u64> = 11..=401;

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let rows = (Discipline::ALL.len() * STREAMS.len()) as u64;
    let samples = (seconds * 600 / rows).clamp(*SAMPLES.start(), *SAMPLES.end()) as usize;
    let mut table = Table::new(&[
        ("discipline", Align::Left),
        ("streams", Align::Right),
        ("ns a decision", Align::Right),
    ]);
    let mut list = Vec::new();
    for discipline in Discipline::ALL {
        for streams in STREAMS {
            let ns = bench::decide(discipline, streams, samples);
            table.row([discipline.name().to_owned(), streams.to_string(), format!("{ns:.1}")]);
            list.push(json!({
                "discipline": discipline.name(),
                "streams": streams,
                "ns": (ns * 10.0).round() / 10.0,
            }));
        }
    }
    let text =
        format!("Choose, serve, next head; medians of {samples} samples of 1.5 ms.\n{table}");
    Ok(Measurement { name: "decide", json: json!(list), text })
}

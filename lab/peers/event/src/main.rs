//! Filters and rings beside other makers' on this machine, in one run: E-code beside wasmtime and COD, rings
//! beside iceoryx2 and the kernel's bare calls. Run by `tools/peers/events.sh`, which builds COD where it can.
//!
//! Everything is measured in turns, and each figure is the median of the rounds, so that what disturbs the
//! machine for a moment disturbs all alike. The channel beside bare Zenoh is `selvedge-lab bench channels`.

#![forbid(unsafe_code)]

mod filters;
mod iceoryx;
mod rings;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// What was written on the command line.
    #[error("{0}; usage: selvedge-lab-peers-event [--seconds N] [--json] [--cod PROGRAM]")]
    Usage(String),
    /// A peer, with what it says.
    #[error("{peer}: {why}")]
    Peer { peer: &'static str, why: String },
    /// Our filters.
    #[error(transparent)]
    Filters(#[from] selvedge_lab_measure::code::MeasureError),
    /// Our rings.
    #[error(transparent)]
    Rings(#[from] selvedge_lab_measure::local::BenchError),
    /// Files.
    #[error("{doing}: {source}")]
    Files { doing: &'static str, source: std::io::Error },
}

impl Failure {
    /// Of one peer.
    fn of(peer: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Self {
        move |why| Self::Peer { peer, why: why.to_string() }
    }
}

struct Arguments {
    seconds: u64,
    json: bool,
    cod: Option<PathBuf>,
    peer: Option<String>,
}

fn arguments() -> Result<Arguments, Failure> {
    let mut found = Arguments { seconds: 5, json: false, cod: None, peer: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value =
            || words.next().ok_or_else(|| Failure::Usage(format!("{word} needs a value")));
        match word.as_str() {
            "--seconds" => {
                let text = value()?;
                let wrong = || Failure::Usage(format!("--seconds {text}: a number from 1 to 600"));
                let seconds = text.parse().ok().filter(|seconds| (1..=600).contains(seconds));
                found.seconds = seconds.ok_or_else(wrong)?;
            }
            "--json" => found.json = true,
            "--cod" => found.cod = Some(value()?.into()),
            "--peer" => found.peer = Some(value()?),
            _ => return Err(Failure::Usage(format!("{word} is not known"))),
        }
    }
    Ok(found)
}

fn run() -> Result<(), Failure> {
    let arguments = arguments()?;
    if let Some(spec) = &arguments.peer {
        return match spec.strip_prefix("iceoryx:") {
            Some(place) => iceoryx::far(place),
            None => Ok(selvedge_lab_measure::local::peer(spec)?),
        };
    }
    let filters = filters::measure(arguments.seconds, arguments.cod.as_deref())?;
    let rings = rings::measure(arguments.seconds)?;
    let output = if arguments.json {
        format!("{}\n", json!({ "filters": filters.json, "rings": rings.json }))
    } else {
        format!("{}\n{}", filters.text, rings.text)
    };
    let written = std::io::stdout().write_all(output.as_bytes());
    written.map_err(|source| Failure::Files { doing: "write", source })
}

/// One half of the output.
struct Measurement {
    json: serde_json::Value,
    text: String,
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}

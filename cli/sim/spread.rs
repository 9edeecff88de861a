//! `--seeds`: the same network under many seeds, and the spread of what comes of it.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use selvedge_cli_terminal::{Failure, Table};
use selvedge_sim::scenario::Scenario;
use selvedge_sim::{Limits, Simulation};
use selvedge_units::Instant;
use serde_json::json;

use super::{Inputs, Outcome};

/// Seeds from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeds {
    first: u64,
    last: u64,
}

/// The most seeds of one call.
const SEEDS_MAX: u64 = 1_000_000;

/// Why a text is no range of seeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SeedsError {
    #[error("\"{0}\" is no range of seeds; write FIRST..LAST, such as 1..1000")]
    NoRange(String),
    #[error("\"{0}\" has more than {SEEDS_MAX} seeds; split it")]
    TooMany(String),
}

/// Reads `1..1000`; both ends belong to it.
pub(super) fn seeds(text: &str) -> Result<Seeds, SeedsError> {
    let wrong = || SeedsError::NoRange(text.to_owned());
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let last = last.strip_prefix('=').unwrap_or(last);
    let [first, last] = [first, last].map(|number| number.parse::<u64>().ok());
    let (first, last) = first.zip(last).filter(|(first, last)| first <= last).ok_or_else(wrong)?;
    if last - first >= SEEDS_MAX {
        return Err(SeedsError::TooMany(text.to_owned()));
    }
    Ok(Seeds { first, last })
}

/// What is spread: the decodable share of each stream, and the goodput of each other flow in Mbit/s.
type Spread = BTreeMap<(usize, String, &'static str), Vec<f64>>;

pub(super) fn command(inputs: &Inputs, seeds: &Seeds, as_json: bool) -> Result<(), Failure> {
    let next = AtomicU64::new(0);
    let spread = Mutex::new(Spread::new());
    let count = seeds.last - seeds.first + 1;
    let (done, shows) = (AtomicU64::new(0), std::io::stderr().is_terminal());
    let worker = || -> Result<(), Failure> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            let outcome = outcome(inputs, seeds.first + number)
                .inspect_err(|_| next.store(count, Ordering::Relaxed))?;
            add(&mut spread.lock().unwrap_or_else(PoisonError::into_inner), &outcome);
            if shows {
                eprint!("\r{} of {count} seeds ", done.fetch_add(1, Ordering::Relaxed) + 1);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(Failure::failed("a run broke off; see above")))
        })
    })?;
    if shows {
        eprint!("\r\x1b[K");
    }
    print(
        &inputs.network.name,
        *seeds,
        spread.into_inner().unwrap_or_else(PoisonError::into_inner),
        as_json,
    )
}

fn outcome(inputs: &Inputs, seed: u64) -> Result<Outcome, Failure> {
    let Scenario { network, streams, lasts } = inputs.scenario(seed, None)?;
    let mut simulation = Simulation::new(network, Limits::default()).map_err(Failure::input)?;
    simulation
        .run(Instant::ZERO + lasts, &mut |_: &selvedge_sim::Event<'_>| {})
        .map_err(Failure::failed)?;
    Ok(Outcome { seed, results: simulation.results(), streams })
}

fn add(spread: &mut Spread, outcome: &Outcome) {
    let streams = outcome.streams().map(|row| (row.name.to_owned(), "decodable", row.decodable));
    let others =
        outcome.others().map(|flow| (outcome.named(flow), "Mbit/s", flow.goodput().0 as f64 / 1e6));
    for (number, (name, what, value)) in streams.chain(others).enumerate() {
        spread.entry((number, name, what)).or_default().push(value);
    }
}

fn print(network: &str, seeds: Seeds, spread: Spread, as_json: bool) -> Result<(), Failure> {
    let mut table = Table::default().left(["name", "of"]).right(["least", "median", "largest"]);
    let mut rows = Vec::new();
    for ((_, name, what), mut values) in spread {
        values.sort_by(f64::total_cmp);
        let [least, median, largest] = [0, values.len() / 2, values.len() - 1].map(|n| values[n]);
        rows.push(json!({ "name": name, "of": what, "least": least, "median": median, "largest": largest }));
        let shown = |value: f64| match what {
            "decodable" => format!("{:.1} %", value * 100.0),
            _ => format!("{value:.2}"),
        };
        table.row([name, what.to_owned()].into_iter().chain([least, median, largest].map(shown)));
    }
    let Seeds { first, last } = seeds;
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json!({ "network": network, "seeds": [first, last], "spread": rows }))?;
    } else {
        writeln!(out, "Simulated: {network}, seeds {first} to {last}.\n\n{table}")?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_seeds_have_two_ends_in_order() {
        assert_eq!(seeds("1..1000"), Ok(Seeds { first: 1, last: 1000 }));
        assert_eq!(seeds("7..=7"), Ok(Seeds { first: 7, last: 7 }));
        for wrong in ["", "1", "1..", "..2", "2..1", "a..b", "-1..2", "0..18446744073709551615"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }
}

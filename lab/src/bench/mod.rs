//! `selvedge-lab bench`: what this machine does, as medians and ratios.

mod code;
pub(crate) mod configurations;
mod coprocessor;
mod dataplane;
mod decide;
mod events;
mod files;
pub(crate) mod immunity;
mod instructions;
mod peer;
#[cfg(feature = "kernel")]
mod readiness;
mod send;
mod stack;
mod streams;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

use selvedge_cli_terminal::Failure;
use serde_json::{Map, Value};

use crate::channels;
use crate::cli::{BenchArgs, BenchCommand, BenchPart, BenchWhat};

type Measure = fn(&BenchArgs) -> Result<Measurement, Failure>;

/// One measurement: its rows, as JSON and as a table.
struct Measurement {
    name: &'static str,
    json: Value,
    text: String,
}

pub(crate) fn command(command: &BenchCommand) -> Result<(), Failure> {
    match &command.command {
        None => all(&command.args),
        Some(BenchPart::Channels(args)) => channels::command(args),
        Some(BenchPart::Immunity(args)) => immunity::command(args),
        Some(BenchPart::ChannelSinks(args)) => channels::sinks::sinks(args),
    }
}

fn all(args: &BenchArgs) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if let Some(count) = args.count {
        writeln!(out, "{}", instructions::work(count))?;
        return Ok(());
    }
    if let Some(spec) = &args.peer {
        return events::peer(spec);
    }
    if args.configurations.is_wanted() && args.what != Some(BenchWhat::Stack) {
        return Err(Failure::input(
            "--configuration is of stacks; write bench stack --configuration",
        ));
    }
    if matches!(args.what, None | Some(BenchWhat::Decide | BenchWhat::Dataplane)) {
        restart_with_huge_pages();
    }
    let wanted = |what: BenchWhat| args.what.is_none_or(|only| only == what);
    let mut all = Map::new();
    let measurements: &[(BenchWhat, Measure)] = &[
        (BenchWhat::Decide, decide::measure),
        (BenchWhat::Dataplane, dataplane::measure),
        (BenchWhat::Send, |args| send::measure(args.seconds)),
        (BenchWhat::Streams, |args| streams::measure(args.seconds)),
        (BenchWhat::Code, |args| code::measure(args.seconds)),
        (BenchWhat::Coprocessor, |args| coprocessor::measure(args.seconds)),
        (BenchWhat::Files, |args| files::measure(args.seconds)),
        (BenchWhat::Events, |args| events::measure(args.seconds)),
        #[cfg(feature = "kernel")]
        (BenchWhat::Readiness, |args| readiness::measure(args.seconds)),
        (BenchWhat::Stack, |args| match &args.configurations {
            wanted if wanted.is_wanted() => configurations::measure(wanted, args.seconds),
            _ => stack::measure(args.seconds),
        }),
        (BenchWhat::Firm, |args| stack::measure_firm(args.seconds)),
    ];
    for (what, measure) in measurements {
        if !wanted(*what) {
            continue;
        }
        let done = measure(args)?;
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

/// Starts this program again so that glibc asks the kernel for huge pages. With a million streams
/// the state takes hundreds of megabytes, and finding small pages costs as much as the deciding.
/// Does nothing where it was done already, or the user has settings of his own, or it can't be.
fn restart_with_huge_pages() {
    const SETTINGS: &str = "GLIBC_TUNABLES";
    if std::env::var_os(SETTINGS).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        let mut again = Command::new(program);
        again.args(std::env::args_os().skip(1)).env(SETTINGS, "glibc.malloc.hugetlb=1");
        // Comes back only if it fails; then it goes on with small pages.
        let _ = again.exec();
    }
}

/// To one decimal place.
fn tenths(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

/// To one decimal place; a dash for what was not measured.
fn cell(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.1}"))
}

/// `samples` of 0.3 ms fit into `seconds` this many times over.
fn samples(seconds: u64, times: usize) -> usize {
    /// More than these add nothing to a median.
    const SAMPLES: std::ops::RangeInclusive<u64> = 11..=201;
    (seconds * 3000 / times as u64).clamp(*SAMPLES.start(), *SAMPLES.end()) as usize
}

//! `selvedge trace gen`: a trace file from a seed.

use std::io::{self, Write};

use selvedge_node::config::nearest;
use selvedge_sched::trace::generate::{self, Kind, Wanted};

use crate::cli::{Failure, TraceCommand, TraceGenArgs};
use crate::schedule::named;

/// The most arrivals that may be listed, by a rough reckoning of one for each stream and slot.
const CELLS_MOST: u64 = 50_000_000;

pub(crate) fn command(command: &TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Gen(args) => generate(args),
    }
}

fn generate(args: &TraceGenArgs) -> Result<(), Failure> {
    let discipline = args.discipline.as_deref().map(named).transpose()?;
    let kind = match args.kind.as_str() {
        "random" => None,
        name => Some(Kind::from_name(name).ok_or_else(|| unknown(name))?),
    };
    let cells = u64::from(args.streams.unwrap_or(1)).saturating_mul(args.ticks.unwrap_or(60));
    if cells > CELLS_MOST {
        let product = format!("--streams times --ticks is {cells}; at most {CELLS_MOST}");
        return Err(Failure::input(product));
    }
    let (seed, streams, ticks) = (args.seed, args.streams, args.ticks);
    let trace = generate::trace(&Wanted { seed, discipline, kind, streams, ticks });
    let mut out = io::stdout().lock();
    out.write_all(trace.json().as_bytes())?;
    Ok(out.flush()?)
}

fn unknown(name: &str) -> Failure {
    let names = || Kind::ALL.into_iter().map(Kind::name).chain(["random"]);
    let remedy = match nearest(name, names()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
    };
    Failure::input(format!("--kind: there is no kind \"{name}\"; {remedy}"))
}

//! `selvedge trace gen`: a trace file from a seed.

use std::io::{self, Write};

use selvedge_node::config::nearest;
use selvedge_sched::trace::generate::{self, Kind, Wanted};
use selvedge_stream::Class;

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
        name => {
            let names = || Kind::ALL.into_iter().map(Kind::name).chain(["random"]);
            Some(Kind::from_name(name).ok_or_else(|| unknown(("kind", "kind"), name, names))?)
        }
    };
    let class = |name: &String| {
        let names = || Class::ALL.into_iter().map(Class::name);
        Class::from_name(name).ok_or_else(|| unknown(("classes", "class"), name, names))
    };
    let classes = args.classes.iter().map(class).collect::<Result<_, _>>()?;
    let cells = u64::from(args.streams.unwrap_or(1)).saturating_mul(args.ticks.unwrap_or(60));
    if cells > CELLS_MOST {
        let product = format!("--streams times --ticks is {cells}; at most {CELLS_MOST}");
        return Err(Failure::input(product));
    }
    let &TraceGenArgs { seed, streams, ticks, weight_max, nodes, remap, .. } = args;
    let trace = generate::trace(&Wanted {
        seed,
        discipline,
        kind,
        streams,
        ticks,
        weight_max,
        classes,
        nodes,
        remap,
    });
    let mut out = io::stdout().lock();
    out.write_all(trace.json().as_bytes())?;
    Ok(out.flush()?)
}

fn unknown<'a, N: Iterator<Item = &'a str>>(
    (option, what): (&str, &str),
    name: &str,
    names: impl Fn() -> N,
) -> Failure {
    let remedy = match nearest(name, names()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
    };
    Failure::input(format!("--{option}: there is no {what} \"{name}\"; {remedy}"))
}

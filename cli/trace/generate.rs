//! `selvedge trace gen`: a trace file from a seed.

use std::io::{self, Write};

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_data_sched::trace::generate::{self, GenerateOptions, Kind};
use selvedge_data_stream::Class;
use selvedge_units::nearest;

use selvedge_cli_terminal::trace::named;

/// The most arrivals that may be listed, by a rough estimate of one for each stream and slot.
const CELLS_MAX: u64 = 50_000_000;

#[derive(Debug, Args)]
pub(crate) struct GenArgs {
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many streams (default: as the seed has it)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    streams: Option<u32>,
    /// How many slots (default: as the seed has it)
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    ticks: Option<u64>,
    /// The order in which streams are served (default: as the seed has it)
    #[arg(long)]
    discipline: Option<String>,
    /// The kind of load in the trace
    #[arg(long, default_value = "random")]
    kind: String,
    /// Weights from 1 to this, of streams and of nodes asked for; quanta in bytes under drr
    #[arg(long, value_name = "WEIGHT", value_parser = clap::value_parser!(u32).range(1..))]
    weight_max: Option<u32>,
    /// The streams' classes under mixed: some of edf, priority, fair; one named twice counts twice
    #[arg(long, value_name = "CLASS,...", value_delimiter = ',')]
    classes: Vec<String>,
    /// How many inner nodes the tree of hwfq has
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    nodes: Option<u32>,
    /// Slots between two mappings of hwfq's flat approximation; 0: exact sharing
    #[arg(long, value_name = "SLOTS")]
    remap: Option<u64>,
}

pub(super) fn command(args: &GenArgs) -> Result<(), Failure> {
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
    if cells > CELLS_MAX {
        let product = format!("--streams times --ticks is {cells}; at most {CELLS_MAX}");
        return Err(Failure::input(product));
    }
    let &GenArgs { seed, streams, ticks, weight_max, nodes, remap, .. } = args;
    let trace = generate::trace(&GenerateOptions {
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

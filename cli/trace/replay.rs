//! `selvedge trace replay`: a trace replayed in unit slots, by the scheduler alone, by a placement's whole
//! engine, or the kernel. All of them read the same trace and print the same lines.

use std::path::PathBuf;

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_cli_terminal::trace::{Lines, read};
use selvedge_data_sched::replay::Replay;
use selvedge_place_coprocessor::unit_slot::shared;
use selvedge_place_engine::engine::unit_slot::{UnitSlotError, UnitSlots};

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The trace
    #[arg(value_name = "TRACE.json")]
    pub(crate) file: PathBuf,
    /// Use this discipline in place of the trace's own
    #[arg(long)]
    pub(crate) discipline: Option<String>,
    /// What makes the decisions; all print the same lines
    #[arg(long, value_enum, default_value_t = Engine::Software)]
    pub(crate) engine: Engine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// The scheduler of this program
    Software,
    /// The whole engine of a node, in simulated time: rings, its loop, datagrams over loopback
    Inline,
    /// The same fed through shared memory, as the coprocessor's engine is
    Coprocessor,
    /// Now `selvedge-lab schedule`
    #[value(hide = true)]
    Rtl,
    /// The scheduler in the kernel (needs root, and a kernel that has BPF qdiscs)
    #[cfg(feature = "kernel")]
    Kernel,
}

pub(crate) fn command(args: &ReplayArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let trace = read(&args.file, args.discipline.as_deref())?;
    let mut out = Lines::new(&trace);
    match args.engine {
        Engine::Software => {
            let mut replay = Replay::new(&trace);
            out.events(&mut replay)?;
            out.totals(replay.totals().map(|(_, counters, window)| (counters, window)))
        }
        Engine::Inline => {
            let outcome = UnitSlots::inline(&trace).and_then(UnitSlots::run);
            out.outcome(outcome.map_err(|why| of_engine(&name, &why))?)
        }
        Engine::Coprocessor => {
            let (slots, _) = shared(&trace).map_err(|why| of_engine(&name, &why))?;
            out.outcome(slots.run().map_err(|why| of_engine(&name, &why))?)
        }
        Engine::Rtl => {
            let lab = "the simulated hardware replays traces by `selvedge-lab schedule`";
            Err(Failure::input(format!("--engine rtl: {lab}")))
        }
        #[cfg(feature = "kernel")]
        Engine::Kernel => {
            use selvedge_place_kernel::ReplayError::{Discipline, Setup, Streams};
            let replayed = selvedge_place_kernel::Replay::load(trace.discipline);
            let outcome = replayed.and_then(|replay| replay.run(&trace)).map_err(|why| {
                let text = format!("{name}: {why}");
                match why {
                    Setup(_) | Streams { .. } | Discipline { .. } => Failure::input(text),
                    _ => Failure::failed(text),
                }
            })?;
            out.outcome(outcome)
        }
    }
}

fn of_engine(name: &str, why: &UnitSlotError) -> Failure {
    Failure::failed(format!("{name}: {why}"))
}

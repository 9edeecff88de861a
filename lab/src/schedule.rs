//! `selvedge-lab schedule`: a trace replayed in unit slots by the simulated hardware. It prints the
//! lines that `selvedge trace replay` prints.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use selvedge_cli_terminal::Failure;
use selvedge_cli_terminal::trace::{Lines, read};
use selvedge_lab_rtl::{ReplayError, trace};

#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// The trace
    #[arg(value_name = "TRACE.json")]
    file: PathBuf,
    /// Use this discipline in place of the trace's own
    #[arg(long)]
    discipline: Option<String>,
    /// What makes the decisions
    #[arg(long, value_enum, default_value_t = Engine::Rtl)]
    engine: Engine,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Engine {
    /// The scheduler in Verilog, simulated (needs the Debian packages verilator and g++)
    Rtl,
}

pub(crate) fn command(args: &ScheduleArgs) -> Result<(), Failure> {
    let Engine::Rtl = args.engine;
    let name = args.file.display();
    let failed = |why: ReplayError| {
        let text = format!("{name}: {why}");
        match why {
            ReplayError::Simulator(_) => Failure::failed(text),
            _ => Failure::input(text),
        }
    };
    let read = read(&args.file, args.discipline.as_deref())?;
    let mut out = Lines::new(&read);
    let mut replay = trace::replay(&read).map_err(failed)?;
    out.events(&mut replay)?;
    out.totals(replay.totals().iter().map(|total| (total.counters, total.window)))
}

//! `selvedge schedule`: a trace replayed in unit slots.

use std::io::{self, BufWriter};

use selvedge_rtl::{ReplayError, trace as rtl};
use selvedge_sched::Discipline;
use selvedge_sched::trace::{self, RunError};

use crate::cli::{Engine, Failure, ScheduleArgs};
use crate::input;

/// The longest trace that is read: 256 MB.
pub(crate) const TRACE_MAX: u64 = 256 << 20;

pub(crate) fn command(args: &ScheduleArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let discipline = args.discipline.as_deref().map(named).transpose()?;
    let text = input::text(&args.file, TRACE_MAX)
        .map_err(|why| Failure::input(format!("{name}: {why}")))?;
    let mut out = BufWriter::new(io::stdout().lock());
    match args.engine {
        Engine::Software => trace::run(&text, &name, discipline, &mut out).map_err(|e| match e {
            RunError::Trace(error) => Failure::input(error),
            RunError::Write(error) => error.into(),
        }),
        Engine::Rtl => rtl::run(&text, &name, discipline, &mut out).map_err(|e| match e {
            rtl::RunError::Write(error) => error.into(),
            rtl::RunError::Replay { why: ReplayError::Simulator(_), .. } => Failure::failed(e),
            rtl::RunError::Trace(_) | rtl::RunError::Replay { .. } => Failure::input(e),
        }),
        #[cfg(feature = "kernel")]
        Engine::Kernel => kernel(&text, &name, discipline, &mut out),
    }
}

#[cfg(feature = "kernel")]
fn kernel(
    text: &str,
    name: &str,
    discipline: Option<Discipline>,
    out: &mut impl io::Write,
) -> Result<(), Failure> {
    use selvedge_kernel::ReplayError::{Discipline, Setup, Streams};
    use selvedge_kernel::trace::RunError;
    selvedge_kernel::trace::run(text, name, discipline, out).map_err(|e| match e {
        RunError::Write(error) => error.into(),
        RunError::Trace(_)
        | RunError::Replay { why: Setup(_) | Streams { .. } | Discipline { .. }, .. } => {
            Failure::input(e)
        }
        RunError::Replay { .. } => Failure::failed(e),
    })
}

pub(crate) fn named(name: &str) -> Result<Discipline, Failure> {
    Discipline::from_name(name).ok_or_else(|| {
        let all = Discipline::ALL.map(Discipline::name).join(", ");
        Failure::input(format!("there is no discipline \"{name}\"; there are {all}"))
    })
}

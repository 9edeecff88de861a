//! Trace files on the hardware: the same lines as [`selvedge_sched::trace::run`] prints.

use std::io;

use selvedge_sched::Discipline;
use selvedge_sched::replay::Trace;
use selvedge_sched::trace::{Printer, TraceError};
use thiserror::Error;

use crate::design::{Design, Routing, Slots};
use crate::fit::Misfit;
use crate::replay::ReplayError;
use crate::simulator::Simulator;

/// Why a trace was not replayed and printed.
#[derive(Debug, Error)]
pub enum RunError {
    /// The trace is malformed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The hardware does not take it, or could not be simulated.
    #[error("{file}: {why}")]
    Replay {
        /// The trace's file.
        file: String,
        /// What is wrong.
        why: ReplayError,
    },
    /// The output refused.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Replays the trace in `text` on the smallest winner-only design that holds its streams, and
/// prints its events and totals to `out`. The `discipline`, if given, takes the place of the
/// trace's own. Nothing is printed unless all of it fits the hardware.
///
/// # Errors
/// [`RunError`].
pub fn run(
    text: &str,
    file_name: &str,
    discipline: Option<Discipline>,
    out: &mut impl io::Write,
) -> Result<(), RunError> {
    let mut trace = Trace::parse(text, file_name)?;
    trace.discipline = discipline.unwrap_or(trace.discipline);
    let failed = |why| RunError::Replay { file: file_name.to_owned(), why };
    let found = trace.streams.len();
    let slots =
        Slots::for_streams(found).ok_or_else(|| failed(Misfit::Streams { found }.into()))?;
    // What can be refused without a simulator is.
    crate::fit::slots(&trace).map_err(|why| failed(why.into()))?;
    let design = Design::plain(slots, Routing::WinnerOnly);
    let simulator = Simulator::of(design).map_err(|why| failed(why.into()))?;
    let mut replay = simulator.replay(&trace).map_err(failed)?;
    let printer = Printer::new(&trace);
    for event in &mut replay {
        printer.event(out, &event)?;
    }
    printer.totals(out, replay.totals().iter().map(|total| (total.counters, total.window)))?;
    Ok(out.flush()?)
}

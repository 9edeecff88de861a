//! Trace files through the kernel's program: the same lines as `selvedge_sched::trace::run`.

use std::io;

use selvedge_sched::Discipline;
use selvedge_sched::replay::Trace;
use selvedge_sched::trace::{Printer, TraceError};
use thiserror::Error;

use crate::{Replay, ReplayError};

/// Why a trace was not replayed.
#[derive(Debug, Error)]
pub enum RunError {
    /// The trace makes no sense.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The kernel can't replay it.
    #[error("{file_name}: {why}")]
    Replay {
        /// The trace's name.
        file_name: String,
        /// Why.
        why: ReplayError,
    },
    /// The lines could not be written.
    #[error("the output could not be written: {0}")]
    Write(#[from] io::Error),
}

/// Replays the trace in `text` in the kernel and prints its events and totals to `out`, one line
/// each. The `discipline`, if given, takes the place of the trace's own. Nothing is printed unless
/// all of it was replayed.
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
    let outcome = Replay::load(trace.discipline).and_then(|replay| replay.run(&trace));
    let outcome =
        outcome.map_err(|why| RunError::Replay { file_name: file_name.to_owned(), why })?;
    let printer = Printer::new(&trace);
    for event in &outcome.events {
        printer.event(out, event)?;
    }
    printer.totals(out, outcome.totals.iter().copied())?;
    Ok(out.flush()?)
}

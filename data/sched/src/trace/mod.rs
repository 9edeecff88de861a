//! Trace files: read, replayed in unit slots, printed as one JSON object a line.
//!
//! A trace is JSON text (see `docs/trace.md` for the format); the output is compared, byte for byte, between
//! all placements of the scheduler.

mod error;
pub mod generate;
mod json;
mod parse;
mod print;
mod tree;
mod write;

pub use error::{Fault, RunError, TraceError};
pub use parse::TICKS_MAX;
pub use print::Printer;

use std::io;

use crate::Discipline;
use crate::replay::{Replay, Trace};

/// Replays the trace in `text` and prints its events and totals to `out`, one line each. The `discipline`, if
/// given, replaces the trace's own. `file_name` is for messages only. Nothing is printed unless the whole
/// trace is valid.
///
/// # Errors
/// [`RunError::Trace`] for a malformed trace, [`RunError::Write`] if writing to `out` fails.
pub fn run(
    text: &str,
    file_name: &str,
    discipline: Option<Discipline>,
    out: &mut impl io::Write,
) -> Result<(), RunError> {
    let mut trace = Trace::parse(text, file_name)?;
    trace.discipline = discipline.unwrap_or(trace.discipline);
    let printer = Printer::new(&trace);
    let mut replay = Replay::new(&trace);
    for event in &mut replay {
        printer.event(out, &event)?;
    }
    printer.totals(out, replay.totals().map(|(_, counters, window)| (counters, window)))?;
    Ok(out.flush()?)
}

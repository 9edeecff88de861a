//! From a trace file that a user names to the lines that its replay prints, whichever engine replays
//! it.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::{Event, Outcome, Trace};
use selvedge_data_sched::trace::Printer;
use selvedge_data_stream::{Counters, Window};

use crate::failure::Failure;
use crate::input;

/// The longest trace that is read: 256 MB.
const TRACE_MAX: u64 = 256 << 20;

/// Reads a trace; the discipline replaces its own.
///
/// # Errors
/// The error in the file or the name, for the user.
pub fn read(file: &Path, discipline: Option<&str>) -> Result<Trace, Failure> {
    let name = file.display().to_string();
    let discipline = discipline.map(named).transpose()?;
    let text =
        input::text(file, TRACE_MAX).map_err(|why| Failure::input(format!("{name}: {why}")))?;
    let mut trace = Trace::parse(&text, &name).map_err(|error| {
        let is_node_file = file.extension().is_some_and(|end| end == "toml");
        let hint = if is_node_file { "; `selvedge check` reads node files" } else { "" };
        Failure::input(format!("{error}{hint}"))
    })?;
    trace.discipline = discipline.unwrap_or(trace.discipline);
    Ok(trace)
}

/// The discipline of this name.
///
/// # Errors
/// If there is none; the error lists the names.
pub fn named(name: &str) -> Result<Discipline, Failure> {
    Discipline::from_name(name).ok_or_else(|| {
        let all = Discipline::NAMES.join(", ");
        Failure::input(format!("there is no discipline \"{name}\"; there are {all}"))
    })
}

/// A trace's lines on standard output.
pub struct Lines {
    printer: Printer,
    out: BufWriter<StdoutLock<'static>>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

impl Lines {
    /// For the replay of a trace.
    pub fn new(trace: &Trace) -> Self {
        Self { printer: Printer::new(trace), out: BufWriter::new(io::stdout().lock()) }
    }

    /// Prints events.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn events(&mut self, events: impl IntoIterator<Item = Event>) -> io::Result<()> {
        events.into_iter().try_for_each(|event| self.printer.event(&mut self.out, &event))
    }

    /// Prints a whole replay.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn outcome(mut self, outcome: Outcome) -> Result<(), Failure> {
        self.events(outcome.events)?;
        self.totals(outcome.totals)
    }

    /// Prints the totals of each stream, at the end.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn totals(
        mut self,
        totals: impl IntoIterator<Item = (Counters, Window)>,
    ) -> Result<(), Failure> {
        self.printer.totals(&mut self.out, totals.into_iter())?;
        Ok(self.out.flush()?)
    }
}

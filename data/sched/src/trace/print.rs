//! Prints events and totals: fixed order of keys, one space after each colon and comma.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::io;

use selvedge_data_stream::{Counters, Window};

use crate::replay::{Event, FrameRef, Outcome, ReplayAction, Trace};
use selvedge_units::Instant;

/// The streams' names as JSON strings.
pub(super) fn quoted_ids(trace: &Trace) -> Vec<String> {
    trace.streams.iter().map(|stream| serde_json::Value::from(&*stream.id).to_string()).collect()
}

/// Prints the result of a trace, from any engine that replayed it: one JSON object a line.
#[derive(Clone, Debug)]
pub struct Printer {
    /// The streams' names as JSON strings.
    ids: Vec<String>,
}

impl Printer {
    /// A printer for the streams of a trace.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        Self { ids: quoted_ids(trace) }
    }

    /// Prints an event.
    ///
    /// # Errors
    /// If writing to `out` fails.
    ///
    /// # Panics
    /// If the event belongs to a stream that the trace does not have.
    pub fn event(&self, out: &mut impl io::Write, event: &Event) -> io::Result<()> {
        write!(out, "{{\"t\": {}, ", event.t.0)?;
        match &event.action {
            ReplayAction::Idle => writeln!(out, "\"event\": \"idle\"}}"),
            ReplayAction::Drop(frame) => {
                self.frame(out, "drop", frame)?;
                writeln!(out, "}}")
            }
            ReplayAction::Miss(frame) => {
                self.frame(out, "miss", frame)?;
                writeln!(out, "}}")
            }
            ReplayAction::Send { frame, late } => {
                self.frame(out, "send", frame)?;
                writeln!(out, ", \"late\": {late}}}")
            }
        }
    }

    /// Prints the last line: the streams' counters and windows, in the order of the trace.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn totals(
        &self,
        out: &mut impl io::Write,
        totals: impl Iterator<Item = (Counters, Window)>,
    ) -> io::Result<()> {
        write!(out, "{{\"event\": \"total\", \"streams\": {{")?;
        for (index, (id, (counters, window))) in self.ids.iter().zip(totals).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(
                out,
                "{comma}{id}: {{\"sent\": {}, \"late\": {}, \"missed\": {}, \"dropped\": {}, \
                 \"violations\": {}, \"window\": [{}, {}]}}",
                counters.sent,
                counters.late,
                counters.missed,
                counters.dropped,
                counters.violations,
                window.lose,
                window.of,
            )?;
        }
        writeln!(out, "}}}}")
    }

    fn frame(&self, out: &mut impl io::Write, event: &str, frame: &FrameRef) -> io::Result<()> {
        let FrameRef { stream, seq, deadline: Instant(deadline) } = frame;
        let id = &self.ids[stream.0 as usize];
        write!(
            out,
            "\"event\": \"{event}\", \"stream\": {id}, \"seq\": {seq}, \"deadline\": {deadline}"
        )
    }
}

impl Outcome {
    /// All its lines, as a [`Printer`] prints them.
    ///
    /// # Panics
    /// If this is the result of a trace with more streams.
    #[must_use]
    pub fn lines(&self, trace: &Trace) -> String {
        let (mut out, printer) = (Vec::new(), Printer::new(trace));
        let events = self.events.iter().try_for_each(|event| printer.event(&mut out, event));
        let printed = events.and_then(|()| printer.totals(&mut out, self.totals.iter().copied()));
        printed.expect("memory takes all");
        String::from_utf8(out).expect("names are UTF-8")
    }
}

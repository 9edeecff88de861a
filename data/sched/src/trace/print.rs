//! Prints events and totals: fixed order of keys, one space after each colon and comma.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::io;

use crate::replay::{Event, FrameRef, Happening, Replay, Trace};

/// The streams' names as JSON strings.
pub(super) fn quoted_ids(trace: &Trace) -> Vec<String> {
    trace.streams.iter().map(|stream| serde_json::Value::from(&*stream.id).to_string()).collect()
}

pub(super) fn event(out: &mut impl io::Write, ids: &[String], event: &Event) -> io::Result<()> {
    write!(out, "{{\"t\": {}, ", event.t.0)?;
    match &event.happening {
        Happening::Idle => writeln!(out, "\"event\": \"idle\"}}"),
        Happening::Drop(frame) => {
            print_frame(out, ids, "drop", frame)?;
            writeln!(out, "}}")
        }
        Happening::Miss(frame) => {
            print_frame(out, ids, "miss", frame)?;
            writeln!(out, "}}")
        }
        Happening::Send { frame, late } => {
            print_frame(out, ids, "send", frame)?;
            writeln!(out, ", \"late\": {late}}}")
        }
    }
}

fn print_frame(
    out: &mut impl io::Write,
    ids: &[String],
    event: &str,
    frame: &FrameRef,
) -> io::Result<()> {
    let FrameRef { stream, seq, deadline } = frame;
    let id = &ids[stream.0 as usize];
    let deadline = deadline.0;
    write!(
        out,
        "\"event\": \"{event}\", \"stream\": {id}, \"seq\": {seq}, \"deadline\": {deadline}"
    )
}

pub(super) fn totals(
    out: &mut impl io::Write,
    ids: &[String],
    replay: &Replay<'_>,
) -> io::Result<()> {
    write!(out, "{{\"event\": \"total\", \"streams\": {{")?;
    for (index, (id, (_, counters, window))) in ids.iter().zip(replay.totals()).enumerate() {
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

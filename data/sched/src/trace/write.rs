//! A trace as the text of a file, for [`Trace::parse`] to read back.

use alloc::string::String;
use core::fmt::Write;

use selvedge_stream::{Kind, Late};
use selvedge_units::Bytes;

use super::print::quoted_ids;
use crate::replay::{Arrivals, Trace, TraceStream};

/// Arrivals to a line.
const TO_A_LINE: usize = 10;

impl Trace {
    /// The text of a trace file. What has its default and is seldom stated (first deadline,
    /// weight, priority, size) is left out. Files know nothing of a window for each kind of frame
    /// (that of plain data stands for all), nor of a playout delay.
    #[must_use]
    pub fn json(&self) -> String {
        let mut out = String::new();
        // Writing into a string does not fail.
        let _ = write(self, &mut out);
        out
    }
}

fn write(trace: &Trace, out: &mut String) -> core::fmt::Result {
    let ids = quoted_ids(trace);
    let Trace { discipline, ticks, .. } = trace;
    write!(out, "{{\"discipline\": \"{discipline}\", \"ticks\": {ticks},\n \"streams\": [")?;
    for (index, (stream, id)) in trace.streams.iter().zip(&ids).enumerate() {
        out.push_str(if index == 0 { "\n   " } else { ",\n   " });
        write_stream(stream, id, out)?;
    }
    let Arrivals::Listed(listed) = &trace.arrivals else {
        out.push_str("],\n \"backlogged\": true}\n");
        return Ok(());
    };
    out.push_str("],\n \"arrivals\": [");
    for (place, arrival) in listed.iter().enumerate() {
        out.push_str(match place {
            0 => "",
            n if n % TO_A_LINE == 0 => ",\n   ",
            _ => ", ",
        });
        write!(out, "[{}, {}", arrival.at.0, ids[arrival.stream.0 as usize])?;
        if arrival.size != Bytes(1000) {
            write!(out, ", {}", arrival.size.0)?;
        }
        out.push(']');
    }
    out.push_str("]}\n");
    Ok(())
}

fn write_stream(stream: &TraceStream, id: &str, out: &mut String) -> core::fmt::Result {
    let contract = &stream.contract;
    let window = contract.windows.of(Kind::Data);
    let late = match contract.late {
        Late::Drop => "drop",
        Late::Send => "send",
    };
    write!(
        out,
        "{{\"id\": {id}, \"period\": {}, \"window\": [{}, {}], \"late\": \"{late}\", \
         \"work_conserving\": {}",
        contract.period.0, window.lose, window.of, contract.work_conserving
    )?;
    if let Some(first) = stream.first_deadline {
        write!(out, ", \"first_deadline\": {}", first.0)?;
    }
    if contract.weight != 1 {
        write!(out, ", \"weight\": {}", contract.weight)?;
    }
    if contract.priority != 0 {
        write!(out, ", \"priority\": {}", contract.priority)?;
    }
    out.push('}');
    Ok(())
}

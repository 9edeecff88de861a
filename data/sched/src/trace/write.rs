//! A trace as the text of a file, which [`Trace::parse`] reads back.

use alloc::string::String;
use core::fmt::Write;

use selvedge_data_stream::{Class, Kind};
use selvedge_units::Bytes;

use super::print::quoted_ids;
use crate::Tree;
use crate::replay::{Arrivals, Trace, TraceStream};

/// Arrivals to a line.
const TO_A_LINE: usize = 10;

impl Trace {
    /// The text of a trace file. Rarely stated fields that have their default (first deadline, priority,
    /// weight, class, parent, size) are left out. The nodes of a tree are called `n1`, `n2` and so on. Files
    /// can't state a window for each kind of frame (that of plain data stands for all), nor a playout delay.
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
    write!(out, "{{\"discipline\": \"{discipline}\", \"ticks\": {ticks},\n ")?;
    write_tree(&trace.tree, out)?;
    out.push_str("\"streams\": [");
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

fn write_tree(tree: &Tree, out: &mut String) -> core::fmt::Result {
    if !tree.nodes().is_empty() {
        out.push_str("\"tree\": [");
        for (n, node) in (1..).zip(tree.nodes()) {
            out.push_str(match n {
                1 => "",
                n if n % TO_A_LINE == 1 => ",\n   ",
                _ => ", ",
            });
            write!(out, "{{\"id\": \"n{n}\"")?;
            write_parent(node.parent, out)?;
            write!(out, ", \"weight\": {}}}", node.weight)?;
        }
        out.push_str("],\n ");
    }
    match tree.update() {
        Some(update) => write!(out, "\"remap\": {},\n ", update.0),
        None => Ok(()),
    }
}

fn write_parent(parent: u32, out: &mut String) -> core::fmt::Result {
    match parent {
        0 => Ok(()),
        n => write!(out, ", \"parent\": \"n{n}\""),
    }
}

fn write_stream(stream: &TraceStream, id: &str, out: &mut String) -> core::fmt::Result {
    let contract = &stream.contract;
    let window = contract.windows.of(Kind::Data);
    write!(
        out,
        "{{\"id\": {id}, \"period\": {}, \"window\": [{}, {}], \"late\": \"{}\", \
         \"work_conserving\": {}",
        contract.period.0, window.lose, window.of, contract.late, contract.work_conserving
    )?;
    if let Some(first) = stream.first_deadline {
        write!(out, ", \"first_deadline\": {}", first.0)?;
    }
    if contract.priority != 0 {
        write!(out, ", \"priority\": {}", contract.priority)?;
    }
    if contract.weight != 1 {
        write!(out, ", \"weight\": {}", contract.weight)?;
    }
    if contract.class != Class::Fair {
        write!(out, ", \"class\": \"{}\"", contract.class.name())?;
    }
    write_parent(contract.parent, out)?;
    out.push('}');
    Ok(())
}

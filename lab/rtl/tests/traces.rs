//! Trace files on the hardware: the committed vectors print the same lines as in software, and what
//! does not fit the registers is refused by name.

use std::fs;
use std::path::Path;

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::Trace;
use selvedge_data_sched::trace::Printer;
use selvedge_lab_rtl::{ReplayError, SimulatorError, ToolError, Unsupported};

/// What the hardware prints, or why not; `None`, with a line, if a tool is not installed.
fn hardware(text: &str, discipline: Option<Discipline>) -> Option<Result<String, ReplayError>> {
    let mut trace = Trace::parse(text, "t.json").expect("a good trace");
    trace.discipline = discipline.unwrap_or(trace.discipline);
    let mut replay = match selvedge_lab_rtl::trace::replay(&trace) {
        Err(ReplayError::Simulator(SimulatorError::Tool(ToolError::Absent { tool, package }))) => {
            println!("SKIPPED: {tool} is not installed (Debian package {package})");
            return None;
        }
        Err(error) => return Some(Err(error)),
        Ok(replay) => replay,
    };
    let (mut out, printer) = (Vec::new(), Printer::new(&trace));
    for event in &mut replay {
        printer.event(&mut out, &event).expect("memory takes all");
    }
    let totals = replay.totals().iter().map(|total| (total.counters, total.window));
    printer.totals(&mut out, totals).expect("memory takes all");
    Some(Ok(String::from_utf8(out).expect("the printer writes UTF-8")))
}

fn software(text: &str, discipline: Option<Discipline>) -> String {
    let mut out = Vec::new();
    selvedge_data_sched::trace::run(text, "t.json", discipline, &mut out).expect("a good trace");
    String::from_utf8(out).expect("the printer writes UTF-8")
}

#[test]
fn the_committed_vectors_print_the_same_lines_under_dwcs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let (mut same, mut refused) = (0, 0);
    for entry in fs::read_dir(&folder).expect("the vectors are there") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable");
        match hardware(&text, Some(Discipline::Dwcs)) {
            None => return,
            Some(Ok(lines)) => {
                assert_eq!(lines, software(&text, Some(Discipline::Dwcs)), "{}", path.display());
                same += 1;
            }
            Some(Err(ReplayError::Misfit(_))) => refused += 1,
            Some(Err(error)) => panic!("{}: {error}", path.display()),
        }
    }
    println!("{same} vectors the same, {refused} beyond the registers");
    // Those with times or windows at the ends of 64 and 16 bits do not fit.
    assert!(same >= 60 && refused > 0, "{same} and {refused}");
}

fn misfit(streams: &str, rest: &str) -> Option<Unsupported> {
    let text = format!("{{\"ticks\": 9, \"streams\": [{streams}], {rest}}}");
    match hardware(&text, None)? {
        Err(ReplayError::Misfit(misfit)) => Some(misfit),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let backlogged = "\"backlogged\": true";
    let cases = [
        ("{\"id\": \"a\", \"period\": 32768}", backlogged, "stream a: period 32768"),
        (
            "{\"id\": \"a\", \"period\": 2, \"window\": [1, 256]}",
            backlogged,
            "stream a: window 1/256",
        ),
        (
            "{\"id\": \"a\", \"period\": 2, \"first_deadline\": 40000}",
            backlogged,
            "stream a: first deadline 40000",
        ),
        (
            "{\"id\": \"a\", \"period\": 30000}",
            backlogged,
            "a deadline lies more than 32767 slots ahead",
        ),
        (
            "{\"id\": \"a\", \"period\": 1, \"window\": [0, 255]}, \
             {\"id\": \"b\", \"period\": 1, \"window\": [0, 255]}",
            backlogged,
            "y' grew beyond 255",
        ),
        (
            "{\"id\": \"a\", \"period\": 1, \"window\": [0, 1]}",
            "\"arrivals\": [], \"discipline\": \"dwcs98\"",
            "discipline dwcs98",
        ),
        (
            "{\"id\": \"a\", \"period\": 1, \"window\": [0, 1]}",
            "\"arrivals\": [], \"discipline\": \"edf\"",
            "edf if no stream has a window",
        ),
    ];
    for (streams, rest, expected) in cases {
        let Some(misfit) = misfit(streams, rest) else { return };
        assert!(misfit.to_string().contains(expected), "{misfit}, not {expected}");
    }
    let many: Vec<String> =
        (0..65).map(|n| format!("{{\"id\": \"s{n}\", \"period\": 2}}")).collect();
    let Some(found) = misfit(&many.join(", "), backlogged) else { return };
    assert_eq!(found, Unsupported::Streams { found: 65 });
}

/// Time goes on beyond 16 bits; only distances must fit.
#[test]
fn a_trace_longer_than_sixteen_bits_of_time() {
    let text = "{\"ticks\": 140000, \"streams\": [\
                {\"id\": \"a\", \"period\": 2, \"window\": [1, 2]}, \
                {\"id\": \"b\", \"period\": 2, \"window\": [1, 2], \"late\": \"send\"}, \
                {\"id\": \"c\", \"period\": 3, \"window\": [2, 3], \"work_conserving\": false}], \
                \"arrivals\": [[0, \"a\"], [40000, \"a\"], [65535, \"b\"], [65536, \"a\"], \
                [65536, \"c\"], [131071, \"c\"], [131071, \"b\"], [131071, \"b\"]]}";
    let Some(lines) = hardware(text, None) else { return };
    assert_eq!(lines.expect("it fits"), software(text, None));
}

//! `ni-t2`: the cost of a decision, by processor: the paper's three and this one.

use selvedge_data_sched::Discipline;
use selvedge_lab_measure::Load;
use selvedge_lab_measure::decide::decide;

use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::processor;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-t2",
    title: "Decision latency by processor",
    paper: super::NI,
    section: "Table 2, section 3.2.6",
    kind: Kind::Real,
    claim: "a decision takes less here than on any of the paper's processors, and than the packets of today's links",
    edits: &[THOUSAND],
    run,
};

/// For [`ni_t3`](super::ni_t3) as well.
pub(crate) const THOUSAND: Edit =
    Edit { name: "thousand", what: "a frame takes a thousand decisions" };

/// Nanoseconds a frame, from those of a decision.
pub(crate) fn a_frame(ns: f64, params: &Params) -> f64 {
    ns * params.edited(THOUSAND.name, 1.0, 1000.0)
}

/// Packets of 1500 bytes on today's links, and the nanoseconds that each takes. The paper asks the same of 100
/// Mbit/s (120 us), 1 Gbit/s (12 us) and 10 Gbit/s (1.2 us).
const PACKETS: [(&str, f64); 3] = [("10", 1200.0), ("100", 120.0), ("400", 30.0)];

/// Processors, and their microseconds a decision.
const THEIRS: [(&str, f64); 3] = [
    ("i960RD 66 MHz, with an operating system (paper)", 67.0),
    ("StrongArm SA-110 85.7 MHz, simulated (paper)", 17.48),
    ("StrongArm SA-110 287 MHz, simulated (paper)", 5.21),
];
/// The paper does not say how many streams it had; these are ours.
const STREAMS: [u32; 2] = [4, 32];

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let samples = params.amount(401, 21);
    let best = THEIRS[2].1 * 1000.0;
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Scheduler latency; ours the median of {samples} samples"),
        &[
            "processor",
            "order",
            "streams",
            "ns",
            "times faster than the paper's best",
            "fits 1500 bytes at, Gbit/s",
        ],
    );
    for (name, micros) in THEIRS {
        table.row([
            name.into(),
            "dwcs98".into(),
            Cell::None,
            (micros * 1000.0).into(),
            Cell::None,
            Cell::None,
        ]);
    }
    let name = processor();
    for (discipline, streams) in
        [Discipline::Dwcs98, Discipline::Dwcs].into_iter().flat_map(|d| STREAMS.map(|s| (d, s)))
    {
        watch.go_on(&format!("{discipline}, {streams} streams"))?;
        let load = Load { discipline, streams, ties: false };
        let ours = a_frame(decide(load, samples).ns, params);
        let fits = PACKETS.iter().rev().find(|(_, ns)| ours <= *ns);
        table.row([
            name.as_str().into(),
            discipline.name().into(),
            u64::from(streams).into(),
            Cell::rounded(ours, 1),
            Cell::rounded(best / ours, 0),
            fits.map_or(Cell::None, |(rate, _)| (*rate).into()),
        ]);
        let slower = THEIRS.iter().filter(|(_, micros)| ours < micros * 1000.0).count();
        outcome.claim(
            format!("{discipline} among {streams} streams is faster than all three"),
            slower == THEIRS.len(),
            format!("{ours:.1} ns against 67, 17.48 and 5.21 us"),
        );
        let (rate, packet) = PACKETS[1];
        outcome.claim(
            format!("{discipline} among {streams} streams decides within a packet of 1500 bytes at {rate} Gbit/s"),
            ours <= packet,
            format!("{ours:.1} ns of {packet} ns"),
        );
    }
    outcome.tables.push(table);
    outcome.note("The paper's scheduler used the 1998 order: windows first.");
    Ok(outcome)
}

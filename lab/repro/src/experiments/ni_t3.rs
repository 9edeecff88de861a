//! `ni-t3`: the cost of a decision against the number of streams, beside the FPGA's.

use selvedge_data_sched::Discipline;
use selvedge_lab_measure::Load;
use selvedge_lab_measure::decide::decide;

use super::ni_t2::{THOUSAND, a_frame};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::processor;
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-t3",
    title: "Decision latency against the number of streams",
    paper: super::NI,
    section: "Table 3, section 3.2.7",
    kind: Kind::Real,
    claim: "software on one core is at or under the FPGA at each count, and goes on to 1 M streams",
    edits: &[THOUSAND],
    run,
};

/// Streams, and the FPGA's nanoseconds.
const FPGA: [(u32, f64); 3] = [(4, 39.7), (32, 132.0), (1024, 1650.0)];
const STREAMS: [u32; 5] = [4, 32, 1024, 65_536, 1_048_576];
const DISCIPLINES: [Discipline; 3] = [Discipline::Dwcs, Discipline::Dwcs98, Discipline::Edf];

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let samples = params.amount(201, 11);
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Nanoseconds a decision, one core of {}, medians of {samples}", processor()),
        &["streams", "Virtex II FPGA (paper)", "dwcs", "dwcs98", "edf"],
    );
    let mut lines: Vec<Series> = DISCIPLINES
        .map(|discipline| Series {
            name: format!("{discipline}, this machine"),
            points: Vec::new(),
            marked: true,
            broad: false,
        })
        .into();
    for streams in STREAMS.into_iter().take(params.amount(STREAMS.len(), 4)) {
        let theirs = FPGA.iter().find(|(count, _)| *count == streams).map(|&(_, ns)| ns);
        let mut row = vec![
            Cell::from(u64::from(streams)),
            theirs.map_or(Cell::None, |ns| Cell::rounded(ns, 1)),
        ];
        for (discipline, line) in DISCIPLINES.into_iter().zip(&mut lines) {
            watch.go_on(&format!("{discipline}, {streams} streams"))?;
            let load = Load { discipline, streams, ties: false };
            let ours = a_frame(decide(load, samples).ns, params);
            row.push(Cell::rounded(ours, 1));
            line.points.push((f64::from(streams), ours));
            if discipline != Discipline::Dwcs {
                continue;
            }
            match theirs {
                Some(theirs) => outcome.claim(
                    format!("dwcs takes at most the FPGA's time at {streams} streams"),
                    ours <= theirs,
                    format!("{ours:.1} ns, FPGA {theirs} ns"),
                ),
                None => outcome.claim(
                    format!("at {streams} streams it takes less than the FPGA at 1024"),
                    ours <= FPGA[2].1,
                    format!("{ours:.1} ns, FPGA at 1024 streams {} ns", FPGA[2].1),
                ),
            }
        }
        table.row(row);
    }
    outcome.tables.push(table);
    outcome.note(
        "A decision is choosing, the rules on the winner, and its stream's next frame, on \
         backlogged streams; the FPGA's figure has no transfers either. Streams are always \
         backlogged and caches warm; an FPGA takes arrivals in as well, 32 bits each.",
    );
    lines.push(Series {
        name: "Virtex II FPGA (paper)".to_owned(),
        points: FPGA.map(|(streams, ns)| (f64::from(streams), ns)).into(),
        marked: true,
        broad: false,
    });
    outcome.plots.push(Plot {
        title: "Decision latency against the number of streams".to_owned(),
        x: Axis::log("streams"),
        y: Axis::log("nanoseconds a decision"),
        series: lines,
    });
    Ok(outcome)
}

//! `qf-f33`: the round trip of a request against the load of the processors, answered by a handler in
//! the kernel and by a process.

use selvedge_lab_measure::services::round_trip::{RoundTrips, round_trips};

use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f33",
    title: "Round trips against processor load, handled in the kernel and in a process",
    paper: super::QF,
    section: "Figure 33, section 4.4",
    kind: Kind::Real,
    claim: "flat where the kernel handles it, growing at user level",
    edits: &[],
    run,
};

const LOADS: [u32; 6] = [0, 15, 30, 45, 60, 75];
/// Most that the kernel's round trip may grow under load.
const FLAT: f64 = 1.2;

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let samples = params.amount(500, 40);
    let rounds = params.amount(5, 1);
    let mut all: Vec<Vec<RoundTrips>> = Vec::new();
    for round in 0..rounds {
        watch.go_on(&format!("round {} of {rounds}", round + 1))?;
        let loads: &[u32] = if params.quick { &[0, 75] } else { &LOADS };
        all.push(round_trips(loads, samples).map_err(|why| RunError::Needs(why.to_string()))?);
    }
    let loads = all.first().map_or(0, Vec::len);
    // The median of the rounds, figure by figure.
    let of = |at: usize, figure: fn(&RoundTrips) -> f64| {
        crate::measure::median(all.iter().filter_map(|round| round.get(at)).map(figure))
    };
    let mut table = Table::new(
        "Round trips on the loopback, us",
        &[
            "load of each processor",
            "kernel, median",
            "kernel, mean",
            "kernel, p99",
            "process, median",
            "process, mean",
            "process, p99",
        ],
    );
    let mut lines: [Vec<(f64, f64)>; 2] = [Vec::new(), Vec::new()];
    let first: Vec<u32> =
        all.first().map_or_else(Vec::new, |round| round.iter().map(|one| one.load).collect());
    for (at, load) in first.into_iter().enumerate() {
        let figures: [fn(&RoundTrips) -> f64; 6] = [
            |one| one.kernel.median,
            |one| one.kernel.mean,
            |one| one.kernel.p99,
            |one| one.process.median,
            |one| one.process.mean,
            |one| one.process.p99,
        ];
        let cells = figures.iter().map(|figure| Cell::rounded(of(at, *figure), 1));
        table.row(std::iter::once(Cell::from(format!("{load} %"))).chain(cells));
        lines[0].push((f64::from(load), of(at, |one| one.kernel.mean)));
        lines[1].push((f64::from(load), of(at, |one| one.process.mean)));
    }
    let mut outcome = Outcome { tables: vec![table], ..Outcome::default() };
    let last = loads.saturating_sub(1);
    let (idle, busy) = (of(0, |one| one.kernel.median), of(last, |one| one.kernel.median));
    outcome.claim(
        format!("at 75 % load the kernel's round trip is within {FLAT} times that without"),
        busy <= FLAT * idle,
        format!("{busy:.1} us, {idle:.1} us without load"),
    );
    let process = (of(0, |one| one.process.mean), of(last, |one| one.process.mean));
    let mean = of(last, |one| one.kernel.mean);
    outcome.claim(
        "at 75 % load the process's mean round trip is at least twice the kernel's",
        process.1 >= 2.0 * mean,
        format!("{:.1} us, the kernel's {mean:.1} us", process.1),
    );
    let tail = (of(last, |one| one.process.p99), of(last, |one| one.kernel.p99));
    outcome.claim(
        "at 75 % load the process's 99th percentile is at least four times the kernel's",
        tail.0 >= 4.0 * tail.1,
        format!("{:.1} us, the kernel's {:.1} us", tail.0, tail.1),
    );
    outcome.note(
        "The same E-code answers in both; the client runs before all ordinary threads, so only the \
         answering side competes. In the paper KECho-KL stays near 0.35 ms and ECho grows to some \
         milliseconds at 70 %.",
    );
    outcome.note(format!("Medians of {rounds} rounds of {samples} requests each."));
    let [kernel, process] = lines;
    let series = |name: &str, points: Vec<(f64, f64)>, broad: bool| Series {
        name: name.to_owned(),
        points,
        marked: true,
        broad,
    };
    outcome.plots.push(Plot {
        title: "Mean round trip against processor load".to_owned(),
        x: Axis::linear("load of each processor, %"),
        y: Axis::log("us"),
        series: vec![
            series("handler in the kernel", kernel, true),
            series("process", process, false),
        ],
    });
    Ok(outcome)
}

//! `qf-f14`: run-queue delay of video players, by how many there are.

use selvedge_place_cpu::player::within_ms;
use selvedge_units::Duration;

use super::players::{self, Contest, PERIOD, PlayerClass};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f14",
    title: "Run-queue delay of video players beside an endless real-time process",
    paper: super::QF,
    section: "Figure 14, section 3.3",
    kind: Kind::Real,
    claim: "the delay grows with the number of players; DWCS keeps it under a period",
    edits: &[],
    run,
};

const WAYS: [PlayerClass; 3] = [PlayerClass::Fair, PlayerClass::Fifo, PlayerClass::Dwcs];

/// What was measured under one way, by number of players.
#[derive(Default)]
struct Measured {
    /// Means of the delays to the first instruction and to the frame's end, ms.
    begins: Vec<f64>,
    ends: Vec<f64>,
    /// What 99 of 100 frames ended within, ms.
    within: Vec<f64>,
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    players::need_rights()?;
    let numbers: &[usize] = params.amount(&[1, 2, 4, 6, 7], &[1, 7]);
    let frames = params.amount(150, 40);
    let mut outcome = Outcome::default();
    let columns = ["players", "EEVDF mean", "p99", "SCHED_FIFO mean", "p99", "DWCS mean", "p99"];
    let table = |what: &str| {
        let title = format!("{what}, ms; {frames} frames each, 4 ms of work in 40 ms");
        Table::new(title, &columns)
    };
    let mut begun = table("From the time to run to the first instruction");
    let mut done = table("From the time to run to the end of the frame's work");
    let mut all: [Measured; WAYS.len()] = Default::default();
    for &number in numbers {
        let mut rows = [vec![Cell::from(number as u64)], vec![Cell::from(number as u64)]];
        for (way, measured) in WAYS.into_iter().zip(&mut all) {
            watch.go_on(&format!("{number} players under {}", way.name()))?;
            let (work, service) = (Duration::from_millis(4), Duration::from_micros(4_500));
            let contest = Contest { players: number, work, service, frames };
            let played = players::play(&contest, way)?;
            let begins: Vec<u64> =
                played.iter().flat_map(|played| &played.delays).copied().collect();
            let ends: Vec<u64> = played.iter().flat_map(|played| &played.ends).copied().collect();
            for (row, delays) in rows.iter_mut().zip([&begins, &ends]) {
                row.push(Cell::rounded(mean_ms(delays), 3));
                row.push(Cell::rounded(within_ms(delays, 990), 3));
            }
            measured.begins.push(mean_ms(&begins));
            measured.ends.push(mean_ms(&ends));
            measured.within.push(within_ms(&ends, 990));
        }
        let [begins, ends] = rows;
        begun.row(begins);
        done.row(ends);
    }
    outcome.tables.extend([begun, done]);
    claims(&mut outcome, &all);
    outcome.note(
        "DWCS is the user-level dispatcher over SCHED_FIFO; all share one processor with an \
         endless loop of the players' class (a task of 2 ms in 40 ms under DWCS) and two ordinary \
         endless programs. Frames that were not begun count as a whole period. Under SCHED_FIFO a \
         player's first frame waits for seconds, until the contest is ended: the mean has that, 99 \
         of 100 frames have not.",
    );
    outcome.note(
        "All players wake at the same moment, the worst case. The delay to the first instruction, \
         which the paper draws, is no measure of who serves them better then: DWCS runs one frame \
         after the other to its end, so the last of n waits for n - 1 frames of 4 ms and the mean \
         is no less than 2 (n - 1) ms, in whatever order; a class that gives each a slice in turn \
         may begin all of them sooner, and ends all of them late. What a viewer gets is the end.",
    );
    outcome.plots.push(plot(
        "Run-queue delay of n players: to the first instruction",
        numbers,
        &all,
        |of| &of.begins,
    ));
    outcome
        .plots
        .push(plot("The same: to the end of the frame's work", numbers, &all, |of| &of.ends));
    Ok(outcome)
}

fn claims(outcome: &mut Outcome, [fair, fifo, dwcs]: &[Measured; WAYS.len()]) {
    let ends = |values: &[f64]| {
        (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0))
    };
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let (few, many) = ends(&fair.begins);
    outcome.claim(
        "under the kernel's fair class the delay grows with the number of players",
        many > few,
        format!("{few:.2} ms to {many:.2} ms at the mean"),
    );
    let period = PERIOD.as_millis_f64();
    outcome.claim(
        "under DWCS 99 of 100 frames are not only begun but done within a period, whatever the number",
        most(&dwcs.within) < period,
        format!("{:.2} ms at most, of {period:.0} ms", most(&dwcs.within)),
    );
    for (name, other) in [("the fair class", fair), ("SCHED_FIFO", fifo)] {
        outcome.claim(
            format!("under {name} they are not, at the largest number"),
            ends(&other.within).1 >= period,
            format!("{:.2} ms", ends(&other.within).1),
        );
    }
    let least = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a < b);
    outcome.claim(
        "a frame is done sooner at the mean under DWCS than under the other two at every number",
        least(&dwcs.ends, &fair.ends) && least(&dwcs.ends, &fifo.ends),
        format!("{:.2} ms at most", most(&dwcs.ends)),
    );
}

fn plot(title: &str, numbers: &[usize], all: &[Measured], of: fn(&Measured) -> &[f64]) -> Plot {
    let series = |(way, measured): (PlayerClass, &Measured)| Series {
        name: way.name().to_owned(),
        points: numbers.iter().map(|&n| n as f64).zip(of(measured).iter().copied()).collect(),
        marked: true,
        broad: way == PlayerClass::Dwcs,
    };
    Plot {
        title: title.to_owned(),
        x: Axis::linear("players"),
        y: Axis::log("mean, ms"),
        series: WAYS.into_iter().zip(all).map(series).collect(),
    }
}

/// The mean, in milliseconds, of delays in nanoseconds.
fn mean_ms(delays: &[u64]) -> f64 {
    delays.iter().sum::<u64>() as f64 / delays.len().max(1) as f64 / 1e6
}

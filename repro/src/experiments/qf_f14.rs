//! `qf-f14`: run-queue delay of video players, by how many there are.

use selvedge_units::Span;

use super::players::{self, Contest, PERIOD, Way};
use crate::experiment::{Experiment, Kind, Params, RunError, Watch};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f14",
    title: "Run-queue delay of video players beside an endless real-time process",
    paper: super::QF,
    section: "Figure 14, section 3.3",
    kind: Kind::Real,
    claim: "the delay grows with the number of players; DWCS keeps it under a period",
    run,
};

const WAYS: [Way; 3] = [Way::Fair, Way::Fifo, Way::Dwcs];

fn run(params: &Params, watch: &dyn Watch) -> Result<Outcome, RunError> {
    players::need_rights()?;
    let numbers: &[usize] = params.amount(&[1, 2, 4, 6, 7], &[1, 7]);
    let frames = params.amount(150, 40);
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("From the time to run to running, ms; {frames} frames each, 4 ms of work in 40 ms"),
        &["players", "EEVDF mean", "p99", "SCHED_FIFO mean", "p99", "DWCS mean", "p99"],
    );
    let mut means: Vec<Vec<f64>> = vec![Vec::new(); WAYS.len()];
    let mut worst = 0.0_f64;
    for &number in numbers {
        let mut row = vec![Cell::from(number as u64)];
        for (way, means) in WAYS.into_iter().zip(&mut means) {
            watch.go_on(&format!("{number} players under {}", way.name()))?;
            let (work, service) = (Span::from_millis(4), Span::from_micros(4_500));
            let contest = Contest { players: number, work, service, frames };
            let mut played = players::play(&contest, way)?;
            let delays = played.iter_mut().flat_map(|played| std::mem::take(&mut played.delays));
            let all = selvedge_dispatch::player::Played {
                delays: delays.collect(),
                ..Default::default()
            };
            row.extend([
                Cell::rounded(all.mean_delay_ms(), 3),
                Cell::rounded(all.delay_ms(990), 3),
            ]);
            means.push(all.mean_delay_ms());
            if way == Way::Dwcs {
                // A frame that was not begun would make it a whole period.
                worst = worst.max(all.delay_ms(990));
            }
        }
        table.row(row);
    }
    outcome.tables.push(table);
    let [fair, fifo, dwcs] = &means[..] else { return Ok(outcome) };
    let ends = |means: &[f64]| {
        (means.first().copied().unwrap_or(0.0), means.last().copied().unwrap_or(0.0))
    };
    let (few, many) = ends(fair);
    outcome.claim(
        "under the kernel's fair class the delay grows with the number of players",
        many > few,
        format!("{few:.2} ms to {many:.2} ms at the mean"),
    );
    let period = PERIOD.as_millis_f64();
    outcome.claim(
        "under DWCS it stays under a period, for 99 of 100 frames whatever their number",
        worst < period,
        format!("{worst:.2} ms at most, of {period:.0} ms"),
    );
    let least = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a < b);
    outcome.claim(
        "under DWCS it is lower at the mean than under the other two at every number",
        least(dwcs, fair) && least(dwcs, fifo),
        format!("{:.2} ms at most", dwcs.iter().copied().fold(0.0, f64::max)),
    );
    outcome.note(
        "DWCS is the user-level dispatcher over SCHED_FIFO; all share one processor with an \
         endless loop of the players' class (a task of 2 ms in 40 ms under DWCS) and two ordinary \
         endless programs. Frames that were not begun count as a whole period.",
    );
    outcome.plots.push(Plot {
        title: "Run-queue delay of n players".to_owned(),
        x: Axis::linear("players"),
        y: Axis::log("mean run-queue delay, ms"),
        series: WAYS
            .into_iter()
            .zip(means)
            .map(|(way, means)| Series {
                name: way.name().to_owned(),
                points: numbers.iter().map(|&n| n as f64).zip(means).collect(),
                marked: true,
                broad: way == Way::Dwcs,
            })
            .collect(),
    });
    Ok(outcome)
}

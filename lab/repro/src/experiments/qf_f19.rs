//! `qf-f19`: frame rates of players, without and with event-aware scheduling.

use selvedge_units::Duration;

use super::players::{self, Contest, PERIOD, PlayerClass};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f19",
    title: "Frame rates of players at 25 frames/s, without and with event-aware scheduling",
    paper: super::QF,
    section: "Figure 19, section 3.5.2",
    kind: Kind::Real,
    claim: "held near the wanted rate with it, whatever the number of players",
    edits: &[],
    run,
};

/// What a frame takes, and what a player is promised.
const WORK: Duration = Duration::from_millis(8);
const SERVICE: Duration = Duration::from_micros(8_500);

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    players::need_rights()?;
    let numbers: &[usize] = params.amount(&[1, 2, 3, 4], &[1, 4]);
    let frames = params.amount(150, 40);
    let wanted = 1.0 / PERIOD.as_secs_f64();
    let names = PlayerClass::ALL.map(PlayerClass::name);
    let columns = [&["players"], &names[..]].concat();
    let mut rates =
        Table::new(format!("Frames/s on time, the mean of all players; {wanted} wanted"), &columns);
    let mut shares = Table::new("Frames on time, %; the player with the fewest", &columns);
    let mut series: Vec<Vec<f64>> = vec![Vec::new(); PlayerClass::ALL.len()];
    let mut least: Vec<f64> = vec![1.0; PlayerClass::ALL.len()];
    for &number in numbers {
        let (mut rate_row, mut share_row) = (vec![Cell::from(number as u64)], Vec::new());
        share_row.push(Cell::from(number as u64));
        for (place, way) in PlayerClass::ALL.into_iter().enumerate() {
            watch.go_on(&format!("{number} players under {}", way.name()))?;
            let contest = Contest { players: number, work: WORK, service: SERVICE, frames };
            let played = players::play(&contest, way)?;
            let shares = played.iter().map(|played| played.share());
            let mean = shares.clone().sum::<f64>() / number as f64;
            let fewest = shares.fold(1.0, f64::min);
            rate_row.push(Cell::rounded(mean * wanted, 1));
            share_row.push(Cell::rounded(fewest * 100.0, 1));
            series[place].push(mean * wanted);
            least[place] = least[place].min(fewest);
        }
        rates.row(rate_row);
        shares.row(share_row);
    }
    let mut outcome = Outcome { tables: vec![rates, shares], ..Outcome::default() };
    let of = |way: PlayerClass| {
        PlayerClass::ALL.iter().position(|&other| other == way).map_or(0.0, |n| least[n])
    };
    let aware = of(PlayerClass::EventAware);
    outcome.claim(
        "with event-aware scheduling every player has at least 0.9 of its frames on time",
        aware >= 0.9,
        format!("{:.1} % at least", aware * 100.0),
    );
    for way in [PlayerClass::Fair, PlayerClass::Fifo] {
        let share = of(way);
        outcome.claim(
            format!("under {} some player falls below that", way.name()),
            share < 0.9,
            format!("{:.1} % at least", share * 100.0),
        );
    }
    outcome.note(
        "Each player needs 8 ms of processor time in 40 ms and is promised 8.5 (window 1/5); \
         each of its wake-ups is an event. All share one processor with an endless loop of the \
         players' class (2 ms in 40 ms under DWCS) and two ordinary endless programs. DWCS is the \
         user-level dispatcher over SCHED_FIFO.",
    );
    outcome.plots.push(Plot {
        title: "Frame rate of n players beside endless programs".to_owned(),
        x: Axis::linear("players"),
        y: Axis::linear("frames/s on time"),
        series: PlayerClass::ALL
            .into_iter()
            .zip(series)
            .map(|(way, rates)| Series {
                name: way.name().to_owned(),
                points: numbers.iter().map(|&n| n as f64).zip(rates).collect(),
                marked: true,
                broad: way == PlayerClass::EventAware,
            })
            .collect(),
    });
    Ok(outcome)
}

//! The one run that both Figures 5 and 6 are judged by: nodes side by side, each with two clips, beside endless loops.
//! An experiment that follows the other takes its figures over, so that both show the same run.

use std::sync::{Mutex, PoisonError};

use selvedge_data_sched::Discipline;
use selvedge_lab_measure::immunity::{
    Campaign, CampaignFigures, Place, StreamRow, campaign, clips,
};
use selvedge_units::Duration;

use crate::experiment::{Edit, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

/// Endless loops on each core.
const LOADS: [usize; 3] = [0, 1, 4];
/// The loads that are enough for a quick look.
const QUICK: [usize; 2] = [0, 4];
/// The most of them, at which claims are.
pub(super) const MOST: usize = 4;
const ROUNDS: usize = 5;

/// The links are served in the order of arrival.
pub(super) const FIFO: Edit =
    Edit { name: "fifo", what: "the links serve packets in the order of their arrival" };
/// The coprocessor has no placement of its own.
pub(super) const ORDINARY: Edit =
    Edit { name: "ordinary", what: "the coprocessor's threads are of the ordinary class" };
/// There is no load.
pub(super) const IDLE: Edit = Edit { name: "no-loops", what: "there are no loops in any trial" };

/// Figures that the other experiment may take over: who measured them, and with what.
static MEASURED: Mutex<Vec<(&str, Params, CampaignFigures)>> = Mutex::new(Vec::new());

/// Where the coprocessor's link is in this run.
pub(super) fn coprocessor(params: &Params) -> Place {
    params.edited(ORDINARY.name, Place::Coprocessor, Place::OrdinaryCoprocessor)
}

/// Measures for the experiment `id`, or takes over what the other one measured.
pub(super) fn run(
    id: &'static str,
    params: &Params,
    watch: &dyn ProgressWatch,
) -> Result<CampaignFigures, RunError> {
    watch.go_on("the clips")?;
    let measured = || MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_others = |(by, of, _): &mut (&str, Params, CampaignFigures)| *by != id && of == params;
    if let Some((_, _, figures)) = measured().extract_if(.., is_others).next() {
        return Ok(figures);
    }
    let clips = clips(None).map_err(|why| RunError::Immunity(why.into()))?;
    let (loads, idle) = (params.amount(&LOADS[..], &QUICK[..]), [0; LOADS.len()]);
    let figures = campaign(
        &Campaign {
            places: &[Place::Plain, Place::Inline, coprocessor(params)],
            discipline: params.edited(FIFO.name, Discipline::Dwcs, Discipline::Fifo),
            loads: params.edited(IDLE.name, loads, &idle[..loads.len()]),
            rounds: params.amount(ROUNDS, 1),
            lasts: params.amount(Duration::from_secs(100), Duration::from_secs(4)),
        },
        &clips,
        |what| watch.go_on(what),
    )?;
    measured().push((id, *params, figures.clone()));
    Ok(figures)
}

/// The table of both experiments, and what a reader must know.
pub(super) fn show(figures: &CampaignFigures) -> Outcome {
    let mut outcome = Outcome::default();
    let (calm, all) = figures.rounds;
    let mut table = Table::new(
        format!(
            "Two clips beside bulk on a link of 12 Mbit/s, deadlines of 60 ms: medians of {} rounds",
            calm.max(1)
        ),
        &[
            "scheduled by",
            "loops a core",
            "clip",
            "kbit/s",
            "of unloaded",
            "on time",
            "decodable",
            "of unloaded",
            "packets",
            "wait, ms",
            "",
        ],
    );
    for row in &figures.rows {
        let (which, wait) = row.wait();
        let share = |share| Cell::rounded(share, 4);
        table.row([
            row.place.name().into(),
            Cell::from(row.load as u64),
            row.clip.as_str().into(),
            Cell::rounded(row.kbps, 1),
            share(row.kbps_ratio),
            share(row.on_time),
            share(row.decodable),
            share(row.decodable_ratio),
            row.waited.count().into(),
            Cell::rounded(wait.as_millis_f64(), 2),
            which.into(),
        ]);
    }
    outcome.tables.push(table);
    outcome.note(format!(
        "A bare real-time thread was at most {:.2} ms late, 99.9th percentile. {} of {all} rounds were noisy: it was \
         late by 2 ms or more.",
        figures.bare.as_millis_f64(),
        all - calm
    ));
    outcome.note(
        "Clips are played faster than recorded, by 8 and 4, so that a run has 100,000 packets of each. The links grant no \
         catch-up, as a policed uplink grants none: what a late wake-up misses is gone. A wait is from when a packet's \
         frame was due to the packet's arrival, so a late producer counts.",
    );
    outcome
}

/// How many times as long as without loops the longest waits of a place's streams are beside the most loops: the most
/// among its streams.
pub(super) fn wait_grows(figures: &CampaignFigures, place: Place) -> f64 {
    let waits = |load| figures.of(place, load).map(|row| row.wait().1.as_secs_f64());
    let times = waits(most_load(figures)).zip(waits(0)).map(|(loaded, calm)| loaded / calm);
    times.fold(0.0, f64::max)
}

/// The most loops a core of the run: none under the edit without load.
fn most_load(figures: &CampaignFigures) -> usize {
    figures.rows.iter().map(|row| row.load).max().unwrap_or(0).min(MOST)
}

/// The least of a figure among the streams of a place beside the most loops, with the stream.
pub(super) fn least(figures: &CampaignFigures, place: Place, figure: fn(&StreamRow) -> f64) -> f64 {
    figures.of(place, most_load(figures)).map(figure).fold(f64::INFINITY, f64::min)
}

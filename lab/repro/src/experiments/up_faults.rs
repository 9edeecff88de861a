//! `up-faults`: what the faults of one path cost two streams over a bond, in the simulator: a path that falls silent, one
//! that dies and comes back, and what a metered path carries beside a free one.

use selvedge_data_net_bond::{Cost, PathParams, PathState};
use selvedge_data_net_line::{LossModel, Outages};
use selvedge_data_stream::Frame;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::bonds::{BondRun, Road, mean, percent};
use super::up_media::{DELAY, Media, by_arrival};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::spread;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "up-faults",
    title: "What the faults of a path cost",
    paper: "Selvedge",
    section: "docs/inside/paths.md",
    kind: Kind::Virtual,
    claim: "a silent path is noticed within 1.5 times the larger of 300 ms and two round trips, and costs under 1 % of a \
            minute; one that dies costs nothing that the other brings in time, and is used again within 2 s; a metered one \
            carries at most 1.13 times what is lacking",
    edits: &[LEAKS, ALONE, STAYS, FREE],
    run,
};

const LEAKS: Edit = Edit { name: "leaks", what: "the silent path delivers a tenth of its packets" };
const ALONE: Edit = Edit { name: "alone", what: "no path but the faulty one is enough" };
const STAYS: Edit = Edit { name: "stays-dead", what: "the path that dies does not come back" };
const FREE: Edit = Edit { name: "free", what: "the metered path is free as well" };

/// Of each stream: a minute.
const FRAMES: u32 = 1_500;
/// When a path falls silent or dies.
const FAULT: Duration = Duration::from_secs(30);
/// How long the path that dies is gone.
const GONE: Duration = Duration::from_secs(5);
/// How often the state of a path is looked at.
const STEP: Duration = Duration::from_millis(5);
/// One-way delays of the faulty path, in milliseconds.
const DELAYS: [u64; 3] = [10, 40, 160];
/// The bounds of the claims.
const NOTICED: Duration = Duration::from_millis(300);
const NOTICED_TIMES: f64 = 1.5;
const COSTS: f64 = 0.01;
const BACK: Duration = Duration::from_secs(2);
const METERED: f64 = 1.13;

const fn media(hundredths: u64) -> Media {
    Media::new(3, 50, 2, hundredths)
}

/// What is found of one fault, a figure for each seed.
#[derive(Default)]
struct Found {
    /// From the fault until the path gets probes only.
    noticed: Vec<f64>,
    /// The part of the frames that are not decodable, beyond those without the fault.
    cost: Vec<f64>,
    /// From the end of the fault until packets go over the path again.
    back: Vec<f64>,
}

/// The faulty path, and one that is enough.
fn roads(params: &Params, delay: u64, lasts: Duration, is_faulty: bool) -> Vec<Road> {
    let media = media(125);
    let rate = media.rate(&media.streams(FRAMES as usize));
    let outages = Outages { every: FAULT, lasts, holds: false };
    let other = params.edited(ALONE.name, rate, Bitrate(rate.0 / 3));
    let faulty = Road { outages: is_faulty.then_some(outages), ..Road::new(rate, delay) };
    vec![faulty, Road::new(other, 20)]
}

/// Runs until the first path is in the wanted state; how long that takes, at most `most`.
fn until(
    run: &mut BondRun,
    begin: Instant,
    most: Duration,
    is_so: impl Fn(&BondRun) -> bool,
) -> Result<f64, RunError> {
    let mut now = begin;
    while now < begin + most && !is_so(run) {
        now += STEP;
        run.run(now)?;
    }
    Ok(if is_so(run) { now.since(begin).0 as f64 / 1e6 } else { f64::INFINITY })
}

fn fault(params: &Params, delay: u64, lasts: Duration, seeds: &[u64]) -> Result<Found, RunError> {
    let mut found = Found::default();
    let paths = [PathParams::default(); 2];
    for seed in seeds {
        let without = {
            let roads = roads(params, delay, lasts, false);
            let mut run = BondRun::new(media(125), FRAMES, &roads, &paths, *seed)?;
            run.finish()?;
            run.decodable()
        };
        let mut roads = roads(params, delay, lasts, true);
        if params.is_edited(LEAKS.name) {
            // It is lossy all the time instead.
            roads[0] = Road {
                outages: None,
                loss: LossModel::Bernoulli(percent("90 %")),
                ..roads[0].clone()
            };
        }
        let mut run = BondRun::new(media(125), FRAMES, &roads, &paths, *seed)?;
        let (fault, back) = (Instant::ZERO + FAULT, Instant::ZERO + FAULT + lasts);
        run.run(fault)?;
        let is_silent = |run: &BondRun| matches!(run.paths()[0].state, PathState::Silent(_));
        let most = lasts.min(Duration::from_secs(5));
        found.noticed.push(until(&mut run, fault, most, is_silent)?);
        if lasts == GONE {
            run.run(back)?;
            let sent = run.paths()[0].sent;
            // Probes alone are a few packets.
            let carries = |run: &BondRun| {
                let path = run.paths()[0];
                path.state == PathState::Active && path.is_used && path.sent > sent + Bytes(20_000)
            };
            found.back.push(until(&mut run, back, Duration::from_secs(10), carries)?);
        }
        run.finish()?;
        found.cost.push((without as f64 - run.decodable() as f64) / run.frames() as f64);
    }
    Ok(found)
}

/// The part of the streams' bytes that a path of this rate can't bring in time: what exceeds the rate by more than waits there
/// until the deadlines.
fn lacking(streams: &[Vec<Frame>], rate: Bitrate) -> f64 {
    let (mut waits, mut lacks, mut all, mut now) = (0.0_f64, 0.0, 0.0, Instant::ZERO);
    let most = rate.0 as f64 / 8.0 * DELAY.0 as f64 / 1e9;
    for (_, frame) in by_arrival(streams) {
        let passed = frame.arrival.since(now).0 as f64 / 1e9;
        (waits, now) = ((waits - rate.0 as f64 / 8.0 * passed).max(0.0), frame.arrival);
        let size = frame.size.0 as f64;
        let fits = size.min(most - waits);
        (waits, lacks, all) = (waits + fits, lacks + size - fits, all + size);
    }
    lacks / all
}

/// What goes over a metered path, as a part of what the free one lacks; and of all where the free one lacks nothing.
fn metered(
    params: &Params,
    hundredths: u64,
    seeds: &[u64],
) -> Result<(Vec<f64>, Vec<f64>), RunError> {
    let streams = media(100).streams(FRAMES as usize);
    let need = media(100).rate(&streams);
    let part = |of: u64| Bitrate(need.0 / 100 * of);
    let roads = vec![Road::new(part(hundredths), 20), Road::new(need, 20)];
    let cost = params.edited(FREE.name, Cost::Metered, Cost::Free);
    let paths = [PathParams::default(), PathParams { cost, ..PathParams::default() }];
    let (mut ratios, mut decodable) = (Vec::new(), Vec::new());
    for seed in seeds {
        let mut run = BondRun::new(media(100), FRAMES, &roads, &paths, *seed)?;
        run.finish()?;
        let [free, metered] = [0, 1].map(|path| run.paths()[path].sent.0 as f64);
        let lacks = (free + metered) * lacking(&streams, roads[0].rate);
        ratios.push(if lacks > 0.0 { metered / lacks } else { metered / (free + metered) });
        decodable.push(run.decodable() as f64 / run.frames() as f64);
    }
    Ok((ratios, decodable))
}

/// The largest of some figures.
fn most(all: &[f64]) -> f64 {
    let [_, _, most] = spread(all.iter().copied());
    most
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seeds: Vec<u64> = (0..params.amount(100, 1)).map(|n| params.seed.wrapping_add(n)).collect();
    let mut outcome = Outcome::default();
    let columns = [
        "fault",
        "one way, ms",
        "noticed, ms",
        "at most",
        "costs, %",
        "at most",
        "back, ms",
        "at most",
    ];
    let mut table =
        Table::new("A path with a fault beside one that is enough; medians of seeds", &columns);
    let (mut noticed, mut costs, mut dead, mut back) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    let silent = FAULT - Duration::from_millis(1);
    let lasting = params.edited(STAYS.name, GONE, silent);
    for (name, lasts) in [("falls silent", silent), ("dies and comes back", lasting)] {
        for &delay in params.amount(&DELAYS[..], &DELAYS[1..2]) {
            watch.go_on(&format!("{name}, {delay} ms"))?;
            let found = fault(params, delay, lasts, &seeds)?;
            let allowed = NOTICED.max(Duration::from_millis(4 * delay)).0 as f64 / 1e6;
            noticed = noticed.max(most(&found.noticed) / allowed);
            let cost = most(&found.cost);
            if name == "falls silent" {
                costs = costs.max(cost)
            } else {
                dead = dead.max(cost)
            }
            let returned = if lasts == GONE { most(&found.back) } else { f64::INFINITY };
            if name != "falls silent" {
                back = back.max(returned);
            }
            // No figure where the path does not come back.
            let cells = |all: &[f64], scale: f64, digits| {
                let [_, middle, most] = spread(all.iter().copied());
                [middle, most].map(|figure| match figure.is_nan() {
                    true => Cell::None,
                    false => Cell::rounded(figure * scale, digits),
                })
            };
            let figures = [
                cells(&found.noticed, 1.0, 0),
                cells(&found.cost, 100.0, 2),
                cells(&found.back, 1.0, 0),
            ];
            table.row(
                [Cell::from(name), Cell::Count(delay)]
                    .into_iter()
                    .chain(figures.into_iter().flatten()),
            );
        }
    }
    outcome.tables.push(table);
    let mut table = Table::new(
        "A metered path beside a free one; means of seeds",
        &[
            "free, % of the need",
            "metered, of what is lacking",
            "at most",
            "metered, of all",
            "decodable",
        ],
    );
    let (mut paid, mut unneeded) = (0.0_f64, 0.0_f64);
    for hundredths in [60, 80, 150] {
        watch.go_on(&format!("metered, {hundredths} %"))?;
        let (ratios, decodable) = metered(params, hundredths, &seeds)?;
        let is_lacking = hundredths < 100;
        let highest = most(&ratios);
        if is_lacking {
            paid = paid.max(highest)
        } else {
            unneeded = unneeded.max(highest)
        }
        let [of_lacking, of_all] = if is_lacking {
            [Cell::rounded(mean(&ratios), 3), Cell::None]
        } else {
            [Cell::None, Cell::rounded(mean(&ratios), 4)]
        };
        let highest = Cell::rounded(highest, 4);
        table.row([
            Cell::Count(hundredths),
            of_lacking,
            highest,
            of_all,
            Cell::rounded(mean(&decodable), 4),
        ]);
    }
    outcome.tables.push(table);
    claims(&mut outcome, [noticed, costs, dead, back, paid, unneeded]);
    Ok(outcome)
}

fn claims(outcome: &mut Outcome, [noticed, costs, dead, back, paid, unneeded]: [f64; 6]) {
    outcome.claim(
        "a silent path is noticed within 1.5 times the larger of 300 ms and two round trips",
        noticed <= NOTICED_TIMES,
        format!("{noticed:.2} times that at most"),
    );
    outcome.claim(
        "a path that falls silent costs under 1 % of the decodable frames of a minute",
        costs < COSTS,
        format!("{:.2} % at most", costs * 100.0),
    );
    outcome.claim(
        "a path that dies costs no frame that the other can bring in time",
        dead <= 0.0,
        format!("{:.2} % at most", dead * 100.0),
    );
    outcome.claim(
        "it carries packets again within 2 s after it came back",
        back <= BACK.0 as f64 / 1e6,
        format!("{back:.0} ms at most"),
    );
    outcome.claim(
        "a metered path carries at most 1.13 times what the free one lacks",
        paid <= METERED,
        format!("{paid:.3} times at most"),
    );
    outcome.claim(
        "a metered path carries under 1 % of all where the free one is enough",
        unneeded < COSTS,
        format!("{:.2} % at most", unneeded * 100.0),
    );
    outcome.note("The goals are 1.0 and 1.05. A silent path is noticed by what was sent on it: where the other path is enough, it is idle for a while. A free path is used to 96 %, which counts much where little is lacking.");
    outcome.note("The paths are simulated; the bond is the product's, and knows nothing of the paths beforehand but which is metered.");
}

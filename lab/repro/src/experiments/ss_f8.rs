//! `ss-f8`: bandwidth of four streams that share a link 1:1:2:4.

use selvedge_data_sched::replay::Arrivals;

use super::four_queues::{
    BY_PERIODS, BY_WINDOWS, EIGHTHS, EQUAL, MEGABYTES, RATE, SHARES, Sharing, promised, sent,
};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ss-f8",
    title: "Fair bandwidth of four streams, 1:1:2:4",
    paper: super::SS,
    section: "Figure 8, section 5.1",
    kind: Kind::Virtual,
    claim: "shares within 1 % over any window of 1000 frames",
    edits: &[EQUAL],
    run,
};

/// Frames in a window.
const WINDOW: usize = 1000;
/// Frames of the fastest stream, as in the paper; then its queue is empty.
const FRAMES: u64 = 64_000;
const WAYS: [Sharing; 2] = [BY_PERIODS, BY_WINDOWS];

/// How the link was shared.
struct Shared {
    counts: [u64; 4],
    /// The largest deviation of a stream's share in any window, as a part of its due.
    worst: f64,
    /// Megabytes a second of each stream in each window, side by side.
    lines: [Vec<(f64, f64)>; 4],
}

fn share(sharing: Sharing, shares: [u64; 4], slots: u64) -> Shared {
    let trace = sharing.trace(shares, false, slots, Arrivals::Backlogged);
    let order: Vec<usize> = sent(&trace).map(|(_, stream, _)| stream).collect();
    let due = SHARES.map(|share| share as f64 / EIGHTHS as f64 * WINDOW as f64);
    let mut shared = Shared { counts: [0; 4], worst: 0.0, lines: Default::default() };
    let mut within = [0_u64; 4];
    for (n, &stream) in order.iter().enumerate() {
        shared.counts[stream] += 1;
        within[stream] += 1;
        if n >= WINDOW {
            within[order[n - WINDOW]] -= 1;
        }
        if n + 1 < WINDOW {
            continue;
        }
        for (count, due) in within.iter().zip(due) {
            shared.worst = shared.worst.max((*count as f64 / due - 1.0).abs());
        }
        if (n + 1) % WINDOW == 0 {
            let second = (n + 1) as f64 / RATE;
            for (line, &count) in shared.lines.iter_mut().zip(&within) {
                line.push((second, count as f64 * MEGABYTES * RATE / WINDOW as f64));
            }
        }
    }
    shared
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let slots = params.amount(2 * FRAMES, FRAMES / 4);
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Frames sent in {slots} slots, and shares of the link"),
        &["", "stream 1", "stream 2", "stream 3", "stream 4", "worst window, %"],
    );
    let paper = SHARES.map(Cell::Count);
    table.row([Cell::from("paper, ratio")].into_iter().chain(paper).chain([Cell::None]));
    for (n, way) in WAYS.into_iter().enumerate() {
        watch.go_on(way.name)?;
        let shared = share(way, promised(params), slots);
        let counts = shared.counts.map(Cell::Count);
        let worst = Cell::rounded(shared.worst * 100.0, 2);
        table.row([Cell::from(way.name)].into_iter().chain(counts).chain([worst]));
        outcome.claim(
            format!("{}: shares within 1 % in every window of {WINDOW} frames", way.name),
            shared.worst <= 0.01,
            format!("off by at most {:.2} %", shared.worst * 100.0),
        );
        if n == 0 {
            outcome.plots.push(Plot {
                title: format!("Bandwidth of four streams, 1:1:2:4 ({})", way.name),
                x: Axis::linear("seconds of virtual time"),
                y: Axis::linear("MB/s"),
                series: shared
                    .lines
                    .into_iter()
                    .zip(1..)
                    .map(|(points, n)| Series {
                        name: format!("stream {n}"),
                        points,
                        marked: false,
                        broad: n == 1,
                    })
                    .collect(),
            });
        }
    }
    outcome.tables.push(table);
    outcome.note("A link of 16,000 frames of 1000 bytes a second; every queue always has a frame.");
    Ok(outcome)
}

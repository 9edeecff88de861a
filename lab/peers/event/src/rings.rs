//! One event from process to process on one host: our rings beside the kernel's bare calls and iceoryx2.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Command;

use selvedge_lab_measure::local::{BATCH, EVENT, BenchPath, measure as run};
use serde_json::json;

use crate::table::{cell, table};
use crate::{Failure, Measurement, iceoryx, median};

/// Events, or batches, of a round.
const EVENTS: usize = 300;
/// Events of a flood.
const FLOOD: usize = 500_000;

/// What stands in one row: its name, ours, the bare call below, iceoryx2's way.
struct Row {
    name: &'static str,
    ours: BenchPath,
    bare: Option<BenchPath>,
    iceoryx: iceoryx::RingPath,
}

const ROWS: [Row; 7] = [
    Row {
        name: "watched",
        ours: BenchPath::RingWatched,
        bare: Some(BenchPath::BareWatched),
        iceoryx: iceoryx::RingPath::Watched,
    },
    Row {
        name: "futex",
        ours: BenchPath::RingFutex,
        bare: Some(BenchPath::BareFutex),
        iceoryx: iceoryx::RingPath::Woken,
    },
    Row {
        name: "eventfd",
        ours: BenchPath::RingEvent,
        bare: Some(BenchPath::BareEvent),
        iceoryx: iceoryx::RingPath::Woken,
    },
    Row {
        name: "64 at once, watched",
        ours: BenchPath::RingBatchWatched,
        bare: None,
        iceoryx: iceoryx::RingPath::BatchWatched,
    },
    Row {
        name: "64 at once, futex",
        ours: BenchPath::RingBatch,
        bare: Some(BenchPath::BareFutex),
        iceoryx: iceoryx::RingPath::BatchWoken,
    },
    Row {
        name: "64 after 64, futex",
        ours: BenchPath::RingBatches,
        bare: None,
        iceoryx: iceoryx::RingPath::Batches,
    },
    Row { name: "flood, watched", ours: BenchPath::RingFlood, bare: None, iceoryx: iceoryx::RingPath::Flood },
];

/// A directory for the members to meet in.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self, Failure> {
        let name = format!("selvedge-event-bench-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|source| Failure::Files { doing: "make a directory", source })?;
        Ok(Self(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures for about so many seconds.
pub(crate) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    // A round takes about half a second.
    let rounds = (seconds as usize * 2).clamp(5, 101) | 1;
    let place = Place::new()?;
    let program = std::env::current_exe();
    let program =
        program.map_err(|source| Failure::Files { doing: "find this program", source })?;
    let start = |spec: &str| {
        let mut command = Command::new(&program);
        command.args(["--peer", spec]);
        command
    };
    let mut near = iceoryx::Near::start(&program)?;
    let mut theirs: [Vec<f64>; iceoryx::RingPath::ALL.len()] = Default::default();
    let mut failed = None;
    let found = run(&place.0, &start, &BenchPath::ALL, (rounds, EVENTS, FLOOD), &mut |_| {
        for (way, found) in iceoryx::RingPath::ALL.into_iter().zip(&mut theirs) {
            let count = if way.is_flood() { FLOOD } else { EVENTS };
            match near.measure(way, count as u64) {
                _ if failed.is_some() => {}
                Ok(ns) => found.push(ns),
                Err(error) => failed = Some(error),
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let ours = |way: BenchPath| found.iter().find(|one| one.path == way);
    let nanos = |way: BenchPath| {
        ours(way).and_then(|one| one.event_ns.or_else(|| one.median_us.map(|us| us * 1e3)))
    };
    let (mut rows, mut list) = (Vec::new(), Vec::new());
    for row in &ROWS {
        let place = iceoryx::RingPath::ALL.iter().position(|way| *way == row.iceoryx).unwrap_or(0);
        let batch = match row.iceoryx {
            iceoryx::RingPath::BatchWatched | iceoryx::RingPath::BatchWoken => BATCH as f64,
            _ => 1.0,
        };
        let iceoryx = median(theirs[place].clone()) / batch;
        let ours_ns = nanos(row.ours);
        let bare = row.bare.and_then(nanos).map(|ns| ns / batch);
        let over_bare = row.bare.and_then(|_| ours(row.ours)?.over_floor);
        let beside = ours_ns.map(|ns| ns / iceoryx);
        let rate = |ns: Option<f64>| ns.filter(|_| row.ours.is_flood()).map(|ns| 1e3 / ns);
        rows.push(vec![
            row.name.to_owned(),
            cell(ours_ns, 0),
            cell(bare, 0),
            cell(over_bare, 2),
            cell(Some(iceoryx), 0),
            cell(beside, 2),
            cell(rate(ours_ns), 1),
            cell(rate(Some(iceoryx)), 1),
        ]);
        list.push(json!({
            "way": row.name,
            "ours_ns": ours_ns,
            "bare_ns": bare,
            "over_bare": over_bare,
            "iceoryx2_ns": iceoryx,
            "of_iceoryx2": beside,
            "million_per_second": rate(ours_ns),
            "iceoryx2_million_per_second": rate(Some(iceoryx)),
        }));
    }
    let titles = [
        "events one way",
        "ring ns",
        "bare ns",
        "of bare",
        "iceoryx2 ns",
        "of iceoryx2",
        "ring M/s",
        "iceoryx2 M/s",
    ];
    let text = format!(
        "Events of {EVENT} bytes from one process to another on another core, nanoseconds an event, \
         medians of\n{rounds} rounds of {EVENTS}, all in turn. The receiver watches, or sleeps in the call \
         that is named (iceoryx2: in its\nlistener). 64 at once: from before the first is written to when \
         the last was read, a 64th of it (and of the bare\ncall). 64 after 64: without a pause, the receiver \
         sleeps when it has all; flood: it watches. Of these {FLOOD} nothing is\nlost.\n{}\
         A channel beside bare Zenoh: selvedge-lab bench channels\n",
        table(&titles, &rows)
    );
    Ok(Measurement { json: json!({ "rounds": rounds, "ways": list }), text })
}

//! `bench events`: one event from process to process over a ring, beside the kernel's bare calls; batches,
//! and as many as go through.

use std::path::PathBuf;
use std::process::Command;

use selvedge_local::bench::{BATCH, EVENT, Way, measure as run, peer as far};
use serde_json::json;

use super::{Measurement, tenths};
use crate::cli::Failure;
use crate::table::{Align, Table};

/// The other process.
pub(super) fn peer(spec: &str) -> Result<(), Failure> {
    far(spec).map_err(Failure::failed)
}

/// A directory for the members to meet in.
struct Place(PathBuf);

impl Place {
    fn new() -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("selvedge-bench-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    // A round takes about a third of a second.
    let rounds = (seconds.saturating_mul(3) as usize).clamp(5, 101) | 1;
    let place = Place::new().map_err(Failure::failed)?;
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let start = |spec: &str| {
        let mut command = Command::new(&program);
        command.args(["bench", "events", "--peer", spec]);
        command
    };
    let amounts = (rounds, 300, 500_000);
    let found = run(&place.0, &start, &Way::ALL, amounts, &mut |_| {}).map_err(Failure::failed)?;
    let mut table = Table::new(&[
        ("way", Align::Left),
        ("median us", Align::Right),
        ("p99 us", Align::Right),
        ("longest us", Align::Right),
        ("of bare", Align::Right),
        ("ns an event", Align::Right),
        ("million/s", Align::Right),
    ]);
    let cell = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |f| format!("{f:.2}"));
    let mut list = Vec::new();
    for one in &found {
        let rate = one.event_ns.map(|ns| 1e3 / ns);
        table.row([
            one.way.name().to_owned(),
            cell(one.median_us),
            cell(one.p99_us),
            cell(one.max_us),
            cell(one.over_floor),
            cell(one.event_ns),
            cell(rate),
        ]);
        list.push(json!({
            "way": one.way.name(),
            "median_us": one.median_us,
            "p99_us": one.p99_us,
            "longest_us": one.max_us,
            "over_bare": one.over_floor,
            "event_ns": one.event_ns.map(tenths),
            "events_per_second": rate.map(|rate| (rate * 1e6).round()),
        }));
    }
    let text = format!(
        "Events of {EVENT} bytes from one process to another on another core, one way; {rounds} rounds of {} \
         each.\nBetween two events the receiver sleeps, or watches its ring. \"of bare\": beside the \
         bare call in the\nsame round, the median of the rounds. Batches are {BATCH} events and one \
         call.\n{table}",
        amounts.1
    );
    Ok(Measurement { name: "events", json: list.into(), text })
}

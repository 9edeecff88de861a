//! `bench events`: one event from process to process over a ring, beside the kernel's bare calls; batches,
//! and as many as go through; calls of a service; and events under load.

use std::path::PathBuf;
use std::process::Command;

use selvedge_cli_terminal::{Failure, Table};
use selvedge_lab_measure::call::{BenchError, calls, preference};
use selvedge_lab_measure::local::{BATCH, BenchPath, EVENT, measure as run, peer as far};
use serde_json::{Value, json};

use super::{Measurement, tenths};

/// The other process.
pub(super) fn peer(spec: &str) -> Result<(), Failure> {
    if selvedge_lab_measure::call::is_ours(spec) {
        return selvedge_lab_measure::call::peer(spec).map_err(Failure::failed);
    }
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
    let found =
        run(&place.0, &start, &BenchPath::ALL, amounts, &mut |_| {}).map_err(Failure::failed)?;
    let mut table = Table::default().left(["way"]).right([
        "median us",
        "p99 us",
        "longest us",
        "of bare",
        "ns an event",
        "million/s",
    ]);
    let cell = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |f| format!("{f:.2}"));
    let mut list = Vec::new();
    for one in &found {
        let rate = one.event_ns.map(|ns| 1e3 / ns);
        table.row([
            one.path.name().to_owned(),
            cell(one.median_us),
            cell(one.p99_us),
            cell(one.max_us),
            cell(one.over_floor),
            cell(one.event_ns),
            cell(rate),
        ]);
        list.push(json!({
            "way": one.path.name(),
            "median_us": one.median_us,
            "p99_us": one.p99_us,
            "longest_us": one.max_us,
            "over_bare": one.over_floor,
            "event_ns": one.event_ns.map(tenths),
            "events_per_second": rate.map(|rate| (rate * 1e6).round()),
        }));
    }
    let costs = calls(&place.0, &start, rounds).map_err(Failure::failed)?;
    let mut call_table = Table::default().left(["call of a service"]).right(["us"]);
    for (what, us) in [
        ("a bare system call (getppid)", costs.system_call_ns / 1e3),
        ("fast: nobody is woken", costs.fast_ns / 1e3),
        ("deferred: one of 64 that come together", costs.deferred_ns / 1e3),
        ("direct: the service is woken", costs.direct_us),
        ("generic: by name, there and back", costs.generic_us),
        ("a bare message by a socket, there and back", costs.socket_us),
    ] {
        call_table.row([what.to_owned(), format!("{us:.3}")]);
    }
    let most = seconds.saturating_mul(250).clamp(500, 5000) as usize;
    let (load_json, load_text) = deliveries_under_load(&place, &start, most)?;
    let text = format!(
        "Events of {EVENT} bytes from one process to another on another core, one way; {rounds} rounds \
         of {} each.\nBetween two events the receiver sleeps, or watches its ring. \"of bare\": beside \
         the bare call, which\nhas its turn with the ring, event by event; the median of the rounds. Batches are {BATCH} events and \
         one call.\n{table}\n{call_table}\n{load_text}",
        amounts.1
    );
    let json = json!({
        "ways": list,
        "calls": {
            "system_call_ns": tenths(costs.system_call_ns),
            "fast_ns": tenths(costs.fast_ns),
            "deferred_ns": tenths(costs.deferred_ns),
            "direct_us": tenths(costs.direct_us),
            "generic_us": tenths(costs.generic_us),
            "socket_us": tenths(costs.socket_us),
            "generic_over_socket": costs.generic_over_socket,
        },
        "under_load": load_json,
    });
    Ok(Measurement { name: "events", json, text })
}

/// Deliveries while two programs that never sleep want each processor; null where the system gives no
/// real-time priorities.
fn deliveries_under_load(
    place: &Place,
    start: &dyn Fn(&str) -> Command,
    events: usize,
) -> Result<(Value, String), Failure> {
    let found = match preference(&place.0, start, events) {
        Ok(found) => found,
        Err(BenchError::System(why)) => {
            return Ok((Value::Null, format!("Not measured under load: {why}\n")));
        }
        Err(error) => return Err(Failure::failed(error)),
    };
    let mut table = Table::default().left(["under load the subscriber is"]).right([
        "median us",
        "p99 us",
        "p99.9 us",
        "worst us",
    ]);
    let mut list = Vec::new();
    for one in &found {
        let name = if one.preferred { "preferred by the scheduler" } else { "an ordinary program" };
        let figures = [one.median_us, one.p99_us, one.p999_us, one.max_us];
        let [median, p99, p999, worst] = figures.map(|us| format!("{us:.1}"));
        table.row([name.to_owned(), median, p99, p999, worst]);
        list.push(json!({
            "preferred": one.preferred,
            "events": one.events,
            "median_us": one.median_us,
            "p99_us": one.p99_us,
            "p999_us": one.p999_us,
            "worst_us": one.max_us,
        }));
    }
    let text =
        format!("{events} events each, two programs that never sleep on each processor.\n{table}");
    Ok((list.into(), text))
}

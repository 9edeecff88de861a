//! `bench stack`: stacks on the loopback beside plain UDP and TCP, TLS and QUIC, in one run. `bench firm`: the
//! delays of a firm contract beside busy threads.

use std::time::Duration as StdDuration;

use selvedge_cli_terminal::{Failure, Table};
use selvedge_data_stack::contract::LATE_ONE_IN;
use selvedge_data_stack::load::Load;
use selvedge_lab_peers_stack::firm::{self, FirmError, FirmOutcome, FirmTrial};
use selvedge_lab_peers_stack::{Row, SIZES, rows};
use selvedge_units::Duration;
use serde_json::json;

use super::Measurement;

/// How often the whole table is measured; figures are medians.
const ROUNDS: usize = 5;
/// Measurements of one round that take so long each: transports by sizes.
const EACH: u64 = 34;

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let long = StdDuration::from_millis((seconds * 1000 / (ROUNDS as u64 * EACH)).clamp(50, 5000));
    let rows = rows(ROUNDS, long, |_| {}).map_err(Failure::failed)?;
    let mut table =
        Table::default().left([""]).right(["1 kB, MB/s", "64 kB, MB/s", "50th, us", "99th, us"]);
    for row in &rows {
        let rates = row.rates.map(|rate| format!("{:.1}", rate / 1e6));
        let trips = [row.trips.median, row.trips.p99].map(|trip| format!("{:.1}", micros(trip)));
        table.row([row.name.to_owned()].into_iter().chain(rates).chain(trips));
    }
    let mut text = format!(
        "Messages between two threads over the loopback, medians of {ROUNDS} rounds: bytes received, \
         and round trips of 1 kB.\n{table}"
    );
    for (row, peer) in ratios(&rows) {
        let [small, large] = ratio(row, peer);
        text +=
            &format!("{} to {}: {small:.2} at 1 kB, {large:.2} at 64 kB\n", row.name, peer.name);
    }
    if cfg!(not(feature = "peers")) {
        text +=
            "This program was built without the feature `peers`, so TLS and QUIC are left out.\n";
    }
    let one = |row: &Row| {
        json!({
            "transport": row.name,
            "stack": row.line,
            "bytes_per_second": { "1 kB": row.rates[0].round(), "64 kB": row.rates[1].round() },
            "round_trip_us": { "median": micros(row.trips.median), "p99": micros(row.trips.p99) },
        })
    };
    let compared = |(row, peer): (&Row, &Row)| {
        let [small, large] = ratio(row, peer);
        json!({ "of": row.name, "to": peer.name, "1 kB": small, "64 kB": large })
    };
    let json = json!({
        "rounds": ROUNDS,
        "message_bytes": SIZES.map(|size| size.0),
        "transports": rows.iter().map(one).collect::<Vec<_>>(),
        "ratios": ratios(&rows).into_iter().map(compared).collect::<Vec<_>>(),
    });
    Ok(Measurement { name: "stack", json, text })
}

/// The processor time of each element and each thread that reads.
const SHARE: Load = Load::percent(25);

pub(super) fn measure_firm(seconds: u64) -> Result<Measurement, Failure> {
    let hogs = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).max(2);
    let (lasts, every) = (Duration::from_secs(seconds), Duration::from_micros(100));
    let outcome = match firm::firm(FirmTrial { lasts, every, share: SHARE, hogs }) {
        Err(why @ FirmError::Unreserved(_)) => {
            let text = format!("Firm contracts are skipped: {why}.");
            let json = json!({ "skipped": why.to_string() });
            return Ok(Measurement { name: "firm", json, text });
        }
        outcome => outcome.map_err(Failure::failed)?,
    };
    let FirmOutcome { messages, every, delay, delays, late, late_here, refused, events } = outcome;
    let share = late as f64 / messages.max(1) as f64;
    let stated = 1.0 / LATE_ONE_IN as f64;
    let quantiles = [0.5, 0.99, 0.999].map(|part| delays.quantile(part));
    let [mean, worst] = [delays.mean(), delays.max()].map(Option::unwrap_or_default).map(micros);
    let [median, p99, p999] = quantiles.map(Option::unwrap_or_default).map(micros);
    let mut text = format!(
        "{messages} messages of {}, one each {every}, on a firm contract beside {hogs} busy threads; {SHARE} of \
         a processor for each of 4 threads.\nGranted from end to end: {:.1} us. Measured: {mean:.1} us on \
         average, 50th percentile {median:.1}, 99th {p99:.1}, 99.9th {p999:.1}, worst {worst:.1}.\nLate or \
         lost: {late}, {:.4} %; stated: at most {:.4} %. Late on the sender's host {}, on the receiver's \
         {}.\nWith less than both hosts take: {refused}\n",
        firm::SIZE,
        micros(delay),
        share * 100.0,
        stated * 100.0,
        late_here[0],
        late_here[1],
    );
    events.iter().for_each(|event| text += &format!("Event: {event}\n"));
    let json = json!({
        "messages": messages, "every_us": micros(every), "hogs": hogs, "granted_us": micros(delay),
        "measured_us": { "mean": mean, "median": median, "p99": p99, "p999": p999, "worst": worst },
        "late": late, "late_share": share, "stated_share": stated, "late_on_hosts": late_here,
        "refused": refused, "events": events,
    });
    Ok(Measurement { name: "firm", json, text })
}

fn micros(span: Duration) -> f64 {
    span.0 as f64 / 1e3
}

fn ratio(row: &Row, peer: &Row) -> [f64; 2] {
    [0, 1].map(|n| row.rates[n] / peer.rates[n].max(1.0))
}

/// What the stacks are to reach: a row and the one that it is compared with.
fn ratios(rows: &[Row]) -> Vec<(&Row, &Row)> {
    let find = |name: &str| rows.iter().find(|row| row.name == name);
    let pairs = [
        ("unreliable", "plain UDP"),
        ("unreliable, posted buffers", "plain UDP"),
        ("unreliable", "plain UDP, in batches"),
        ("unreliable, shared memory", "plain UDP"),
        ("reliable", "plain TCP"),
        ("reliable, encrypted by master and slave", "reliable, encrypted"),
        ("unreliable, sealed", "unreliable, encrypted"),
        ("reliable, sealed", "reliable, encrypted"),
        ("reliable, sealed, datagrams of 1400 B", "reliable, encrypted, datagrams of 1400 B"),
        ("reliable, encrypted", "TCP and TLS (rustls)"),
        ("reliable, encrypted", "QUIC (quinn), largest datagrams"),
        ("reliable, encrypted, datagrams of 1400 B", "QUIC (quinn)"),
    ];
    pairs.into_iter().filter_map(|(row, peer)| find(row).zip(find(peer))).collect()
}

//! What came of a run, as tables and as JSON.

use std::fmt::Write;

use selvedge_cli_terminal::Table;
use selvedge_control_config::network::NetworkConfig;
use selvedge_data_net_line::Drop;
use selvedge_data_stream::Histogram;
use selvedge_sim::media::FrameCounts;
use selvedge_sim::{Flow, HopResult};
use selvedge_units::{Bitrate, Duration, Instant};
use serde_json::{Value, json};

use super::Outcome;

/// Shares are of the frames whose end is known.
pub(super) struct StreamRow<'a> {
    pub(super) name: &'a str,
    link: &'a str,
    frames: u64,
    sent: f64,
    delivered: f64,
    on_time: f64,
    pub(super) decodable: f64,
}

impl Outcome {
    /// A row for each stream.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamRow<'_>> {
        self.streams.iter().map(|stream| {
            let flow = &self.results.flows[stream.flow.0 as usize];
            let FrameCounts { sent, received } = flow.frames.clone().unwrap_or_default();
            let frames = sent.frames;
            let share = |part: u64| part as f64 / frames.max(1) as f64;
            StreamRow {
                name: &stream.name,
                link: &stream.link,
                frames,
                sent: share(sent.sent),
                delivered: share(received.on_time + received.late),
                on_time: share(received.on_time),
                decodable: share(received.decodable),
            }
        })
    }

    /// The flows that are no streams of frames and carry something, with their hosts.
    pub(super) fn others(&self) -> impl Iterator<Item = &Flow> {
        let flows = self.results.flows.iter();
        flows.filter(|flow| {
            flow.frames.is_none() && (flow.useful.is_none_or(|bytes| bytes.0 > 0) && flow.sent > 0)
        })
    }

    /// A flow's name and its direction; answers have the name of what they answer.
    pub(super) fn named(&self, flow: &Flow) -> String {
        format!("{}, {} to {}", flow.name, self.host(flow.from), self.host(flow.to))
    }

    fn host(&self, id: selvedge_sim::HostId) -> &str {
        &self.results.hosts[id.0 as usize]
    }
}

fn ms(span: Option<Duration>) -> f64 {
    span.map_or(0.0, Duration::as_millis_f64)
}

fn mbps(rate: Bitrate) -> f64 {
    rate.0 as f64 / 1e6
}

/// A hop's bytes as a rate over the run.
fn carried(hop: &HopResult, lasts: Duration) -> Bitrate {
    hop.counts.bytes / lasts
}

pub(super) fn json(network: &NetworkConfig, outcome: &Outcome) -> Value {
    let delays = |delays: &Histogram| json!({ "median": ms(delays.quantile(0.5)), "p99": ms(delays.quantile(0.99)) });
    let lasts = outcome.results.until.since(Instant::ZERO);
    let streams = outcome.streams().zip(&outcome.streams).map(|(row, stream)| {
        let flow = &outcome.results.flows[stream.flow.0 as usize];
        json!({
            "name": row.name, "link": row.link, "frames": row.frames, "sent": row.sent,
            "delivered": row.delivered, "on_time": row.on_time, "decodable": row.decodable,
            "packets": flow.sent, "lost_packets": flow.lost, "packet_delay_ms": delays(&flow.delays),
        })
    });
    let others = outcome.others().map(|flow| {
        json!({
            "name": flow.name, "from": outcome.host(flow.from), "to": outcome.host(flow.to),
            "goodput_bps": flow.goodput().0, "packets": flow.sent, "lost_packets": flow.lost,
            "retransmissions": flow.retransmissions, "timeouts": flow.timeouts,
            "packet_delay_ms": delays(&flow.delays),
            "answer_ms": flow.answers.mean().map(|_| delays(&flow.answers)),
        })
    });
    let hops = outcome.results.hops.iter().map(|hop| {
        let dropped: serde_json::Map<_, _> =
            Drop::ALL.map(|why| (why.name().to_owned(), json!(hop.counts.dropped(why)))).into_iter().collect();
        json!({
            "link": hop.link, "from": outcome.host(hop.from), "to": outcome.host(hop.to),
            "packets": hop.counts.packets, "bytes": hop.counts.bytes.0, "offered_bps": carried(hop, lasts).0,
            "arrived": hop.counts.arrived, "corrupted": hop.counts.corrupted, "duplicated": hop.counts.duplicated,
            "dropped": dropped, "queue_ms": delays(&hop.queueing),
        })
    });
    json!({
        "network": network.name, "seed": outcome.seed, "seconds": lasts.as_secs_f64(),
        "events": outcome.results.events, "streams": streams.collect::<Vec<_>>(),
        "traffic": others.collect::<Vec<_>>(), "hops": hops.collect::<Vec<_>>(),
    })
}

pub(super) fn text(network: &NetworkConfig, outcome: &Outcome) -> String {
    let lasts = outcome.results.until.since(Instant::ZERO);
    let about =
        if network.about.is_empty() { String::new() } else { format!(" ({})", network.about) };
    let mut text = format!(
        "Simulated: {}{about}, {:.0} s under seed {}; its numbers: {}.\n",
        network.name,
        lasts.as_secs_f64(),
        outcome.seed,
        network.source
    );
    for table in [streams(outcome), others(outcome), hops(outcome, lasts)].into_iter().flatten() {
        let _ = write!(text, "\n{table}");
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn quantiles(delays: &Histogram) -> [String; 2] {
    [0.5, 0.99].map(|q| format!("{:.1} ms", ms(delays.quantile(q))))
}

fn streams(outcome: &Outcome) -> Option<Table> {
    let mut table = Table::default().left(["stream", "link"]).right([
        "frames",
        "sent",
        "delivered",
        "on time",
        "decodable",
        "packets lost",
        "delay median",
        "p99",
    ]);
    for (row, stream) in outcome.streams().zip(&outcome.streams) {
        let flow = &outcome.results.flows[stream.flow.0 as usize];
        let shares = [row.sent, row.delivered, row.on_time, row.decodable].map(percent);
        let names = [row.name.to_owned(), row.link.to_owned(), row.frames.to_string()];
        let rest = [flow.lost.to_string()].into_iter().chain(quantiles(&flow.delays));
        table.row(names.into_iter().chain(shares).chain(rest));
    }
    (!outcome.streams.is_empty()).then_some(table)
}

fn others(outcome: &Outcome) -> Option<Table> {
    let mut table = Table::default().left(["traffic", "from", "to"]).right([
        "Mbit/s",
        "packets",
        "lost",
        "sent again",
        "timeouts",
        "delay median",
        "p99",
        "answers median",
    ]);
    let mut some = false;
    for flow in outcome.others() {
        some = true;
        let names = [&flow.name, outcome.host(flow.from), outcome.host(flow.to)].map(str::to_owned);
        let counts = [flow.sent, flow.lost, flow.retransmissions, flow.timeouts]
            .map(|count| count.to_string());
        let answers = flow.answers.mean().map(|_| quantiles(&flow.answers)[0].clone());
        let rate = format!("{:.2}", mbps(flow.goodput()));
        let rest = quantiles(&flow.delays).into_iter().chain(answers);
        table.row(names.into_iter().chain([rate]).chain(counts).chain(rest));
    }
    some.then_some(table)
}

fn hops(outcome: &Outcome, lasts: Duration) -> Option<Table> {
    let mut table = Table::default()
        .left(["link", "from", "to"])
        .right(["Mbit/s", "packets", "arrived"])
        .right(Drop::NAMES)
        .right(["queue median", "p99"]);
    for hop in &outcome.results.hops {
        let names = [&hop.link, outcome.host(hop.from), outcome.host(hop.to)].map(str::to_owned);
        let rate = format!("{:.2}", mbps(carried(hop, lasts)));
        let counts = [hop.counts.packets, hop.counts.arrived].map(|count| count.to_string());
        let drops = Drop::ALL.map(|why| hop.counts.dropped(why).to_string());
        let rest = counts.into_iter().chain(drops).chain(quantiles(&hop.queueing));
        table.row(names.into_iter().chain([rate]).chain(rest));
    }
    Some(table)
}

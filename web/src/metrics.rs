//! A snapshot in the Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write};

use selvedge_control_config::view::{
    LinkSnapshot, NodeSnapshot, QUEUEING_BOUNDS, StreamSnapshot, StreamState,
};
use selvedge_data_stream::{DropReason, Kind};

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All families of a node. Linear in its streams.
pub(crate) fn render(node: &NodeSnapshot) -> String {
    let mut page = Page::default();
    page.family("selvedge_node_info", "gauge", "The node, by name and version; always 1.");
    page.sample(&[("node", &node.name), ("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("selvedge_node_uptime_seconds", "gauge", "Time since the node started.");
    page.sample(&[], seconds(node.uptime_ms));
    process(&mut page);
    for family in LINK_FAMILIES {
        page.family(family.name, family.kind, family.help);
        for link in &node.links {
            if let Some(value) = (family.value)(link) {
                page.sample(&[("link", &link.name)], value);
            }
        }
    }
    for family in STREAM_FAMILIES {
        page.family(family.name, family.kind, family.help);
        for stream in &node.streams {
            if let Some(value) = (family.value)(stream) {
                page.sample(&stream_labels(stream), value);
            }
        }
    }
    queueing(&mut page, &node.streams);
    dropped(&mut page, &node.streams);
    dropped_kinds(&mut page, &node.streams);
    states(&mut page, &node.streams);
    page.text
}

/// What the process takes of the machine, by the names that Prometheus' own clients use.
fn process(page: &mut Page) {
    // Linux counts a hundred of these ticks a second towards programs, whatever its own clock.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the program's name, which may hold anything; user and system time are fields 14 and 15.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let ticks: Option<Vec<f64>> = fields.skip(11).take(2).map(|n| n.parse().ok()).collect();
    if let Some([user, system]) = ticks.as_deref() {
        page.family("process_cpu_seconds_total", "counter", "Processor time of the process.");
        page.sample(&[], (user + system) / TICKS);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    if let Some(kb) = resident.and_then(|kb| kb.parse::<u64>().ok()) {
        page.family("process_resident_memory_bytes", "gauge", "Memory of the process.");
        page.sample(&[], kb * 1024);
    }
}

struct Family<T, V> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&T) -> V,
}

const fn counter<T, V>(name: &'static str, help: &'static str, value: fn(&T) -> V) -> Family<T, V> {
    Family { name, kind: "counter", help, value }
}

const fn gauge<T, V>(name: &'static str, help: &'static str, value: fn(&T) -> V) -> Family<T, V> {
    Family { name, kind: "gauge", help, value }
}

const LINK_FAMILIES: &[Family<LinkSnapshot, Option<f64>>] = &[
    gauge("selvedge_link_rate_bytes_per_second", "Configured rate.", |link| bytes(link.rate_bps)),
    gauge(
        "selvedge_link_sent_bytes_per_second",
        "Rate sent over the last second, headers included.",
        |link| bytes(link.sent_bps),
    ),
    gauge(
        "selvedge_link_offered_bytes_per_second",
        "Rate offered by the streams over the last second, headers included.",
        |link| bytes(link.offered_bps),
    ),
    gauge(
        "selvedge_link_rate_bits_per_second",
        "Deprecated: selvedge_link_rate_bytes_per_second in bits.",
        |link| count(link.rate_bps),
    ),
    gauge(
        "selvedge_link_sent_bits_per_second",
        "Deprecated: selvedge_link_sent_bytes_per_second in bits.",
        |link| count(link.sent_bps),
    ),
    gauge(
        "selvedge_link_offered_bits_per_second",
        "Deprecated: selvedge_link_offered_bytes_per_second in bits.",
        |link| count(link.offered_bps),
    ),
    counter("selvedge_link_sent_bytes_total", "Bytes sent.", |link| count(link.sent_bytes)),
    counter(
        "selvedge_link_could_send_bytes_total",
        "Bytes that the rate allowed while frames waited.",
        |link| count(link.could_send_bytes),
    ),
    counter(
        "selvedge_link_missed_departures_total",
        "Packets that the device's etf dropped, as it came to them after their departure time.",
        |link| count(link.missed_departures),
    ),
    gauge(
        "selvedge_link_used_ratio",
        "What was sent of what the rate allowed while frames waited, last seconds; absent if none waited.",
        |link| link.used_share,
    ),
    gauge(
        "selvedge_link_lateness_median_seconds",
        "How late the link's thread woke up, at the median of the last seconds; absent if not known.",
        |link| link.late_p50_ms.map(|ms| ms / 1e3),
    ),
    gauge(
        "selvedge_link_lateness_p99_seconds",
        "How late the link's thread woke up, 99th percentile of the last seconds.",
        |link| link.late_p99_ms.map(|ms| ms / 1e3),
    ),
    gauge("selvedge_link_queued_frames", "Frames waiting.", |link| count(link.queued_frames)),
    gauge("selvedge_link_queued_bytes", "Bytes waiting.", |link| count(link.queued_bytes)),
];

const STREAM_FAMILIES: &[Family<StreamSnapshot, Option<f64>>] = &[
    counter("selvedge_stream_frames_total", "Frames that came.", |s| count(s.frames)),
    counter("selvedge_stream_sent_total", "Frames sent whole.", |s| count(s.sent)),
    counter("selvedge_stream_on_time_total", "Frames sent whole by their deadline.", |s| {
        count(s.on_time)
    }),
    counter(
        "selvedge_stream_decodable_total",
        "Frames sent on time whose references all were too; with a stack, those of them that its receiver reported.",
        |s| count(s.decodable),
    ),
    counter(
        "selvedge_stream_received_total",
        "Frames that came whole, as the receiver reports them; absent without a stack.",
        |s| s.received.as_ref().and_then(|received| count(received.complete)),
    ),
    counter(
        "selvedge_stream_sent_decodable_total",
        "Frames that left on time and whose references did, received or not; absent without a stack.",
        |s| s.received.as_ref().and_then(|received| count(received.sent_decodable)),
    ),
    gauge(
        "selvedge_stream_receiver_silent_seconds",
        "For how long the receiver has reported nothing; absent while it reports, or without a stack.",
        |s| Some(s.received.as_ref()?.silent_ms? as f64 / 1e3),
    ),
    counter("selvedge_stream_missed_total", "Deadlines missed.", |s| count(s.missed)),
    counter("selvedge_stream_violations_total", "Window violations.", |s| count(s.violations)),
    counter("selvedge_stream_sent_bytes_total", "Bytes sent.", |s| count(s.sent_bytes)),
    counter("selvedge_stream_send_errors_total", "Packets that the system refused to send.", |s| {
        count(s.send_errors)
    }),
    gauge("selvedge_stream_sent_bytes_per_second", "Rate sent over the last second.", |s| {
        bytes(s.sent_bps)
    }),
    gauge(
        "selvedge_stream_sent_bits_per_second",
        "Deprecated: selvedge_stream_sent_bytes_per_second in bits.",
        |s| count(s.sent_bps),
    ),
    counter(
        "selvedge_stream_refused_packets_total",
        "Packets of an SRTP source that were not authentic.",
        |s| count(s.refused_packets),
    ),
    gauge("selvedge_stream_queued_frames", "Frames waiting.", |s| count(s.queued_frames)),
    gauge(
        "selvedge_stream_on_time_ratio",
        "Frames on time over the last ten seconds, 0 to 1; absent if none was settled.",
        |s| s.on_time_share,
    ),
    gauge(
        "selvedge_stream_decodable_ratio",
        "Frames decodable over the last ten seconds, 0 to 1; absent if none was settled.",
        |s| s.decodable_share,
    ),
    gauge(
        "selvedge_stream_queueing_mean_seconds",
        "Mean time from arrival to the last packet sent, over the last ten seconds.",
        |s| s.queueing_mean_ms.map(|ms| ms / 1e3),
    ),
    gauge(
        "selvedge_stream_queueing_p99_seconds",
        "99th percentile of the time from arrival to the last packet sent, last ten seconds.",
        |s| s.queueing_p99_ms.map(|ms| ms / 1e3),
    ),
    gauge("selvedge_stream_period_seconds", "Period of the frames.", |s| Some(s.period_ms / 1e3)),
    gauge("selvedge_stream_priority", "Priority.", |s| Some(f64::from(s.priority))),
];

/// How long sent frames had waited, as a histogram that can be added up over streams and nodes.
fn queueing(page: &mut Page, streams: &[StreamSnapshot]) {
    let help = "Time from arrival to the last packet sent, of frames sent since the start.";
    page.family("selvedge_stream_queueing_seconds", "histogram", help);
    for stream in streams {
        let Some(queueing) = stream.queueing else { continue };
        let [name, link] = stream_labels(stream);
        let mut sum = 0;
        page.name = "selvedge_stream_queueing_seconds_bucket";
        for (n, counted) in queueing.counts.into_iter().enumerate() {
            sum += counted;
            let bound = QUEUEING_BOUNDS.get(n);
            let bound =
                bound.map_or_else(|| "+Inf".into(), |bound| bound.as_secs_f64().to_string());
            page.sample(&[name, link, ("le", &bound)], sum);
        }
        page.name = "selvedge_stream_queueing_seconds_sum";
        page.sample(&[name, link], queueing.sum_ms / 1e3);
        page.name = "selvedge_stream_queueing_seconds_count";
        page.sample(&[name, link], sum);
    }
}

/// Every reason from the start, so that a rate over it has a first value to start from.
fn dropped(page: &mut Page, streams: &[StreamSnapshot]) {
    page.family("selvedge_stream_dropped_total", "counter", "Frames dropped, by reason.");
    for stream in streams {
        let known = DropReason::ALL.map(DropReason::name);
        let others = stream.dropped.keys().map(String::as_str).filter(|name| !known.contains(name));
        for reason in known.into_iter().chain(others) {
            let [name, link] = stream_labels(stream);
            let value = stream.dropped.get(reason).copied().unwrap_or(0);
            page.sample(&[name, link, ("reason", reason)], value);
        }
    }
}

/// Every kind from the start, likewise.
fn dropped_kinds(page: &mut Page, streams: &[StreamSnapshot]) {
    let help = "Frames dropped by the link, by kind.";
    page.family("selvedge_stream_dropped_by_kind_total", "counter", help);
    for stream in streams {
        for (kind, counted) in Kind::NAMES.into_iter().zip(stream.dropped_kinds.iter().flatten()) {
            let [name, link] = stream_labels(stream);
            page.sample(&[name, link, ("kind", kind)], counted);
        }
    }
}

fn states(page: &mut Page, streams: &[StreamSnapshot]) {
    const STATES: [(StreamState, &str); 6] = [
        (StreamState::Starting, "starting"),
        (StreamState::Running, "running"),
        (StreamState::Stalled, "stalled"),
        (StreamState::Retrying, "retrying"),
        (StreamState::Ended, "ended"),
        (StreamState::Failed, "failed"),
    ];
    page.family("selvedge_stream_state", "gauge", "1 for the state the source is in, else 0.");
    for stream in streams {
        for (state, word) in STATES {
            let [name, link] = stream_labels(stream);
            page.sample(&[name, link, ("state", word)], u8::from(stream.state == state));
        }
    }
}

fn stream_labels(stream: &StreamSnapshot) -> [(&'static str, &str); 2] {
    [("stream", &stream.name), ("link", &stream.link)]
}

/// Samples are floats in this format: exact up to 2^53.
fn count(n: u64) -> Option<f64> {
    Some(n as f64)
}

/// Prometheus counts in bytes.
fn bytes(bps: u64) -> Option<f64> {
    Some(bps as f64 / 8.0)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let open = if n == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{label}=\"");
            escape(&mut self.text, text);
            self.text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }
}

fn escape(page: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => page.push_str("\\\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str("\\n"),
            c => page.push(c),
        }
    }
}

//! A snapshot in the Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write};

use selvedge_control_config::view::{
    LinkSnapshot, NodeSnapshot, PathSnapshot, QUEUEING_BOUNDS, SetSnapshot, StepSnapshot,
    StreamSnapshot, StreamState,
};
use selvedge_data_stream::{DropReason, Kind};

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The family with a bucket for each bound.
const QUEUEING: &str = "selvedge_stream_queueing_seconds";

/// All families of a node. Linear in its streams.
pub(crate) fn render(node: &NodeSnapshot) -> String {
    let mut page = Page::default();
    page.family("selvedge_node_info", "The node, by name and version; always 1.");
    page.sample(&[("node", &node.name), ("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("selvedge_node_uptime_seconds", "Time since the node started.");
    page.sample(&[], node.uptime_ms as f64 / 1e3);
    process(&mut page);
    let links = node.links.iter().map(|link| ([("link", &*link.name)], link));
    page.table("selvedge_link_", LINK_FAMILIES, links);
    let paths = node.links.iter().flat_map(|link| {
        link.paths.iter().map(|path| ([("link", &*link.name), ("path", &path.name)], path))
    });
    page.table("selvedge_path_", PATH_FAMILIES, paths);
    let steps = node.links.iter().flat_map(|link| {
        let labels = |step| step_labels(&link.name, step);
        link.steps.iter().map(move |step| (labels(step), step))
    });
    page.table("selvedge_step_", STEP_FAMILIES, steps);
    let streams = node.streams.iter().map(|stream| (stream_labels(stream), stream));
    page.table("selvedge_stream_", STREAM_FAMILIES, streams);
    let sets = node.streams.iter().flat_map(|stream| {
        let [name, link] = stream_labels(stream);
        stream.sets.iter().map(move |set| ([name, link, ("set", &*set.name)], set))
    });
    page.table("selvedge_set_", SET_FAMILIES, sets);
    queueing(&mut page, &node.streams);
    parts(&mut page, &node.streams);
    page.text
}

/// The process's use of the machine, by the names that Prometheus' own clients use.
fn process(page: &mut Page) {
    // Linux reports a hundred of these ticks a second to programs, whatever its own clock.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields follow the program's name, which may hold anything; user and system time are fields 14
    // and 15.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let ticks: Option<Vec<f64>> = fields.skip(11).take(2).map(|n| n.parse().ok()).collect();
    if let Some([user, system]) = ticks.as_deref() {
        page.family("process_cpu_seconds_total", "Processor time of the process.");
        page.sample(&[], (user + system) / TICKS);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    if let Some(kb) = resident.and_then(|kb| kb.parse::<u64>().ok()) {
        page.family("process_resident_memory_bytes", "Memory of the process.");
        page.sample(&[], kb * 1024);
    }
}

/// A metric of links, paths or streams: the suffix of its name, its help text, and its value, absent where it
/// is not known.
type Family<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

#[rustfmt::skip]
const LINK_FAMILIES: &[Family<LinkSnapshot>] = &[
    ("rate_bytes_per_second", "Configured rate.", |l| bytes(l.rate_bps)),
    ("sent_bytes_per_second", "Rate sent over the last second, headers included.", |l| bytes(l.sent_bps)),
    ("offered_bytes_per_second", "Rate offered by the streams over the last second, headers included.",
        |l| bytes(l.offered_bps)),
    ("sent_bytes_total", "Bytes sent.", |l| count(l.sent_bytes)),
    ("could_send_bytes_total", "Bytes that the rate allowed while frames waited.", |l| count(l.could_send_bytes)),
    ("missed_departures_total", "Packets that the device's etf dropped, as it came to them after their departure time.",
        |l| count(l.missed_departures)),
    ("used_ratio", "What was sent of what the rate allowed while frames waited, last seconds; absent if none waited.",
        |l| l.used_share),
    ("lateness_median_seconds",
        "How late the link's thread woke up, at the median of the last seconds; absent if not known.",
        |l| seconds(l.late_p50_ms)),
    ("lateness_p99_seconds", "How late the link's thread woke up, 99th percentile of the last seconds.",
        |l| seconds(l.late_p99_ms)),
    ("queued_frames", "Frames waiting.", |l| count(l.queued_frames)),
    ("queued_bytes", "Bytes waiting.", |l| count(l.queued_bytes)),
];

#[rustfmt::skip]
const PATH_FAMILIES: &[Family<PathSnapshot>] = &[
    ("active", "1 while the path carries packets, 0 while it gets probes only.", |p| Some(f64::from(u8::from(p.active)))),
    ("rate_bytes_per_second", "Measured rate.", |p| bytes(p.rate_bps)),
    ("sent_bytes_per_second", "Rate sent over the last quarter of a second, repairs and probes included.",
        |p| bytes(p.sent_bps)),
    ("sent_bytes_total", "Bytes sent, repairs and probes included.", |p| count(p.sent_bytes)),
    ("round_trip_seconds", "From a packet to its report.", |p| seconds(Some(p.round_trip_ms))),
    ("queueing_seconds", "How long packets wait in the path's queues.", |p| seconds(Some(p.queueing_ms))),
    ("loss_ratio", "The share of its packets that is lost, 0 to 1.", |p| Some(p.loss)),
];

#[rustfmt::skip]
const SET_FAMILIES: &[Family<SetSnapshot>] = &[
    ("weight", "The share of the set beside the other sets of its stream.", |s| Some(s.weight.into())),
    ("streamlets", "Streamlets of the set.", |s| Some(s.streamlets.into())),
    ("bound_seconds", "For how long a frame waits at most whose streamlet has none, one turn of the stream each period.",
        |s| seconds(Some(s.bound_ms))),
    ("sent_total", "Frames sent.", |s| count(s.counts.sent)),
    ("sent_bytes_total", "Bytes sent, headers included.", |s| count(s.counts.sent_bytes)),
    ("dropped_total", "Frames dropped for lack of room, or because they waited for too long.", |s| count(s.counts.dropped)),
    ("waiting_frames", "Frames waiting.", |s| count(s.counts.waiting)),
    ("delay_seconds_total", "From arrival to the last packet sent, over all frames sent.",
        |s| seconds(Some(s.counts.delay_mean_ms.unwrap_or(0.0) * s.counts.sent as f64))),
    ("delay_max_seconds", "The longest of these times; absent before the first frame.", |s| seconds(s.counts.delay_max_ms)),
];

#[rustfmt::skip]
const STEP_FAMILIES: &[Family<StepSnapshot>] = &[
    ("calls_total", "Calls of the step.", |s| count(s.calls)),
    ("discarded_total", "Frames that the step discarded.", |s| count(s.discarded)),
    ("faults_total", "Calls that a fault ended, or that used up their fuel.", |s| count(s.faults)),
    ("mean_seconds", "Mean time of a call.", |s| Some(s.mean_ns as f64 / 1e9)),
    ("longest_seconds", "Time of the longest call.", |s| Some(s.longest_ns as f64 / 1e9)),
];

#[rustfmt::skip]
const STREAM_FAMILIES: &[Family<StreamSnapshot>] = &[
    ("frames_total", "Frames that came.", |s| count(s.frames)),
    ("sent_total", "Frames sent whole.", |s| count(s.sent)),
    ("on_time_total", "Frames sent whole by their deadline.", |s| count(s.on_time)),
    ("decodable_total",
        "Frames sent on time whose references all were too; with a stack, those of them that its receiver reported.",
        |s| count(s.decodable)),
    ("received_total", "Frames that came whole, as the receiver reports them; absent without a stack.",
        |s| s.received.as_ref().and_then(|received| count(received.complete))),
    ("sent_decodable_total",
        "Frames that left on time and whose references did, received or not; absent without a stack.",
        |s| s.received.as_ref().and_then(|received| count(received.sent_decodable))),
    ("receiver_silent_seconds", "For how long the receiver has reported nothing; absent while it reports, or without a stack.",
        |s| seconds(s.received.as_ref()?.silent_ms.map(|ms| ms as f64))),
    ("missed_total", "Deadlines missed.", |s| count(s.missed)),
    ("violations_total", "Window violations.", |s| count(s.violations)),
    ("sent_bytes_total", "Bytes sent.", |s| count(s.sent_bytes)),
    ("dropped_bytes_total", "Bytes of dropped frames that were not sent.", |s| count(s.dropped_bytes)),
    ("spared_cpu_seconds", "Estimate of the processor time that sending them would have taken; absent if not known.",
        |s| seconds(s.spared_ms)),
    ("send_errors_total", "Packets that the system refused to send.", |s| count(s.send_errors)),
    ("sent_bytes_per_second", "Rate sent over the last second.", |s| bytes(s.sent_bps)),
    ("refused_packets_total", "Packets of an SRTP source that were not authentic.", |s| count(s.refused_packets)),
    ("queued_frames", "Frames waiting.", |s| count(s.queued_frames)),
    ("on_time_ratio", "Frames on time over the last ten seconds, 0 to 1; absent if none was settled.",
        |s| s.on_time_share),
    ("decodable_ratio", "Frames decodable over the last ten seconds, 0 to 1; absent if none was settled.",
        |s| s.decodable_share),
    ("queueing_mean_seconds", "Mean time from arrival to the last packet sent, over the last ten seconds.",
        |s| seconds(s.queueing_mean_ms)),
    ("queueing_p99_seconds", "99th percentile of the time from arrival to the last packet sent, last ten seconds.",
        |s| seconds(s.queueing_p99_ms)),
    ("period_seconds", "Period of the frames.", |s| seconds(Some(s.period_ms))),
    ("priority", "Priority.", |s| Some(f64::from(s.priority))),
];

/// How long sent frames had waited, as a histogram that can be added up over streams and nodes.
fn queueing(page: &mut Page, streams: &[StreamSnapshot]) {
    let help = "Time from arrival to the last packet sent, of frames sent since the start.";
    page.family(QUEUEING, help);
    for stream in streams {
        let Some(queueing) = stream.queueing else { continue };
        let [name, link] = stream_labels(stream);
        let mut sum = 0;
        page.name = format!("{QUEUEING}_bucket");
        for (n, counted) in queueing.counts.into_iter().enumerate() {
            sum += counted;
            let bound = QUEUEING_BOUNDS.get(n);
            let bound =
                bound.map_or_else(|| "+Inf".into(), |bound| bound.as_secs_f64().to_string());
            page.sample(&[name, link, ("le", &bound)], sum);
        }
        page.name = format!("{QUEUEING}_sum");
        page.sample(&[name, link], queueing.sum_ms / 1e3);
        page.name = format!("{QUEUEING}_count");
        page.sample(&[name, link], sum);
    }
}

/// The counters of each stream that have parts; all parts are present from the start, so that a rate
/// over one has a first value.
fn parts(page: &mut Page, streams: &[StreamSnapshot]) {
    let help = "Frames dropped, by reason.";
    page.parts(("selvedge_stream_dropped_total", help, "reason"), streams, |stream| {
        let known = DropReason::ALL.map(DropReason::name);
        let others = stream.dropped.keys().map(String::as_str).filter(|name| !known.contains(name));
        let count = |reason| (reason, stream.dropped.get(reason).copied().unwrap_or(0));
        known.into_iter().chain(others).map(count).collect()
    });
    let help = "Frames dropped by the link, by kind.";
    page.parts(("selvedge_stream_dropped_by_kind_total", help, "kind"), streams, |stream| {
        let counts = stream.dropped_kinds.iter().flatten().copied();
        Kind::NAMES.into_iter().zip(counts).collect()
    });
    let help = "1 for the state the source is in, else 0.";
    page.parts(("selvedge_stream_state", help, "state"), streams, |stream| {
        StreamState::ALL.map(|state| (state.name(), u64::from(stream.state == state))).into()
    });
}

fn step_labels<'a>(link: &'a str, step: &'a StepSnapshot) -> [(&'static str, &'a str); 3] {
    [("link", link), ("step", &step.name), ("at", &step.at)]
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

fn seconds(ms: Option<f64>) -> Option<f64> {
    Some(ms? / 1e3)
}

#[derive(Default)]
struct Page {
    text: String,
    /// The family of the samples.
    name: String,
}

impl Page {
    /// Families of things that have these labels; rates of links and streams once more in bits.
    fn table<'a, T: 'a, const N: usize>(
        &mut self,
        of: &str,
        families: &[Family<T>],
        things: impl Iterator<Item = ([(&'static str, &'a str); N], &'a T)> + Clone,
    ) {
        for (name, help, value) in families {
            let name = format!("{of}{name}");
            let mut write = |name: &str, help: &str, times: f64| {
                self.family(name, help);
                for (labels, thing) in things.clone() {
                    if let Some(value) = value(thing) {
                        self.sample(&labels, value * times);
                    }
                }
            };
            write(&name, help, 1.0);
            let rate = name.strip_suffix("bytes_per_second").filter(|_| !of.ends_with("path_"));
            if let Some(rate) = rate {
                let help = format!("Deprecated: {name} in bits.");
                write(&format!("{rate}bits_per_second"), &help, 8.0);
            }
        }
    }

    /// A family that counts the parts of each stream separately, with one more label.
    fn parts<'s>(
        &mut self,
        (name, help, label): (&str, &str, &str),
        streams: &'s [StreamSnapshot],
        parts: impl Fn(&'s StreamSnapshot) -> Vec<(&'s str, u64)>,
    ) {
        self.family(name, help);
        for stream in streams {
            let [name, link] = stream_labels(stream);
            for (part, value) in parts(stream) {
                self.sample(&[name, link, (label, part)], value);
            }
        }
    }

    fn family(&mut self, name: &str, help: &str) {
        let kind = match name {
            QUEUEING => "histogram",
            name if name.ends_with("_total") => "counter",
            _ => "gauge",
        };
        self.name = name.to_owned();
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.name);
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

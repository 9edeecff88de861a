//! What is said on the control socket: one JSON object a packet, with file descriptors beside it
//! where memory is handed over. `docs/coprocessor.md` has each message with an example.

use std::net::SocketAddr;

use selvedge_host::engine::{ExtensionReport, Point};
use selvedge_host::report::{LinkReport, StreamReport};
use selvedge_sched::{Counters, Discipline};
use selvedge_stream::{
    Class, Contract, DropReason, Histogram, Kind, Late, Recent, Refusals, Totals, Window, Windows,
};
use selvedge_units::{Bitrate, Bytes, Instant, Span};
use serde::{Deserialize, Serialize};

/// The protocol's version: a message of another is refused.
pub const PROTOCOL: u32 = 1;
/// The longest message, in bytes.
pub const MESSAGE_MAX: usize = 16 * 1024;
/// The longest name of a stream or a step, in bytes.
pub const NAME_MAX: usize = 64;

/// What a producer asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// First of all. With two descriptors - a doorbell's memory and event - a producer comes back
    /// to a coprocessor that was started again; without, it gets new ones.
    Attach {
        /// Who it is, for logs and statistics.
        name: String,
    },
    /// Adds a stream; answered with its segment's descriptor. With one descriptor the segment is
    /// that one, and what waits in it is sent.
    Add {
        /// What it is.
        stream: StreamSpec,
        /// The bit of the doorbell that its producer sets; without: the lowest that is free.
        #[serde(default)]
        bit: Option<usize>,
    },
    /// Adds a stream whose frames the coprocessor reads from a recording itself.
    Read {
        /// What it is.
        stream: StreamSpec,
        /// The recording, an absolute path.
        file: String,
        /// Begin again at its end.
        #[serde(default)]
        repeat: bool,
        /// The RTP source identifier.
        ssrc: u32,
    },
    /// Removes one of this producer's streams, once what waits is sent or so much time has passed.
    Remove {
        /// Its number.
        stream: usize,
        /// Nanoseconds.
        within_ns: u64,
    },
    /// Changes one of this producer's streams.
    Turn {
        /// Its number.
        stream: usize,
        /// Its new priority.
        #[serde(default)]
        priority: Option<i32>,
        /// Its new windows, `x/y`: one, or one for each kind.
        #[serde(default)]
        windows: Option<Vec<(u16, u16)>>,
    },
    /// Changes the link's rate.
    Rate {
        /// Bits per second.
        bps: u64,
    },
    /// Answered with a descriptor of memory that holds [`Statistics`] as JSON.
    Statistics {},
    /// Loads an extension's step, in place of one of the same name.
    Load {
        /// What it is called here.
        name: String,
        /// Which extension, by the name in the table.
        extension: String,
        /// Where it stands: `arrival`, `choice`, `dispatch`, `miss`.
        point: String,
        /// What the extension is told.
        #[serde(default)]
        arguments: serde_json::Value,
    },
    /// Removes a step.
    Unload {
        /// What it is called.
        name: String,
    },
    /// Ends the coprocessor. What waits stays in its producers' memory.
    Shutdown {},
}

/// A request with its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`PROTOCOL`].
    pub v: u32,
    /// What is asked.
    #[serde(flatten)]
    pub request: Request,
}

/// What comes back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// [`PROTOCOL`].
    pub v: u32,
    /// Whether it was done.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The number of the stream that was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<usize>,
    /// Its bit in the doorbell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit: Option<usize>,
    /// Bytes of the memory that came with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// The link, told when attaching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkSpec>,
}

/// The link that a producer attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// The discipline's name.
    pub discipline: String,
    /// Bits per second.
    pub rate_bps: u64,
    /// The largest IP packet.
    pub mtu: u64,
    /// How the engine's thread runs, in words.
    pub runs: String,
    /// The coprocessor's process.
    pub pid: u32,
}

/// A stream: its contract, where it goes, how much may wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Its name, for statistics.
    pub name: String,
    /// Where its packets go, `HOST:PORT`, numeric.
    pub to: SocketAddr,
    /// Nanoseconds between deadlines.
    pub period_ns: u64,
    /// Nanoseconds from arrival to deadline; without: DWCS's own rule.
    #[serde(default)]
    pub delay_ns: Option<u64>,
    /// What may be lost, `[x, y]`: one pair, or one for each kind.
    pub windows: Vec<(u16, u16)>,
    /// Whether what is late is sent all the same.
    #[serde(default)]
    pub send_late: bool,
    /// Whether a frame may go before its period begins.
    #[serde(default = "yes")]
    pub work_conserving: bool,
    /// 1 to 1000.
    #[serde(default = "one")]
    pub weight: u32,
    /// -1000 to 1000.
    #[serde(default)]
    pub priority: i32,
    /// `edf`, `priority` or `fair`.
    #[serde(default = "fair")]
    pub class: String,
    /// Frames that may wait, 2 to 65536.
    #[serde(default = "ring")]
    pub ring: u32,
    /// Bytes of payload that may wait, up to 1 GiB.
    #[serde(default = "pool")]
    pub pool: u64,
}

const fn yes() -> bool {
    true
}
const fn one() -> u32 {
    1
}
fn fair() -> String {
    Class::Fair.name().to_owned()
}
const fn ring() -> u32 {
    256
}
const fn pool() -> u64 {
    4_000_000
}

/// Why a stream can't be what it was asked to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A value out of its range.
    #[error("{what} is {value}; write {range}")]
    Range {
        /// Which.
        what: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        range: &'static str,
    },
}

fn range(what: &'static str, value: impl ToString, range: &'static str) -> SpecError {
    SpecError::Range { what, value: value.to_string(), range }
}

/// Windows as they are written in messages.
///
/// # Errors
/// [`SpecError`] if there are neither one nor one for each kind, or one loses more than it holds.
pub fn windows(pairs: &[(u16, u16)]) -> Result<Windows, SpecError> {
    let window = |&(lose, of): &(u16, u16)| {
        Window::new(lose, of)
            .map_err(|_| range("a window", format!("{lose}/{of}"), "x/y with x at most y"))
    };
    match pairs {
        [one] => Ok(Windows::Whole(window(one)?)),
        all if all.len() == Kind::COUNT => {
            let mut windows = [Window::NONE; Kind::COUNT];
            for (slot, pair) in windows.iter_mut().zip(all) {
                *slot = window(pair)?;
            }
            Ok(Windows::PerKind(windows))
        }
        other => Err(range("the number of windows", other.len(), "1, or 6: one for each kind")),
    }
}

/// The other way round.
#[must_use]
pub fn pairs(windows: &Windows) -> Vec<(u16, u16)> {
    match windows {
        Windows::Whole(window) => vec![(window.lose, window.of)],
        Windows::PerKind(all) => all.iter().map(|window| (window.lose, window.of)).collect(),
    }
}

impl StreamSpec {
    /// What a stream of the node file is on the control socket.
    #[must_use]
    pub fn new(name: &str, contract: &Contract, to: SocketAddr, ring: u32, pool: Bytes) -> Self {
        Self {
            name: name.to_owned(),
            to,
            period_ns: contract.period.0,
            delay_ns: contract.delay.map(|delay| delay.0),
            windows: pairs(&contract.windows),
            send_late: contract.late == Late::Send,
            work_conserving: contract.work_conserving,
            weight: contract.weight,
            priority: contract.priority,
            class: contract.class.name().to_owned(),
            ring,
            pool: pool.0,
        }
    }

    /// Bytes that its segment takes, nearly.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        self.pool.saturating_add(self.ring as u64 * 64)
    }

    /// The contract.
    ///
    /// # Errors
    /// [`SpecError`] for the first value that is out of its range.
    pub fn contract(&self) -> Result<Contract, SpecError> {
        const HOUR: u64 = 3_600_000_000_000;
        if self.name.is_empty() || self.name.len() > NAME_MAX {
            return Err(range("the name's length", self.name.len(), "1 to 64 bytes"));
        }
        if self.to.port() == 0 || self.to.ip().is_unspecified() || self.to.ip().is_multicast() {
            return Err(range("to", self.to, "the address and port of one receiver"));
        }
        if !(100_000..=HOUR).contains(&self.period_ns) {
            return Err(range("period_ns", self.period_ns, "100000 to 3600000000000"));
        }
        if let Some(delay) = self.delay_ns.filter(|delay| !(1_000_000..=HOUR).contains(delay)) {
            return Err(range("delay_ns", delay, "1000000 to 3600000000000"));
        }
        if !(1..=1000).contains(&self.weight) {
            return Err(range("weight", self.weight, "1 to 1000"));
        }
        if !(-1000..=1000).contains(&self.priority) {
            return Err(range("priority", self.priority, "-1000 to 1000"));
        }
        if !(2..=65_536).contains(&self.ring) {
            return Err(range("ring", self.ring, "2 to 65536 frames"));
        }
        if !(1024..=1 << 30).contains(&self.pool) {
            return Err(range("pool", self.pool, "1024 to 1073741824 bytes"));
        }
        let class = Class::from_name(&self.class)
            .ok_or_else(|| range("class", &self.class, "edf, priority or fair"))?;
        Ok(Contract {
            period: Span(self.period_ns),
            windows: windows(&self.windows)?,
            late: if self.send_late { Late::Send } else { Late::Drop },
            work_conserving: self.work_conserving,
            weight: self.weight,
            priority: self.priority,
            class,
            parent: 0,
            delay: self.delay_ns.map(Span),
        })
    }
}

/// Everything that can be seen of a coprocessor at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// [`PROTOCOL`].
    pub v: u32,
    /// The link's name.
    pub name: String,
    /// The discipline's name.
    pub discipline: String,
    /// Configured rate.
    pub rate_bps: u64,
    /// Rate offered over the last second.
    pub offered_bps: u64,
    /// Rate sent over the last second.
    pub sent_bps: u64,
    /// Bytes sent since the start.
    pub sent_bytes: u64,
    /// Bytes that the rate allowed while frames waited.
    pub could_send_bytes: u64,
    /// Bytes waiting.
    pub backlog_bytes: u64,
    /// When this was written, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// How the engine's thread runs, in words.
    pub runs: String,
    /// Its streams.
    pub streams: Vec<StreamStatistics>,
    /// Its loaded steps.
    pub extensions: Vec<ExtensionStatistics>,
}

/// A stream at one moment. Counters count since it was added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamStatistics {
    /// Its number.
    pub stream: usize,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub producer: String,
    /// The contract as it is now.
    pub spec: StreamSpec,
    /// Frames offered.
    pub frames: u64,
    /// Frames sent whole.
    pub sent: u64,
    /// Frames sent whole by their deadline.
    pub on_time: u64,
    /// Frames on time whose references all were too.
    pub decodable: u64,
    /// Frames dropped, by reason, in the order of the reasons' numbers.
    pub dropped: [u64; DropReason::COUNT],
    /// Frames of which nothing is known.
    pub unknown: u64,
    /// The scheduler's counters: sent, late, missed, dropped, violations.
    pub counters: [u64; 5],
    /// Frames settled in the last ten seconds; of these on time; of these decodable.
    pub recent: [u64; 3],
    /// Their queueing delay.
    pub queueing: HistogramStatistics,
    /// Frames waiting in the link.
    pub queued: usize,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Rate sent over the last second.
    pub sent_bps: u64,
    /// Packets that the kernel refused.
    pub send_errors: u64,
    /// Descriptors refused, by reason; only reasons that happened.
    pub refused: std::collections::BTreeMap<String, u64>,
    /// What is wrong with its source, if the coprocessor reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Whether its source has come to its end.
    #[serde(default)]
    pub ended: bool,
}

/// A histogram of nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistogramStatistics {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The shortest and the longest.
    pub ends_ns: [u64; 2],
    /// The 50th, 99th and 99.9th percentile.
    pub percentiles_ns: [u64; 3],
    /// Counters that are not zero, by number, for this program.
    pub counters: Vec<(usize, u32)>,
}

/// A loaded step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtensionStatistics {
    /// What it is called.
    pub name: String,
    /// Where it stands.
    pub point: String,
    /// How often it was called.
    pub calls: u64,
    /// Frames that it discarded.
    pub discarded: u64,
    /// Time in it, all calls together.
    pub total_ns: u64,
    /// The mean call.
    pub mean_ns: f64,
    /// The longest call.
    pub longest_ns: u64,
}

impl HistogramStatistics {
    fn of(histogram: &Histogram) -> Self {
        let nanos = |span: Option<Span>| span.map_or(0, |span| span.0);
        Self {
            count: histogram.count(),
            sum_ns: histogram.sum().0,
            ends_ns: [nanos(histogram.min()), nanos(histogram.max())],
            percentiles_ns: [0.5, 0.99, 0.999].map(|f| nanos(histogram.quantile(f))),
            counters: histogram.counters().collect(),
        }
    }

    fn histogram(&self) -> Histogram {
        let [min, max] = self.ends_ns.map(Span);
        Histogram::restore(self.counters.iter().copied(), Span(self.sum_ns), min, max)
    }
}

impl StreamStatistics {
    /// A stream's report, with what only the coprocessor knows of it.
    #[must_use]
    pub fn of(report: &StreamReport, spec: &StreamSpec, producer: &str, refused: Refusals) -> Self {
        let StreamReport { totals, counters, recent, contract, .. } = report;
        let spec = StreamSpec {
            windows: pairs(&contract.windows),
            priority: contract.priority,
            ..spec.clone()
        };
        Self {
            stream: report.number,
            name: spec.name.clone(),
            producer: producer.to_owned(),
            spec,
            frames: totals.frames,
            sent: totals.sent,
            on_time: totals.on_time,
            decodable: totals.decodable,
            dropped: totals.dropped,
            unknown: totals.unknown,
            counters: [
                counters.sent,
                counters.late,
                counters.missed,
                counters.dropped,
                counters.violations,
            ],
            recent: [recent.frames, recent.on_time, recent.decodable],
            queueing: HistogramStatistics::of(&recent.queueing),
            queued: report.queued,
            sent_bytes: report.sent_bytes.0,
            sent_bps: report.sent.0,
            send_errors: report.send_errors,
            refused: selvedge_stream::Refusal::ALL
                .iter()
                .map(|&why| (why.name().to_owned(), refused.0[why as usize]))
                .filter(|(_, count)| *count > 0)
                .collect(),
            trouble: None,
            ended: false,
        }
    }

    /// The report that it was made of; `None` if its contract makes no sense.
    #[must_use]
    pub fn report(&self) -> Option<StreamReport> {
        let [sent, late, missed, dropped, violations] = self.counters;
        let [frames, on_time, decodable] = self.recent;
        Some(StreamReport {
            number: self.stream,
            contract: self.spec.contract().ok()?,
            counters: Counters { sent, late, missed, dropped, violations },
            totals: Totals {
                frames: self.frames,
                sent: self.sent,
                on_time: self.on_time,
                decodable: self.decodable,
                dropped: self.dropped,
                unknown: self.unknown,
            },
            recent: Recent { frames, on_time, decodable, queueing: self.queueing.histogram() },
            queued: self.queued,
            sent_bytes: Bytes(self.sent_bytes),
            sent: Bitrate(self.sent_bps),
            send_errors: self.send_errors,
        })
    }
}

impl ExtensionStatistics {
    fn of(report: &ExtensionReport) -> Self {
        Self {
            name: report.name.clone(),
            point: report.point.name().to_owned(),
            calls: report.calls,
            discarded: report.discarded,
            total_ns: report.total.0,
            mean_ns: if report.calls > 0 {
                report.total.0 as f64 / report.calls as f64
            } else {
                0.0
            },
            longest_ns: report.longest.0,
        }
    }
}

impl Statistics {
    /// A link's report; its streams are given apart.
    #[must_use]
    pub fn of(report: &LinkReport, streams: Vec<StreamStatistics>, runs: &str) -> Self {
        Self {
            v: PROTOCOL,
            name: report.name.clone(),
            discipline: report.discipline.to_owned(),
            rate_bps: report.rate.0,
            offered_bps: report.offered.0,
            sent_bps: report.sent.0,
            sent_bytes: report.sent_bytes.0,
            could_send_bytes: report.could_send.0,
            backlog_bytes: report.backlog.0,
            at_ns: report.at.0,
            runs: runs.to_owned(),
            streams,
            extensions: report.extensions.iter().map(ExtensionStatistics::of).collect(),
        }
    }

    /// The report of a link as its node sees it, with the streams of these numbers in this order.
    #[must_use]
    pub fn report(&self, numbers: &[usize]) -> LinkReport {
        let stream = |number: &usize| {
            let found = self.streams.iter().find(|stream| stream.stream == *number)?;
            found.report()
        };
        let extension = |one: &ExtensionStatistics| {
            Some(ExtensionReport {
                name: one.name.clone(),
                point: Point::from_name(&one.point)?,
                calls: one.calls,
                discarded: one.discarded,
                total: Span(one.total_ns),
                longest: Span(one.longest_ns),
            })
        };
        LinkReport {
            name: self.name.clone(),
            discipline: Discipline::from_name(&self.discipline).unwrap_or_default().name(),
            rate: Bitrate(self.rate_bps),
            offered: Bitrate(self.offered_bps),
            sent: Bitrate(self.sent_bps),
            sent_bytes: Bytes(self.sent_bytes),
            could_send: Bytes(self.could_send_bytes),
            backlog: Bytes(self.backlog_bytes),
            streams: numbers.iter().filter_map(stream).collect(),
            extensions: self.extensions.iter().filter_map(extension).collect(),
            at: Instant(self.at_ns),
        }
    }
}

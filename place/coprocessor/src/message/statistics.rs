//! The statistics of a coprocessor's link, streams and extensions, and the conversion from and to the
//! engine's reports.

use selvedge_comm_carrier::StackProgress;
use selvedge_data_sched::Discipline;
use selvedge_data_sched::aggregate::StreamletCounts;
use selvedge_data_stream::Counters;
use selvedge_data_stream::{Counts, DropReason, Histogram, Recent, Refusals, Spec, Totals};
use selvedge_os::control::VERSION;
use selvedge_place_engine::engine::{ExtensionReport, Stage};
use selvedge_place_engine::lateness::{RecentPacing, Use};
use selvedge_place_engine::report::{LinkReport, SendCost, StreamReport};
use selvedge_place_engine::slot::StreamletReport;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};
use serde::{Deserialize, Serialize};

/// The full state of a coprocessor at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// [`VERSION`].
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
    /// Packets that the device's queue dropped, because they reached it after their departure time.
    #[serde(default)]
    pub missed_departures: u64,
    /// Measured calls that handed packets to the kernel: the packets' bytes on the wire, and nanoseconds.
    #[serde(default)]
    pub send_cost: [u64; 2],
    /// How late the engine's thread woke up in the last seconds.
    #[serde(default)]
    pub lateness: HistogramStatistics,
    /// Bytes sent in the last seconds, and bytes that the rate allowed while frames waited.
    #[serde(default)]
    pub recent_bytes: [u64; 2],
    /// Bytes waiting.
    pub backlog_bytes: u64,
    /// When this was written, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// How the engine's thread runs, in words.
    pub runs: String,
    /// Its streams.
    pub streams: Vec<StreamStatistics>,
    /// Its loaded extensions.
    pub extensions: Vec<ExtensionStatistics>,
}

/// A stream at one instant. Counters count since it was added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamStatistics {
    /// Its number.
    pub stream: usize,
    /// Its name.
    pub name: String,
    /// The name of its producer.
    pub producer: String,
    /// The present contract.
    pub spec: Spec,
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
    /// Frames with an unknown fate.
    pub unknown: u64,
    /// Bytes of dropped frames that were not sent.
    #[serde(default)]
    pub dropped_bytes: u64,
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
    /// The error of its source, if the coprocessor reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Whether its source has ended.
    #[serde(default)]
    pub ended: bool,
    /// Of a slot: its sets, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<StreamletStatistics>,
    /// Its connection, if a stack carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackProgress>,
}

/// What became of the frames of one set of streamlets, or of one streamlet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamletStatistics {
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames dropped.
    pub dropped: u64,
    /// Frames that wait.
    pub waiting: u64,
    /// From arrival to the last packet sent: the sum over all frames sent.
    pub delay_sum_ns: u64,
    /// The longest of these.
    pub delay_max_ns: u64,
}

impl From<&StreamletReport> for StreamletStatistics {
    fn from(report: &StreamletReport) -> Self {
        Self {
            sent: report.counts.sent,
            sent_bytes: report.counts.bytes.0,
            dropped: report.counts.dropped,
            waiting: report.waiting,
            delay_sum_ns: report.delay_sum.0,
            delay_max_ns: report.delay_max.0,
        }
    }
}

impl From<&StreamletStatistics> for StreamletReport {
    fn from(of: &StreamletStatistics) -> Self {
        let (sent, bytes, dropped) = (of.sent, Bytes(of.sent_bytes), of.dropped);
        Self {
            counts: StreamletCounts { sent, bytes, dropped },
            waiting: of.waiting,
            delay_sum: Duration(of.delay_sum_ns),
            delay_max: Duration(of.delay_max_ns),
        }
    }
}

/// A histogram of nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistogramStatistics {
    /// The number of values.
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

/// A loaded extension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtensionStatistics {
    /// Its name.
    pub name: String,
    /// The point at which it runs.
    pub point: String,
    /// How often it was called.
    pub calls: u64,
    /// Frames that it discarded.
    pub discarded: u64,
    /// Calls that were ended by a fault.
    #[serde(default)]
    pub faults: u64,
    /// Time in it, all calls together.
    pub total_ns: u64,
    /// The mean call.
    pub mean_ns: f64,
    /// The longest call.
    pub longest_ns: u64,
}

impl HistogramStatistics {
    fn of(histogram: &Histogram) -> Self {
        let nanos = |span: Option<Duration>| span.map_or(0, |span| span.0);
        Self {
            count: histogram.count(),
            sum_ns: histogram.sum().0,
            ends_ns: [nanos(histogram.min()), nanos(histogram.max())],
            percentiles_ns: [0.5, 0.99, 0.999].map(|f| nanos(histogram.quantile(f))),
            counters: histogram.counters().collect(),
        }
    }

    fn histogram(&self) -> Histogram {
        let [min, max] = self.ends_ns.map(Duration);
        Histogram::restore(self.counters.iter().copied(), Duration(self.sum_ns), min, max)
    }
}

impl StreamStatistics {
    /// A stream's report, with the coprocessor's own knowledge of the stream.
    #[must_use]
    pub fn of(report: &StreamReport, spec: &Spec, producer: &str, refused: Refusals) -> Self {
        let StreamReport { counts, recent, contract, .. } = report;
        let Counts { totals, counters, .. } = counts;
        let spec = Spec { contract: *contract, ..spec.clone() };
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
            dropped_bytes: totals.dropped_bytes.0,
            counters: counters.values(),
            recent: [recent.frames, recent.on_time, recent.decodable],
            queueing: HistogramStatistics::of(&recent.queueing),
            queued: report.queued,
            sent_bytes: counts.sent_bytes.0,
            sent_bps: report.sent.0,
            send_errors: counts.send_errors,
            refused: selvedge_data_stream::Refusal::ALL
                .iter()
                .map(|&why| (why.name().to_owned(), refused.0[why as usize]))
                .filter(|(_, count)| *count > 0)
                .collect(),
            trouble: None,
            ended: false,
            stack: None,
            sets: report.sets.iter().map(Into::into).collect(),
        }
    }

    /// The report from which it was made; `None` if its contract is invalid.
    #[must_use]
    pub fn report(&self) -> Option<StreamReport> {
        let [frames, on_time, decodable] = self.recent;
        Some(StreamReport {
            number: self.stream,
            contract: self.spec.check().map(|()| self.spec.contract).ok()?,
            counts: Counts {
                totals: Totals {
                    frames: self.frames,
                    sent: self.sent,
                    on_time: self.on_time,
                    decodable: self.decodable,
                    dropped: self.dropped,
                    unknown: self.unknown,
                    dropped_bytes: Bytes(self.dropped_bytes),
                },
                counters: Counters::new(self.counters),
                sent_bytes: Bytes(self.sent_bytes),
                send_errors: self.send_errors,
            },
            recent: Recent { frames, on_time, decodable, queueing: self.queueing.histogram() },
            queued: self.queued,
            sent: Bitrate(self.sent_bps),
            sets: self.sets.iter().map(Into::into).collect(),
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
            faults: report.faults,
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
    /// A link's report; its streams are passed separately.
    #[must_use]
    pub fn of(report: &LinkReport, streams: Vec<StreamStatistics>, runs: &str) -> Self {
        Self {
            v: VERSION,
            name: report.name.clone(),
            discipline: report.discipline.to_owned(),
            rate_bps: report.rate.0,
            offered_bps: report.offered.0,
            sent_bps: report.sent.0,
            sent_bytes: report.sent_bytes.0,
            could_send_bytes: report.could_send.0,
            missed_departures: report.missed_departures,
            send_cost: [report.send_cost.bytes.0, report.send_cost.time.0],
            lateness: HistogramStatistics::of(&report.recent.lateness),
            recent_bytes: [report.recent.used.sent.0, report.recent.used.could_send.0],
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
                point: Stage::from_name(&one.point)?,
                calls: one.calls,
                discarded: one.discarded,
                faults: one.faults,
                total: Duration(one.total_ns),
                longest: Duration(one.longest_ns),
            })
        };
        let [sent, could_send] = self.recent_bytes.map(Bytes);
        let used = Use { sent, could_send };
        LinkReport {
            copied: Bytes(0),
            name: self.name.clone(),
            discipline: Discipline::from_name(&self.discipline).unwrap_or_default().name(),
            rate: Bitrate(self.rate_bps),
            offered: Bitrate(self.offered_bps),
            sent: Bitrate(self.sent_bps),
            sent_bytes: Bytes(self.sent_bytes),
            could_send: Bytes(self.could_send_bytes),
            missed_departures: self.missed_departures,
            send_cost: SendCost {
                bytes: Bytes(self.send_cost[0]),
                time: Duration(self.send_cost[1]),
            },
            recent: RecentPacing { lateness: self.lateness.histogram(), used },
            backlog: Bytes(self.backlog_bytes),
            streams: numbers.iter().filter_map(stream).collect(),
            extensions: self.extensions.iter().filter_map(extension).collect(),
            at: Instant(self.at_ns),
        }
    }
}

//! The result of a demo, as a table and as JSON.

use std::fmt::Write;

use selvedge_cli_terminal::Table;
use selvedge_data_link::bound::Bound;
use selvedge_data_receive::MeterSnapshot;
use selvedge_data_stream::Histogram;
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bitrate, Duration, Instant};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::record::Recorder;

/// The measurements of one side.
pub(super) struct Measured {
    /// The receivers' measurements of each stream.
    pub(super) meters: Vec<MeterSnapshot>,
    /// The engines' reports on their links.
    pub(super) reports: Vec<LinkReport>,
    pub(super) recorder: Recorder,
}

/// All sides and the bound.
pub(super) struct Comparison {
    /// What the frames went over, for the table.
    pub(super) over: String,
    pub(super) link_share: f64,
    /// The link's rates, each with its start; the first is that from the beginning.
    pub(super) rates: Vec<(Instant, Bitrate)>,
    pub(super) began: Instant,
    pub(super) needed: Bitrate,
    pub(super) seconds: f64,
    pub(super) delay: Duration,
    pub(super) names: Vec<String>,
    pub(super) bound: Bound,
    /// With their names; ours is the first.
    pub(super) sides: Vec<(&'static str, Measured)>,
    /// Whether the rates of their links are given, so that their use can be known.
    pub(super) is_rate_given: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Delay {
    mean: f64,
    p99: f64,
}

/// Shares are of the frames offered.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    frames: u64,
    delivered: f64,
    on_time: f64,
    decodable: f64,
    violations: u64,
    queueing_delay_ms: Delay,
}

impl Row {
    fn new(frames: u64, counts: [u64; 3], violations: u64, queueing: &Histogram) -> Self {
        let share = |part: u64| if frames == 0 { 0.0 } else { part as f64 / frames as f64 };
        let [delivered, on_time, decodable] = counts.map(share);
        let ms = |span: Option<Duration>| span.map_or(0.0, Duration::as_millis_f64);
        let queueing_delay_ms =
            Delay { mean: ms(queueing.mean()), p99: ms(queueing.quantile(0.99)) };
        Self { frames, delivered, on_time, decodable, violations, queueing_delay_ms }
    }
}

impl Measured {
    /// The bytes sent as a share of those that the rate allowed while frames waited.
    fn used(&self) -> f64 {
        let sent: u64 = self.reports.iter().map(|r| r.sent_bytes.0).sum();
        let could: u64 = self.reports.iter().map(|r| r.could_send.0).sum();
        (sent as f64 / could.max(1) as f64).min(1.0)
    }

    /// A row for each stream, and one for all of them.
    fn rows(&self) -> (Vec<Row>, Row) {
        let violations: Vec<u64> = self
            .reports
            .iter()
            .flat_map(|r| r.streams.iter().map(|s| s.counts.counters.violations))
            .collect();
        let mut all = Histogram::default();
        let mut sum = (0, [0; 3]);
        let mut rows = Vec::new();
        for (n, meter) in self.meters.iter().enumerate() {
            let (frames, queueing) = self.recorder.stream(n);
            let counts = [meter.complete, meter.on_time.unwrap_or(0), meter.decodable.unwrap_or(0)];
            rows.push(Row::new(frames, counts, violations[n], &queueing));
            all.merge(&queueing);
            sum.0 += frames;
            for (total, count) in sum.1.iter_mut().zip(counts) {
                *total += count;
            }
        }
        (rows, Row::new(sum.0, sum.1, violations.iter().sum(), &all))
    }
}

impl Comparison {
    pub(super) fn json(&self) -> Value {
        let side = |measured: &Measured| {
            let (rows, all) = measured.rows();
            let mut value = json!(all);
            let streams: Map<String, Value> =
                self.names.iter().cloned().zip(rows.iter().map(|r| json!(r))).collect();
            value["streams"] = Value::Object(streams);
            value
        };
        let disciplines: Map<String, Value> =
            self.sides.iter().map(|(by, measured)| ((*by).to_owned(), side(measured))).collect();
        let change = |(at, rate): &(Instant, Bitrate)| json!({ "at_s": at.since(self.began).as_secs_f64(), "link_bps": rate.0 });
        let mut json = json!({
            "link_share": self.link_share,
            "link_bps": self.rates[0].1.0,
            "rate_changes": self.rates[1..].iter().map(change).collect::<Vec<_>>(),
            "needed_bps": self.needed.0,
            "seconds": self.seconds,
            "delay_ms": self.delay.as_millis_f64(),
            "disciplines": disciplines,
            "bound": { "decodable": self.bound.share() },
        });
        if self.is_rate_given {
            let used = |(by, side): &(&str, Measured)| ((*by).to_owned(), json!(side.used()));
            json["link_used_while_frames_wait"] =
                self.sides.iter().map(used).collect::<Map<_, _>>().into();
        }
        json
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{}, {:.0} % of the {:.0} kbit/s that the streams need; {:.0} s; a frame \
             may come {} after its arrival.",
            self.over,
            self.link_share * 100.0,
            self.needed.0 as f64 / 1e3,
            self.seconds,
            self.delay
        );
        for (at, rate) in &self.rates[1..] {
            let (after, rate) = (at.since(self.began).as_secs_f64(), rate.0 as f64 / 1e3);
            let what =
                if self.is_rate_given { "both links were set to" } else { "all paths carried" };
            let _ = writeln!(text, "After {after:.0} s {what} {rate:.0} kbit/s.");
        }
        let mut table = Table::default()
            .left(["stream", "by"])
            .right(["frames", "delivered", "on time", "decodable"])
            .right(["violations", "delay mean", "p99"]);
        let sides: Vec<_> =
            self.sides.iter().map(|(by, measured)| (*by, measured.rows())).collect();
        let names = self.names.iter().map(String::as_str);
        for (n, name) in names.chain(["all"]).enumerate() {
            for (at, (by, (rows, all))) in sides.iter().enumerate() {
                table.row(cells(if at == 0 { name } else { "" }, by, rows.get(n).unwrap_or(all)));
            }
        }
        let _ = writeln!(text, "\n{table}");
        if self.is_rate_given {
            let used = self.listed(" used", " of the link", |n| self.sides[n].1.used());
            let _ = writeln!(text, "While frames waited, {used}.");
        }
        let bound = self.bound.share();
        let reached = self.listed(" reached", " of that", |n| sides[n].1.1.decodable / bound);
        let _ = writeln!(
            text,
            "No sender could make more than {:.1} % decodable on this link (offline bound); {reached}.",
            bound * 100.0,
        );
        text
    }

    /// The sides with a share of each: `dwcs used 99.1 % of the link, fifo 98.0 %`.
    fn listed(&self, verb: &str, what: &str, share: impl Fn(usize) -> f64) -> String {
        let of = |(n, (by, _)): (usize, &(&str, _))| {
            let [verb, what] = if n == 0 { [verb, what] } else { ["", ""] };
            format!("{by}{verb} {:.1} %{what}", 100.0 * share(n))
        };
        self.sides.iter().enumerate().map(of).collect::<Vec<_>>().join(", ")
    }
}

fn cells(name: &str, by: &str, row: &Row) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    vec![
        name.to_owned(),
        by.to_owned(),
        row.frames.to_string(),
        percent(row.delivered),
        percent(row.on_time),
        percent(row.decodable),
        row.violations.to_string(),
        format!("{:.0} ms", row.queueing_delay_ms.mean),
        format!("{:.0} ms", row.queueing_delay_ms.p99),
    ]
}

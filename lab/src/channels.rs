//! `selvedge-lab bench channels`: channels beside the bare engine, in one run.

pub(crate) mod sinks;

use std::io::Write;
use std::time::{Duration as StdDuration, Instant};

use clap::Args;
use rustix::process::{Signal, kill_process};
use selvedge_cli_terminal::{Failure, Table};
use selvedge_lab_measure::event::{Kind, PACED, Source, opening as open_channels};
use selvedge_os::clock::Clock;
use selvedge_units::Duration;
use serde_json::{Value, json};

use self::sinks::SinkProcess;

#[derive(Debug, Args)]
pub(crate) struct ChannelsArgs {
    /// How many sinks there are in the second measurement
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(2..=120))]
    sinks: u16,
    /// How often each is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=31))]
    rounds: u8,
    /// How many seconds events are sent as fast as they go
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Measure channels as between hosts, too, with nothing through memory
    #[arg(long)]
    engine: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// How long a slow sink takes for an event.
const SLOW: Duration = Duration::from_millis(20);

/// What one measurement gives.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    publish_us: f64,
    last_us: f64,
    deliveries_per_s: f64,
    lost_share: f64,
    /// Parts of that: events that found no room in a ring, in an inbox, before their sink.
    ring_full: f64,
    inbox_full: f64,
    sink_full: f64,
}

impl Figures {
    /// Why events were lost.
    fn why(&self) -> String {
        let known = self.ring_full + self.inbox_full + self.sink_full;
        let all = [
            ("ring full", self.ring_full),
            ("inbox full", self.inbox_full),
            ("sink full", self.sink_full),
            ("the engine", self.lost_share - known),
        ];
        let notice = all.iter().filter(|(_, share)| *share >= 0.0005);
        let notice: Vec<String> =
            notice.map(|(why, share)| format!("{why} {:.1} %", share * 100.0)).collect();
        notice.join(", ")
    }
}

fn measure(kind: Kind, sinks: u16, seconds: u64) -> Result<Figures, Failure> {
    let mut source = Source::start(kind).map_err(Failure::failed)?;
    let other = SinkProcess::start(&source, kind, sinks)?;
    exercise(&mut source, other, sinks, seconds)
}

/// One sink, beside another that is slow if so.
fn one_sink_beside_slow(is_there: bool, seconds: u64) -> Result<Figures, Failure> {
    let mut source = Source::start(Kind::Channel).map_err(Failure::failed)?;
    let other = SinkProcess::start(&source, Kind::Channel, 1)?;
    let slow =
        is_there.then(|| SinkProcess::pausing(&source, Kind::Channel, 1, SLOW)).transpose()?;
    let figures = exercise(&mut source, other, 1, seconds)?;
    drop(slow);
    // What else found a ring full was the slow one's.
    let ring_full = figures.lost_share - figures.inbox_full - figures.sink_full;
    Ok(Figures { ring_full, ..figures })
}

/// How long it takes until a member that is killed, or stopped, is lost; milliseconds.
fn noticed(rounds: u8, end: Signal) -> Result<f64, Failure> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        let mut source = Source::start(Kind::Channel).map_err(Failure::failed)?;
        let other = SinkProcess::start(&source, Kind::Channel, 1)?;
        source.publish();
        kill_process(other.pid()?, end).map_err(Failure::failed)?;
        let lost = source.lost(StdDuration::from_secs(10));
        all.push(lost.map_or(f64::INFINITY, |span| span.0 as f64 / 1e6));
    }
    Ok(median(&all))
}

fn exercise(
    source: &mut Source,
    other: SinkProcess,
    sinks: u16,
    seconds: u64,
) -> Result<Figures, Failure> {
    // What is set up on first use, is.
    std::thread::park_timeout(StdDuration::from_millis(300));
    let clock = Clock::new();
    let mut costs = Vec::new();
    for _ in 0..PACED {
        costs.push(source.publish().0 as f64 / 1e3);
        clock.sleep_until(clock.now() + Duration::from_millis(5));
    }
    let before = source.ring_full();
    let (begin, mut sent) = (Instant::now(), 0_u64);
    while begin.elapsed() < StdDuration::from_secs(seconds) {
        for _ in 0..16 {
            source.publish();
            sent += 1;
        }
    }
    source.settle(StdDuration::from_secs(10));
    clock.sleep_until(clock.now() + Duration::from_millis(500));
    let ring_full = source.ring_full() - before;
    let seen = other.finish()?;
    let last: Vec<f64> = seen.last_ns.iter().map(|ns| *ns as f64 / 1e3).collect();
    let wanted = sent as f64 * f64::from(sinks);
    Ok(Figures {
        publish_us: median(&costs),
        last_us: median(&last),
        deliveries_per_s: seen.flood as f64 * 1e9 / seen.flood_ns.max(1) as f64,
        lost_share: 1.0 - (seen.flood as f64 / wanted).min(1.0),
        ring_full: ring_full as f64 / wanted,
        inbox_full: seen.inbox_full as f64 / wanted,
        sink_full: seen.sink_full as f64 / wanted,
    })
}

fn median(all: &[f64]) -> f64 {
    if all.is_empty() { f64::NAN } else { selvedge_lab_measure::median(all.iter().copied()) }
}

/// The median of each figure.
fn medians(all: &[Figures]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| median(&all.iter().map(figure).collect::<Vec<f64>>());
    Figures {
        publish_us: of(|one| one.publish_us),
        last_us: of(|one| one.last_us),
        deliveries_per_s: of(|one| one.deliveries_per_s),
        lost_share: of(|one| one.lost_share),
        ring_full: of(|one| one.ring_full),
        inbox_full: of(|one| one.inbox_full),
        sink_full: of(|one| one.sink_full),
    }
}

pub(crate) fn command(args: &ChannelsArgs) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for sinks in [1, args.sinks] {
        let (mut bare, mut channel, mut reliable, mut engine) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            // In turn, so that what else the machine does meets all.
            bare.push(measure(Kind::Bare, sinks, args.seconds)?);
            channel.push(measure(Kind::Channel, sinks, args.seconds)?);
            reliable.push(measure(Kind::Reliable, sinks, args.seconds)?);
            if args.engine {
                engine.push(measure(Kind::Engine, sinks, args.seconds)?);
            }
        }
        let engine = args.engine.then(|| medians(&engine));
        let [bare, channel, reliable] = [&bare, &channel, &reliable].map(|all| medians(all));
        rows.push(Row { sinks, bare, channel, reliable, engine });
    }
    let mut opening: [Vec<f64>; 3] = Default::default();
    for _ in 0..args.rounds.max(5) {
        let spans = open_channels().map_err(Failure::failed)?;
        for (all, span) in opening.iter_mut().zip(spans) {
            all.push(span.0 as f64 / 1e3);
        }
    }
    let [start_us, first_us, second_us] = opening.map(|all| median(&all));
    let killed_ms = noticed(args.rounds.max(5), Signal::KILL)?;
    let silent_ms = noticed(args.rounds, Signal::STOP)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        alone.push(one_sink_beside_slow(false, args.seconds)?);
        beside.push(one_sink_beside_slow(true, args.seconds)?);
    }
    let slow = [medians(&alone), medians(&beside)];
    let mut out = std::io::stdout().lock();
    if args.json {
        let rows: Vec<Value> = rows.iter().map(row).collect();
        let report = json!({
            "sinks": rows,
            "start_us": start_us,
            "open_first_us": first_us,
            "open_second_us": second_us,
            "killed_noticed_ms": killed_ms,
            "silent_noticed_ms": silent_ms,
            "one_sink_alone": value(&slow[0]),
            "one_sink_beside_a_slow_one": value(&slow[1]),
        });
        writeln!(out, "{report}")?;
        return Ok(out.flush()?);
    }
    let mut table = Table::default()
        .right(["sinks"])
        .left([""])
        .right(["publish, us", "the last has it, us", "deliveries/s", "lost"])
        .left(["why"]);
    for Row { sinks, bare, channel, reliable, engine } in &rows {
        let all = [
            ("bare Zenoh", Some(bare)),
            ("channel", Some(channel)),
            ("reliable", Some(reliable)),
            ("without rings", engine.as_ref()),
        ];
        for (name, figures) in all {
            let Some(figures) = figures else { continue };
            table.row(cells(*sinks, name, figures));
        }
        table.row([
            sinks.to_string(),
            "channel / bare".to_owned(),
            format!("{:.2}", channel.publish_us / bare.publish_us),
            format!("{:.2}", channel.last_us / bare.last_us),
            format!("{:.2}", channel.deliveries_per_s / bare.deliveries_per_s),
        ]);
    }
    for (name, figures) in [("alone", &slow[0]), ("beside a slow one", &slow[1])] {
        table.row(cells(1, name, figures));
    }
    write!(out, "{table}")?;
    writeln!(
        out,
        "The slow one pauses {} ms at every event. Reliable: at the pace of the slowest sink.\n\
         taking part {start_us:.0} us, opening the first channel {first_us:.0} us, a second \
         {second_us:.1} us\na killed member is noticed after {killed_ms:.1} ms, one that falls silent \
         after {silent_ms:.0} ms",
        SLOW.0 / 1_000_000
    )?;
    Ok(out.flush()?)
}

/// What was measured with so many sinks.
struct Row {
    sinks: u16,
    bare: Figures,
    channel: Figures,
    reliable: Figures,
    engine: Option<Figures>,
}

fn cells(sinks: u16, name: &str, figures: &Figures) -> [String; 7] {
    [
        sinks.to_string(),
        name.to_owned(),
        format!("{:.2}", figures.publish_us),
        format!("{:.0}", figures.last_us),
        format!("{:.0}", figures.deliveries_per_s),
        format!("{:.1} %", figures.lost_share * 100.0),
        figures.why(),
    ]
}

fn value(one: &Figures) -> Value {
    json!({
        "publish_us": one.publish_us,
        "last_us": one.last_us,
        "deliveries_per_s": one.deliveries_per_s,
        "lost_share": one.lost_share,
        "ring_full_share": one.ring_full,
        "inbox_full_share": one.inbox_full,
        "sink_full_share": one.sink_full,
    })
}

fn row(Row { sinks, bare, channel, reliable, engine }: &Row) -> Value {
    json!({
        "sinks": sinks,
        "bare": value(bare),
        "channel": value(channel),
        "reliable": value(reliable),
        "without_rings": engine.as_ref().map(value),
    })
}

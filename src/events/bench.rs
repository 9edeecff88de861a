//! `selvedge events bench`: channels beside the bare engine, in one run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use selvedge_host::clock::Clock;
use selvedge_host_event::Address;
use selvedge_host_event::bench::{self, Kind, PACED, Seen, Sinks, Source};
use selvedge_units::Span;
use serde_json::{Value, json};

use crate::cli::Failure;
use crate::table::{Align, Table};

/// How long sinks may take to connect.
const CONNECT: Duration = Duration::from_secs(60);
/// How often it is tried: the engine gives up now and then where many connect at once.
const ATTEMPTS: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
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

#[derive(Debug, Args)]
pub(crate) struct SinksArgs {
    #[arg(long)]
    connect: Address,
    #[arg(long)]
    sinks: u16,
    #[arg(long, value_enum)]
    kind: Way,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Way {
    Channel,
    Reliable,
    Engine,
    Bare,
}

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
        let told = all.iter().filter(|(_, share)| *share >= 0.0005);
        let told: Vec<String> =
            told.map(|(why, share)| format!("{why} {:.1} %", share * 100.0)).collect();
        told.join(", ")
    }
}

/// The sinks' process: connects, says so, and says what it saw when its input ends.
pub(super) fn sinks(args: &SinksArgs) -> Result<(), Failure> {
    let kind = match args.kind {
        Way::Channel => Kind::Channel,
        Way::Reliable => Kind::Reliable,
        Way::Engine => Kind::Engine,
        Way::Bare => Kind::Bare,
    };
    let sinks = Sinks::start(kind, &args.connect, args.sinks.into()).map_err(Failure::failed)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", json!(sinks.seen()))?;
    out.flush()?;
    // The sessions end with the process; to close them one by one would take longer.
    std::process::exit(0)
}

/// The other process; killed when dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Other {
    fn start(source: &Source, kind: Kind, sinks: u16) -> Result<Self, Failure> {
        for _ in 1..ATTEMPTS {
            if let Ok(other) = Self::attempt(source, kind, sinks) {
                return Ok(other);
            }
        }
        Self::attempt(source, kind, sinks)
    }

    fn attempt(source: &Source, kind: Kind, sinks: u16) -> Result<Self, Failure> {
        let kind = match kind {
            Kind::Bare => "bare",
            Kind::Engine => "engine",
            Kind::Channel => "channel",
            Kind::Reliable => "reliable",
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["events", "bench-sinks", "--kind", kind]);
        command.args(["--sinks", &sinks.to_string()]);
        command.args(["--connect", &source.address().to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut other = Self(child);
        let begin = Instant::now();
        while source.sinks() < usize::from(sinks) {
            if let Some(status) = other.0.try_wait()? {
                return Err(Failure::failed(format!("the sinks' process has ended: {status}")));
            }
            if begin.elapsed() > CONNECT {
                let there = source.sinks();
                return Err(Failure::failed(format!("{there} of {sinks} sinks have connected")));
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Ok(other)
    }

    fn seen(mut self) -> Result<Seen, Failure> {
        drop(self.0.stdin.take());
        let stdout = self.0.stdout.take().ok_or_else(|| Failure::failed("it was taken"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(Failure::failed)
    }
}

fn measure(kind: Kind, sinks: u16, seconds: u64) -> Result<Figures, Failure> {
    let mut source = Source::start(kind).map_err(Failure::failed)?;
    let other = Other::start(&source, kind, sinks)?;
    // What is set up on first use, is.
    std::thread::park_timeout(Duration::from_millis(300));
    let clock = Clock::new();
    let mut costs = Vec::new();
    for _ in 0..PACED {
        costs.push(source.publish().0 as f64 / 1e3);
        clock.sleep_until(clock.now() + Span::from_millis(5));
    }
    let before = source.ring_full();
    let (begin, mut sent) = (Instant::now(), 0_u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..16 {
            source.publish();
            sent += 1;
        }
    }
    source.settle(Duration::from_secs(10));
    clock.sleep_until(clock.now() + Span::from_millis(500));
    let ring_full = source.ring_full() - before;
    let seen = other.seen()?;
    let mut last: Vec<f64> = seen.last_ns.iter().map(|ns| *ns as f64 / 1e3).collect();
    let wanted = sent as f64 * f64::from(sinks);
    Ok(Figures {
        publish_us: median(&mut costs),
        last_us: median(&mut last),
        deliveries_per_s: seen.flood as f64 * 1e9 / seen.flood_ns.max(1) as f64,
        lost_share: 1.0 - (seen.flood as f64 / wanted).min(1.0),
        ring_full: ring_full as f64 / wanted,
        inbox_full: seen.inbox_full as f64 / wanted,
        sink_full: seen.sink_full as f64 / wanted,
    })
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median of each figure.
fn medians(all: &[Figures]) -> Figures {
    let of =
        |figure: fn(&Figures) -> f64| median(&mut all.iter().map(figure).collect::<Vec<f64>>());
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

pub(super) fn command(args: &BenchArgs) -> Result<(), Failure> {
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
        let spans = bench::opening().map_err(Failure::failed)?;
        for (all, span) in opening.iter_mut().zip(spans) {
            all.push(span.0 as f64 / 1e3);
        }
    }
    let [start_us, first_us, second_us] = opening.map(|mut all| median(&mut all));
    let mut noticed = Vec::new();
    for _ in 0..args.rounds.max(5) {
        let source = Source::start(Kind::Channel).map_err(Failure::failed)?;
        let mut other = Other::start(&source, Kind::Channel, 1)?;
        other.0.kill()?;
        let lost = source.lost(Duration::from_secs(10));
        noticed.push(lost.map_or(f64::INFINITY, |span| span.0 as f64 / 1e6));
    }
    let noticed_ms = median(&mut noticed);
    let mut out = std::io::stdout().lock();
    if args.json {
        let rows: Vec<Value> = rows.iter().map(row).collect();
        let report = json!({
            "sinks": rows,
            "start_us": start_us,
            "open_first_us": first_us,
            "open_second_us": second_us,
            "killed_noticed_ms": noticed_ms,
        });
        writeln!(out, "{report}")?;
        return Ok(out.flush()?);
    }
    let mut table = Table::new(&[
        ("sinks", Align::Right),
        ("", Align::Left),
        ("publish, us", Align::Right),
        ("the last has it, us", Align::Right),
        ("deliveries/s", Align::Right),
        ("lost", Align::Right),
        ("why", Align::Left),
    ]);
    for Row { sinks, bare, channel, reliable, engine } in &rows {
        let all = [
            ("bare Zenoh", Some(bare)),
            ("channel", Some(channel)),
            ("reliable", Some(reliable)),
            ("without rings", engine.as_ref()),
        ];
        for (name, figures) in all {
            let Some(figures) = figures else { continue };
            table.row([
                sinks.to_string(),
                name.to_owned(),
                format!("{:.2}", figures.publish_us),
                format!("{:.0}", figures.last_us),
                format!("{:.0}", figures.deliveries_per_s),
                format!("{:.1} %", figures.lost_share * 100.0),
                figures.why(),
            ]);
        }
        table.row([
            sinks.to_string(),
            "channel / bare".to_owned(),
            format!("{:.2}", channel.publish_us / bare.publish_us),
            format!("{:.2}", channel.last_us / bare.last_us),
            format!("{:.2}", channel.deliveries_per_s / bare.deliveries_per_s),
        ]);
    }
    write!(out, "{table}")?;
    writeln!(
        out,
        "taking part {start_us:.0} us, opening the first channel {first_us:.0} us, a second \
         {second_us:.1} us\na killed member is noticed after {noticed_ms:.1} ms"
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

fn row(Row { sinks, bare, channel, reliable, engine }: &Row) -> Value {
    let value = |one: &Figures| {
        json!({
            "publish_us": one.publish_us,
            "last_us": one.last_us,
            "deliveries_per_s": one.deliveries_per_s,
            "lost_share": one.lost_share,
            "ring_full_share": one.ring_full,
            "inbox_full_share": one.inbox_full,
            "sink_full_share": one.sink_full,
        })
    };
    json!({
        "sinks": sinks,
        "bare": value(bare),
        "channel": value(channel),
        "reliable": value(reliable),
        "without_rings": engine.as_ref().map(value),
    })
}

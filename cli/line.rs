//! `selvedge line`: two programs with a bad link between them, changes of a link that runs, records of real paths.

mod record;

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Command;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use selvedge_cli_terminal::{Failure, Table, signals};
use selvedge_comm_line::changes::{ChangeRequest, ChangeSocket};
use selvedge_comm_line::{
    Address, DeviceKind, Direction, DirectionReport, Ends, EndsError, Link, Outcome, Programs,
    Recorder, Relay, Session, Side, address,
};
use selvedge_control_config::network::NetworkConfig;
use selvedge_data_net_line::Drop;
use selvedge_data_stream::Histogram;
use selvedge_os::clock::Clock;
use selvedge_os::first_process;
use selvedge_place_cpu::daemon;
use selvedge_units::Duration;
use serde_json::{Value, json};

use crate::{network_file, time};

/// How long a line may be asked to run.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);

#[derive(Debug, Args)]
pub(crate) struct LineArgs {
    #[command(subcommand)]
    command: Option<LineCommand>,
    /// A network file with the hosts near and far, or the name of a network that comes with Selvedge
    #[arg(required = true, value_name = "NETWORK")]
    network: Option<String>,
    /// The program at the near end, a command line for sh
    #[arg(long, value_name = "COMMAND", required_unless_present = "between")]
    near: Option<OsString>,
    /// The program at the far end
    #[arg(long, value_name = "COMMAND", required_unless_present = "between")]
    far: Option<OsString>,
    /// Join two network namespaces of `ip netns` instead, near and far; needs root
    #[arg(long, num_args = 2, value_names = ["NEAR", "FAR"], conflicts_with_all = ["near", "far"])]
    between: Option<Vec<String>>,
    /// The name for `line set` (default: the network's)
    #[arg(long)]
    name: Option<String>,
    /// End after this time, such as 30s
    #[arg(long = "for", value_name = "TIME", value_parser = time::within(TIMES))]
    lasts: Option<Duration>,
    /// Losses, delays and faults are the same with the same seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write what became of each packet, as CSV
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// What carries packets to the line: TUN devices, or veth pairs with packet sockets
    #[arg(long, default_value = "any", value_parser = one_of(DeviceKind::NAMES, DeviceKind::from_name))]
    devices: DeviceKind,
    /// At the end print what became of the packets as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// A parser of the names of some values.
fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    names: [&'static str; N],
    from_name: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names)
        .map(move |name| from_name(&name).expect("the parser has found it among the names"))
}

#[derive(Debug, Subcommand)]
enum LineCommand {
    /// Change a line that runs, in the words of its network file
    #[command(after_help = "All keys of a link but the queue can be changed.\n\n\
                            Example:\n  selvedge line set lte-bad loss=3%\n  \
                            selvedge line set lte-bad --direction back 'rate=2 Mbit/s' delay=80ms")]
    Set(SetArgs),
    /// Note what a real path does, by probes: its rates, delays and losses, as a network file
    #[command(
        after_help = "The far end runs with --listen. Both ends send no more than their --rate-limit on \
                            average. Ctrl-C writes what is known.\n\n\
                            Example:\n  selvedge line record --listen 0.0.0.0:7900\n  \
                            selvedge line record 127.0.0.1:7900 --for 5s --out path.toml"
    )]
    Record(record::RecordArgs),
    /// Run a command line as the first process of a namespace
    #[command(hide = true)]
    First { line: OsString, lifeline: i32 },
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The line's name
    name: String,
    /// What changes, such as loss=3%
    #[arg(required = true, value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Only this link (default: all)
    #[arg(long)]
    link: Option<String>,
    /// Only this direction, from near to far or back (default: both)
    #[arg(long, value_parser = one_of(Direction::NAMES, Direction::from_name))]
    direction: Option<Direction>,
}

pub(crate) fn command(args: &LineArgs) -> Result<(), Failure> {
    match &args.command {
        None => run(args),
        Some(LineCommand::Set(args)) => set(args),
        Some(LineCommand::Record(args)) => record::command(args),
        Some(LineCommand::First { line, lifeline }) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(line);
            match first_process::serve(*lifeline, command).map_err(Failure::failed)? {
                0 => Ok(()),
                status => Err(Failure::Status(status)),
            }
        }
    }
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    let SetArgs { name, changes, link, direction } = args;
    let request =
        ChangeRequest { link: link.clone(), direction: *direction, changes: changes.clone() };
    let folder = daemon::folder().map_err(Failure::failed)?;
    let changed =
        selvedge_comm_line::changes::request(&folder, name, &request).map_err(Failure::failed)?;
    let mut out = io::stdout().lock();
    for direction in &changed.directions {
        writeln!(out, "{direction}: {}", changes.join(", "))?;
    }
    if changed.directions.is_empty() {
        writeln!(out, "nothing changed: {} was so already", changes.join(", "))?;
    }
    Ok(())
}

fn run(args: &LineArgs) -> Result<(), Failure> {
    let network = args.network.as_deref().unwrap_or_default();
    let config = network_file::read(network)?;
    let links = links(network, &config)?;
    let stop = signals::stop_flag()?;
    let folder = daemon::folder().map_err(Failure::failed)?;
    // Before there is any other thread: a user without rights gets a user namespace here.
    let ends = ends(args, &links)?;
    let name = args.name.as_deref().unwrap_or(&config.name);
    let changes = ChangeSocket::listen(&folder, name).map_err(Failure::failed)?;
    let names = || links.iter().map(|link| link.name.clone()).collect();
    let recorder = args.record.as_deref().map(|path| Recorder::create(path, names()));
    let recorder = recorder.transpose().map_err(Failure::failed)?;
    introduce(&config, &links, &ends, name)?;
    let programs = match (&args.near, &args.far) {
        (Some(near), Some(far)) => {
            let own = std::env::current_exe()?;
            let first = [own.into_os_string(), "line".into(), "first".into()];
            Some(Programs::start(&ends, &first, [near, far])?)
        }
        _ => None,
    };
    let clock = Clock::new();
    let until = args.lasts.map(|lasts| clock.now() + lasts);
    let relay = Relay::new(ends, links, args.seed, clock, recorder);
    let session = Session { relay, programs, changes: Some(changes), clock, until };
    let outcome = session.run(&stop).map_err(Failure::failed)?;
    if args.json {
        writeln!(io::stdout().lock(), "{}", as_json(name, &outcome))?;
    } else {
        write!(io::stderr().lock(), "{}", as_table(&outcome))?;
    }
    if outcome.left_out > 0 {
        let (file, n) = (args.record.clone().unwrap_or_default(), outcome.left_out);
        writeln!(io::stderr().lock(), "selvedge: {n} packets are not in {}", file.display())?;
    }
    match outcome.near {
        None | Some(0) => Ok(()),
        Some(status) => Err(Failure::Status(status)),
    }
}

/// The links of a network with the hosts near and far.
fn links(file: &str, config: &NetworkConfig) -> Result<Vec<Link>, Failure> {
    let hosts: Vec<&str> = config.hosts.iter().map(|host| host.name.as_str()).collect();
    let mut sorted = hosts.clone();
    sorted.sort_unstable();
    if sorted != ["far", "near"] {
        let hosts = hosts.join(", ");
        let why = "a line is between the hosts near and far, and this network has";
        return Err(Failure::input(format!("{file}: {why} {hosts}; `selvedge sim` runs any")));
    }
    let links = config.links.iter().map(|link| {
        let (mut there, mut back) = (link.there.clone(), link.back.clone());
        if hosts[link.ends[0]] == "far" {
            std::mem::swap(&mut there, &mut back);
        }
        Link { name: link.name.clone(), there, back }
    });
    Ok(links.collect())
}

fn ends(args: &LineArgs, links: &[Link]) -> Result<Ends, Failure> {
    let made = match args.between.as_deref() {
        Some([near, far]) => Ends::between([near, far], links, args.devices),
        _ => Ends::new(links, args.devices),
    };
    made.map_err(|why| match why {
        EndsError::Links(_) | EndsError::Named { .. } => Failure::input(why),
        _ => Failure::failed(why),
    })
}

/// What there is before the programs run, on standard error, since they write to standard output.
fn introduce(
    config: &NetworkConfig,
    links: &[Link],
    ends: &Ends,
    name: &str,
) -> Result<(), Failure> {
    let mut err = io::stderr().lock();
    let by = if ends.is_tun() { "TUN devices" } else { "packet sockets on veth pairs" };
    let about = if config.about.is_empty() { "" } else { ": " };
    writeln!(err, "line {name}{about}{}; by {by}", config.about)?;
    for (number, link) in (1..).zip(links) {
        let [near, far] = Side::ALL.map(|side| {
            let Address { v4, v6 } = address(side, number);
            format!("{side} {v4} {v6}")
        });
        writeln!(err, "link {number} {}: {near}, {far}", link.name)?;
    }
    let ignored = config.traffic.len() + config.senders.len();
    if ignored > 0 {
        let why = "the programs are the traffic";
        writeln!(err, "selvedge: {ignored} tables of traffic and senders are left out: {why}")?;
    }
    Ok(())
}

/// A quantile in milliseconds.
fn ms(histogram: &Histogram, share: f64) -> Option<f64> {
    histogram.quantile(share).map(Duration::as_millis_f64)
}

/// Counts with names, of which zeros are left out.
fn listed(counts: impl IntoIterator<Item = (&'static str, u64)>) -> String {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

fn drops(report: &DirectionReport) -> [(&'static str, u64); Drop::COUNT] {
    Drop::ALL.map(|why| (why.name(), report.counts.dropped(why)))
}

fn others(report: &DirectionReport) -> [(&'static str, u64); 6] {
    [
        ("duplicated", report.counts.duplicated),
        ("corrupted", report.counts.corrupted),
        ("marked", report.marked),
        ("under-way", report.under_way),
        ("refused", report.refused),
        ("no-memory", report.no_memory),
    ]
}

fn as_table(outcome: &Outcome) -> Table {
    let mut table = Table::default()
        .left(["link", "direction"])
        .right(["packets", "bytes", "arrived", "delay", "p99", "late p99"])
        .left(["dropped", "also"]);
    for (link, direction, report) in &outcome.directions {
        let shown = |ms: Option<f64>| ms.map(|ms| format!("{ms:.3} ms")).unwrap_or_default();
        table.row([
            link.clone(),
            direction.name().to_owned(),
            report.counts.packets.to_string(),
            report.counts.bytes.0.to_string(),
            report.counts.arrived.to_string(),
            shown(ms(&report.delay, 0.5)),
            shown(ms(&report.delay, 0.99)),
            shown(ms(&report.late, 0.99)),
            listed(drops(report)),
            listed(others(report)),
        ]);
    }
    table
}

fn as_json(name: &str, outcome: &Outcome) -> Value {
    let named = |counts: &[(&'static str, u64)]| -> Value {
        counts.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect()
    };
    let quantiles =
        |histogram: &Histogram| json!({ "median": ms(histogram, 0.5), "p99": ms(histogram, 0.99) });
    let directions = outcome.directions.iter().map(|(link, direction, report)| {
        json!({
            "link": link,
            "direction": direction.name(),
            "packets": report.counts.packets,
            "bytes": report.counts.bytes.0,
            "arrived": report.counts.arrived,
            "dropped": named(&drops(report)),
            "also": named(&others(report)),
            "delay_ms": quantiles(&report.delay),
            "late_ms": quantiles(&report.late),
        })
    });
    json!({
        "line": name,
        "seconds": outcome.lasted.as_secs_f64(),
        "near_status": outcome.near,
        "not_recorded": outcome.left_out,
        "directions": directions.collect::<Value>(),
    })
}

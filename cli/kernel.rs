//! `selvedge kernel`: a device's packets scheduled in the kernel.

use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use selvedge_cli_terminal::{Failure, Table};
use selvedge_data_sched::{Discipline, Tree};
use selvedge_data_stream::{Class, Contract, Late, Window, WindowError, Windows};
use selvedge_place_kernel::{
    AttachError, Attached, Filter, FilterError, OpenError, Report, Setup, StreamReport,
    StreamSetup, attach, detach,
};
use selvedge_units::{Bitrate, Duration};
use serde_json::{Value, json};

use crate::node_file;
use crate::time::{self, TimeError};
use selvedge_cli_terminal::trace::named;

/// The period of a stream whose node file leaves it to the media, which are invisible to the kernel: 25
/// a second. Deadlines go by the stream's delay.
const PERIOD_UNKNOWN: Duration = Duration::from_millis(40);

/// The bursts and periods of a device that are allowed.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

#[derive(Subcommand)]
pub(crate) enum KernelCommand {
    /// Give a device the scheduler as its qdisc; it stays until detached
    #[command(
        after_help = "A stream: NAME, then any of period=40ms delay=200ms window=1/5 late=drop|send\n\
                            work-conserving=yes|no priority=0 limit=1000 txtime=yes|no, and its filters:\n\
                            port=5004 source-port=5004 mark=7 cookie=12 cgroup=/sys/fs/cgroup/media.\n\
                            A packet counts as a frame. Streams of node files go by the port they are sent to.\n\n\
                            Example:\n  selvedge kernel attach eth0 --rate '20 Mbit/s' \\\n    \
                            --stream video,period=4ms,window=1/5,port=5004 --stream talk,period=20ms,port=5012\n  \
                            selvedge kernel attach lo --node scenarios/studio.toml"
    )]
    Attach(KernelAttachArgs),
    /// Give a device its own qdisc back
    #[command(after_help = "Example:\n  selvedge kernel detach eth0")]
    Detach {
        /// The device
        device: String,
    },
    /// Show what became of a device's streams
    #[command(after_help = "Example:\n  selvedge kernel show eth0 --json | jq .streams")]
    Show {
        /// The device
        device: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a stream one more filter, while it runs
    #[command(after_help = "Example:\n  selvedge kernel bind eth0 video cookie=4711")]
    Bind {
        /// The device
        device: String,
        /// The stream
        stream: String,
        /// Which packets
        filter: Filter,
    },
    /// Take a filter away
    #[command(after_help = "Example:\n  selvedge kernel unbind eth0 cookie=4711")]
    Unbind {
        /// The device
        device: String,
        /// Which packets
        filter: Filter,
    },
}

#[derive(Debug, Args)]
pub(crate) struct KernelAttachArgs {
    /// The device
    pub(crate) device: String,
    /// Take streams, rate and discipline from a node file; again for more, which share the device
    #[arg(long, value_name = "NODE.toml")]
    pub(crate) node: Vec<PathBuf>,
    /// A stream; again for more
    #[arg(long, value_name = "NAME,KEY=VALUE...")]
    pub(crate) stream: Vec<String>,
    /// How fast packets go, IP headers counted in (default: the node files' links together, or as
    /// fast as the device takes them)
    #[arg(long)]
    pub(crate) rate: Option<Bitrate>,
    /// How much a late wake-up may catch up on
    #[arg(long, default_value = "1 ms", value_parser = time::within(TIMES))]
    pub(crate) burst: Duration,
    /// The order in which packets go: dwcs, dwcs98, edf, priority, fifo, vds, wfq, sfq, drr, hwfq
    /// with a node file's tree, mixed (default: the node files', or dwcs)
    #[arg(long)]
    pub(crate) discipline: Option<String>,
    /// How often a packet of no stream is due
    #[arg(long, default_value = "10 ms", value_parser = time::within(TIMES))]
    pub(crate) rest: Duration,
}

pub(crate) fn command(command: &KernelCommand) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match command {
        KernelCommand::Attach(args) => {
            let setup = setup(args)?;
            attach(&args.device, &setup).map_err(of_attach)?;
            let device = &args.device;
            let streams = match setup.streams.len() {
                1 => "1 stream".to_owned(),
                n => format!("{n} streams"),
            };
            let rate = setup.rate.map_or_else(|| "the device's rate".to_owned(), mbit);
            let discipline = setup.discipline;
            writeln!(out, "{device} schedules by {discipline} at {rate}: {streams} and the rest")?;
        }
        KernelCommand::Detach { device } => detach(device).map_err(of_attach)?,
        KernelCommand::Show { device, json } => {
            let report =
                Attached::open(device).and_then(|qdisc| qdisc.report()).map_err(of_open)?;
            if *json {
                writeln!(out, "{}", as_json(&report))?;
            } else {
                write!(out, "{}", as_text(&report))?;
            }
        }
        KernelCommand::Bind { device, stream, filter } => {
            Attached::open(device)
                .and_then(|qdisc| qdisc.bind(stream, *filter))
                .map_err(of_open)?;
        }
        KernelCommand::Unbind { device, filter } => {
            Attached::open(device).and_then(|qdisc| qdisc.unbind(*filter)).map_err(of_open)?;
        }
    }
    Ok(())
}

/// Errors of the input end with status 2, those of this machine with 1.
fn of_attach(error: AttachError) -> Failure {
    match error {
        AttachError::Setup(_)
        | AttachError::NoDevice { .. }
        | AttachError::Already { .. }
        | AttachError::Occupied { .. }
        | AttachError::NotAttached { .. } => Failure::input(error),
        AttachError::Load(_)
        | AttachError::NoBpfFs(_)
        | AttachError::Device { .. }
        | AttachError::Pin { .. }
        | AttachError::Full(_) => Failure::failed(error),
    }
}

fn of_open(error: OpenError) -> Failure {
    match error {
        OpenError::Attach(error) => of_attach(error),
        OpenError::Pinned { .. } | OpenError::NotPermitted(_) | OpenError::Version(_) => {
            Failure::failed(error)
        }
        OpenError::NoStream { .. } | OpenError::Taken { .. } | OpenError::NoFilter(_) => {
            Failure::input(error)
        }
    }
}

/// All streams that were named, by options and node files.
fn setup(args: &KernelAttachArgs) -> Result<Setup, Failure> {
    let mut setup = Setup { burst: args.burst, ..Setup::default() };
    setup.rest.period = args.rest;
    let mut disciplines: Vec<Discipline> = Vec::new();
    let mut rate = Bitrate(0);
    for path in &args.node {
        node(path, &mut setup, &mut disciplines, &mut rate)?;
    }
    for text in &args.stream {
        let wrong = |why| Failure::input(format!("--stream \"{text}\": {why}"));
        setup.streams.push(stream(text).map_err(wrong)?);
    }
    setup.rate = args.rate.or_else(|| Some(rate).filter(|rate| rate.0 > 0));
    disciplines.dedup();
    setup.discipline = match (&args.discipline, disciplines.as_slice()) {
        (Some(name), _) => named(name)?,
        (None, []) => Discipline::Dwcs,
        (None, [one]) => *one,
        (None, [one, other, ..]) => {
            return Err(Failure::input(format!(
                "the node files' links have the disciplines {one} and {other}, a device has one; \
                 say which with --discipline"
            )));
        }
    };
    setup.check().map_err(Failure::input)?;
    Ok(setup)
}

/// The streams of a node file, by the ports that they are sent to.
fn node(
    path: &Path,
    setup: &mut Setup,
    disciplines: &mut Vec<Discipline>,
    rate: &mut Bitrate,
) -> Result<(), Failure> {
    let file = node_file::read(path)?;
    for link in &file.config.links {
        disciplines.push(link.discipline);
        if link.tree != Tree::default() {
            if setup.tree != Tree::default() {
                return Err(Failure::input(format!(
                    "{}: link \"{}\" has a tree, and so has another link; a device has one",
                    path.display(),
                    link.name
                )));
            }
            setup.tree = link.tree.clone();
        }
        *rate = Bitrate(rate.0.saturating_add(link.rate.0));
    }
    let mut wrong = Vec::new();
    for stream in &file.config.streams {
        if matches!(stream.spec.contract.windows, Windows::PerKind(_)) {
            let why = "the kernel can't tell kinds of frames apart; give one window for all, such \
                       as \"1/5\"";
            wrong.push((format!("stream.{}.window", stream.spec.name), why.to_owned()));
        }
        let contract = stream.spec.clone().with_media_period(PERIOD_UNKNOWN).contract;
        let filter = Filter::Port(stream.spec.to.port());
        let filters = vec![filter];
        setup
            .streams
            .push(StreamSetup { filters, ..StreamSetup::new(&stream.spec.name, contract) });
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Failure::input(node_file::lines(&file.errors(wrong))))
    }
}

/// Why a text of `--stream` describes no stream.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("a stream begins with its name, such as video,period=4ms,port=5004")]
    Name,
    #[error("\"{0}\" is not KEY=VALUE")]
    Form(String),
    #[error(
        "there is no \"{0}\"; there are period, delay, window, late, work-conserving, priority, \
         weight, class, limit, txtime, port, source-port, mark, cookie, cgroup"
    )]
    Key(String),
    #[error("{key}: {error}")]
    Time { key: String, error: TimeError },
    #[error("window: {0}")]
    Window(#[from] WindowError),
    #[error("{key}: \"{value}\" is none of {words}")]
    Word { key: String, value: String, words: &'static str },
    #[error("{key}: \"{value}\" is no whole number from {from} to {to}")]
    Number { key: String, value: String, from: i64, to: i64 },
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// `NAME,KEY=VALUE,...`.
fn stream(text: &str) -> Result<StreamSetup, StreamError> {
    let mut parts = text.split(',').map(str::trim);
    let name = parts.next().unwrap_or_default();
    if name.is_empty() || name.contains('=') {
        return Err(StreamError::Name);
    }
    let contract = Contract::new(Duration::from_millis(40), Window { lose: 1, of: 5 });
    let mut stream = StreamSetup::new(name, contract);
    for part in parts {
        let (key, value) =
            part.split_once('=').ok_or_else(|| StreamError::Form(part.to_owned()))?;
        if FILTERS.contains(&key.trim()) {
            stream.filters.push(part.parse()?);
        } else {
            set(&mut stream, key.trim(), value.trim())?;
        }
    }
    Ok(stream)
}

/// The keys that select the stream's packets.
const FILTERS: [&str; 5] = ["port", "source-port", "mark", "cookie", "cgroup"];

/// Sets one key of a stream.
fn set(stream: &mut StreamSetup, key: &str, value: &str) -> Result<(), StreamError> {
    let owned = || (key.to_owned(), value.to_owned());
    let time = || {
        let time = time::within(Duration::from_micros(1)..=Duration::from_secs(3600));
        time(value).map_err(|error| StreamError::Time { key: key.to_owned(), error })
    };
    let word = |words: &'static str| {
        let (key, value) = owned();
        StreamError::Word { key, value, words }
    };
    let number = |from: i64, to: i64| {
        let read = value.parse::<i64>().ok().filter(|number| (from..=to).contains(number));
        let (key, value) = owned();
        read.ok_or(StreamError::Number { key, value, from, to })
    };
    let count = || number(1, 1_000_000).map(|count| count as u32);
    let yes = || match value {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(word("yes and no")),
    };
    let contract = &mut stream.contract;
    match key {
        "period" => contract.period = time()?,
        "delay" => contract.delay = Some(time()?),
        "window" => contract.windows = Windows::Whole(value.parse::<Window>()?),
        "late" => {
            contract.late = Late::from_name(value).ok_or_else(|| word("drop and send"))?;
        }
        "work-conserving" => contract.work_conserving = yes()?,
        "txtime" => stream.by_txtime = yes()?,
        "priority" => contract.priority = number(i32::MIN.into(), i32::MAX.into())? as i32,
        "weight" => contract.weight = count()?,
        "class" => {
            contract.class =
                Class::from_name(value).ok_or_else(|| word("edf, priority and fair"))?;
        }
        "limit" => stream.limit = count()?,
        _ => return Err(StreamError::Key(key.to_owned())),
    }
    Ok(())
}

fn mbit(rate: Bitrate) -> String {
    format!("{} Mbit/s", rate.0 as f64 / 1e6)
}

fn as_json(report: &Report) -> Value {
    let stream = |stream: &StreamReport| {
        json!({
            "name": stream.name,
            "period_ns": stream.contract.period.0,
            "delay_ns": stream.contract.delay.map(|delay| delay.0),
            "window": [stream.window().lose, stream.window().of],
            "current": [stream.current.lose, stream.current.of],
            "sent": stream.counters.sent,
            "late": stream.counters.late,
            "missed": stream.counters.missed,
            "dropped": stream.counters.dropped,
            "violations": stream.counters.violations,
            "overflow": stream.overflow,
            "bytes": stream.bytes.0,
            "waiting": stream.waiting,
            "filters": stream.filters.iter().map(|filter| filter.shown()).collect::<Vec<_>>(),
        })
    };
    json!({
        "device": report.device,
        "qdisc": report.qdisc,
        "discipline": report.discipline.name(),
        "at_ns": report.at.0,
        "rate_bps": report.rate.map(|rate| rate.0),
        "unknown": report.unknown,
        "streams": report.streams.iter().map(stream).collect::<Vec<_>>(),
    })
}

fn as_text(report: &Report) -> String {
    let mut table = Table::default()
        .left(["stream", "packets", "window", "now"])
        .right(["sent", "late", "missed", "dropped"])
        .right(["violations", "overflow", "waiting"]);
    for stream in &report.streams {
        let filters: Vec<String> = stream.filters.iter().map(|filter| filter.shown()).collect();
        let counters = stream.counters;
        table.row([
            stream.name.clone(),
            filters.join(" "),
            stream.window().to_string(),
            stream.current.to_string(),
            counters.sent.to_string(),
            counters.late.to_string(),
            counters.missed.to_string(),
            counters.dropped.to_string(),
            counters.violations.to_string(),
            stream.overflow.to_string(),
            stream.waiting.to_string(),
        ]);
    }
    let rate = report.rate.map_or_else(|| "the device's rate".to_owned(), mbit);
    let Report { device, qdisc, discipline, .. } = report;
    format!("{device} has {qdisc}, which schedules by {discipline} at {rate}.\n\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_reads() {
        let read =
            stream("video,period=4ms,window=1/5,late=send,port=5004,mark=7,limit=9").unwrap();
        assert_eq!(read.contract.period, Duration::from_millis(4));
        assert_eq!(read.contract.windows, Windows::Whole(Window { lose: 1, of: 5 }));
        assert_eq!((read.contract.late, read.limit, read.filters.len()), (Late::Send, 9, 2));
    }

    #[test]
    fn a_bad_stream_says_what_is_wrong() {
        for (text, expected) in [
            ("", "begins with its name"),
            ("port=1", "begins with its name"),
            ("a,colour=red", "no \"colour\""),
            ("a,period", "\"period\" is not KEY=VALUE"),
            ("a,period=0ms", "period: 0 ms is out of range; write 1 us to 3600 s"),
            ("a,window=3/2", "window: "),
            ("a,late=maybe", "none of drop and send"),
            ("a,port=70000", "\"port=70000\" is not a filter"),
            ("a,limit=0", "limit: \"0\" is no whole number from 1"),
            ("a,weight=0", "weight: \"0\" is no whole number from 1"),
            ("a,class=first", "none of edf, priority and fair"),
            ("a,txtime=perhaps", "txtime: "),
        ] {
            let error = stream(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

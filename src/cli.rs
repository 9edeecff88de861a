//! What may be typed: commands, their arguments, their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Keeps live media on time.
#[derive(Parser)]
#[command(
    name = "selvedge",
    version,
    about = "Keeps live media on time: declare what each stream may lose, and get the most \
             watchable video that the link can carry.",
    after_help = "Exit status: 0 done, 1 failed, 2 bad usage or input.\n\
                  Logs go to standard error; SELVEDGE_LOG=debug shows more.",
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Log more (-v: what happens, -vv: details)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send real clips over a link that is too small, by dwcs and by fifo, side by side
    #[cfg(feature = "gstreamer")]
    #[command(after_help = "Example:\n  selvedge demo --share 0.53 --seconds 30\n  \
                            selvedge demo --clips ~/Videos --json")]
    Demo(DemoArgs),
    /// Run a node described by a file, until SIGINT or SIGTERM
    #[cfg(feature = "gstreamer")]
    #[command(after_help = "Example:\n  selvedge run scenarios/studio.toml")]
    Run(NodeFileArgs),
    /// Check a node file: everything that can be known before starting
    #[command(after_help = "Example:\n  selvedge check scenarios/studio.toml --json")]
    Check(NodeFileArgs),
    /// Receive streams, measure and show them
    #[command(after_help = "Example:\n  selvedge play lecture.sdp --seconds 10\n  \
                            selvedge play rtp://127.0.0.1:5004 --record lecture.rtpdump")]
    Play(PlayArgs),
    /// Watch a running node in the terminal
    #[command(after_help = "Example:\n  selvedge top 127.0.0.1:7700\n  \
                            selvedge top --json | jq .streams[].decodable_share")]
    Top(crate::top::TopOptions),
    /// Replay a trace in unit slots and print each decision as a line of JSON
    #[command(after_help = "Example:\n  selvedge schedule vectors/dwcs-00.json\n  \
                            selvedge schedule trace.json --discipline edf")]
    Schedule(ScheduleArgs),
    /// Measure this machine: decide, dataplane, send, streams
    #[command(after_help = "Example:\n  selvedge bench decide --json\n  \
                            chrt -f 50 taskset -c 1 selvedge bench dataplane")]
    Bench(BenchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The link's rate as a share of what all streams need
    #[arg(long, default_value_t = 0.75, value_parser = share)]
    pub(crate) share: f64,
    /// How long to send
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// A folder with clips of your own, each file a stream
    #[arg(long, value_name = "DIR")]
    pub(crate) clips: Option<PathBuf>,
    /// Where the page is served
    #[arg(long, default_value = "127.0.0.1:7700", value_name = "ADDRESS")]
    pub(crate) listen: std::net::SocketAddr,
    /// Do not serve the page
    #[arg(long)]
    pub(crate) no_page: bool,
    /// The playout delay: how long after its arrival a frame may come
    #[arg(long, default_value = "1 s", value_parser = span)]
    pub(crate) delay: selvedge_units::Span,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NodeFileArgs {
    /// The node file
    #[arg(value_name = "NODE.toml")]
    pub(crate) file: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlayArgs {
    /// An SDP file, or rtp://HOST:PORT to listen on
    #[arg(value_name = "SDP|URL")]
    pub(crate) source: String,
    /// Stop after this long (default: until SIGINT)
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Write every packet to this file, in rtpdump format
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// The trace
    #[arg(value_name = "TRACE.json")]
    pub(crate) file: PathBuf,
    /// Use this discipline in place of the trace's own
    #[arg(long)]
    pub(crate) discipline: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure (default: all)
    #[arg(value_enum)]
    pub(crate) what: Option<BenchWhat>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How long each measurement takes at most
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// decide, dataplane: periods in whole microseconds, so that many deadlines are equal
    #[arg(long)]
    pub(crate) ties: bool,
    /// decide: count the instructions now, by valgrind, in place of the committed table's
    #[arg(long)]
    pub(crate) instructions: bool,
    /// What --instructions runs under valgrind
    #[arg(long, hide = true, value_name = "DISCIPLINE:STREAMS:DECISIONS", value_parser = count)]
    pub(crate) count: Option<CountArgs>,
}

/// So many decisions, and nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountArgs {
    pub(crate) discipline: selvedge_sched::Discipline,
    pub(crate) streams: u32,
    pub(crate) decisions: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchWhat {
    /// Packets a second: scheduled, and plain with the same system calls
    Send,
    /// Nanoseconds a decision, beside a binary heap's
    Decide,
    /// Frames a second through queues and decisions, beside DPDK's rte_sched
    Dataplane,
    /// A thousand streams of 30 frames a second on one core
    Streams,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was typed, or a file that it names, is wrong: exit status 2.
    Input(String),
    /// It was right, but could not be done: exit status 1.
    Failed(String),
    /// Whoever read our output has gone.
    BrokenPipe,
}

impl Failure {
    pub(crate) fn failed(why: impl std::fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }

    pub(crate) fn input(why: impl std::fmt::Display) -> Self {
        Self::Input(why.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::failed(error),
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "write a fraction such as 0.75".to_owned())?;
    if (0.01..=10.0).contains(&share) {
        Ok(share)
    } else {
        Err("the share must lie between 0.01 and 10".to_owned())
    }
}

fn count(text: &str) -> Result<CountArgs, String> {
    let parsed = match text.split(':').collect::<Vec<_>>()[..] {
        [discipline, streams, decisions] => selvedge_sched::Discipline::from_name(discipline)
            .zip(streams.parse().ok())
            .zip(decisions.parse().ok()),
        _ => None,
    };
    let ((discipline, streams), decisions) =
        parsed.ok_or_else(|| "write DISCIPLINE:STREAMS:DECISIONS".to_owned())?;
    Ok(CountArgs { discipline, streams, decisions })
}

fn span(text: &str) -> Result<selvedge_units::Span, String> {
    let span: selvedge_units::Span =
        text.parse().map_err(|e: selvedge_units::ParseUnitError| e.to_string())?;
    let range = selvedge_units::Span::from_millis(1)..=selvedge_units::Span::from_secs(60);
    if range.contains(&span) { Ok(span) } else { Err("from 1 ms to 60 s".to_owned()) }
}

//! What may be typed: the laboratory's commands, their arguments, their help.

use clap::{Args, Parser, Subcommand};

use crate::bench::configurations::ConfigurationArgs;
use crate::bench::immunity::ImmunityArgs;
use crate::channels::ChannelsArgs;
use crate::channels::sinks::SinksArgs;

/// Measures Selvedge on this machine.
#[derive(Parser)]
#[command(
    name = "selvedge-lab",
    version,
    about = "Measures Selvedge on this machine, beside named peers, and runs the papers' experiments.",
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
    /// Measure this machine: decisions, packets, hand-overs, events, readiness, stacks, channels
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Example:\n  selvedge-lab bench decide --json\n  \
                            taskset -c 1 selvedge-lab bench dataplane\n  \
                            selvedge-lab bench stack --configuration c,1p,2p,4p,m --connections 1..10\n  \
                            selvedge-lab bench channels --sinks 20"
    )]
    Bench(BenchCommand),
    /// Run the papers' experiments on this machine and check their claims
    #[command(
        after_help = "Example:\n  selvedge-lab repro --list\n  selvedge-lab repro ss-t3 ni-t3 \
                            --out plots\n  selvedge-lab repro --all --kind V --quick"
    )]
    Repro(crate::repro::ReproArgs),
    /// Replay a trace in the simulated hardware and print each decision as a line of JSON
    #[command(
        after_help = "Example:\n  selvedge-lab schedule vectors/01-dwcs-backlogged.json --engine rtl"
    )]
    Schedule(crate::schedule::ScheduleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    pub(crate) args: BenchArgs,
    #[command(subcommand)]
    pub(crate) command: Option<BenchPart>,
}

/// Measurements with arguments of their own; not among those that run by default.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchPart {
    /// Publishing to 1 sink and to many, delivery, opening, beside bare Zenoh
    #[command(
        after_help = "Sinks are sessions of another process. Figures are medians.\n\nExample:\n  \
                            selvedge-lab bench channels --sinks 100 --json"
    )]
    Channels(ChannelsArgs),
    /// Two clips through nodes beside endless loops, by where their links are scheduled
    #[command(
        after_help = "Ratios are within one round; a percentile is told from 100,000 packets on, otherwise the \
                      longest wait.\n\nExample:\n  selvedge-lab bench immunity --quick\n  \
                            selvedge-lab bench immunity --loops 0,4 --placement ordinary,coprocessor --json"
    )]
    Immunity(ImmunityArgs),
    /// The other process of `channels`
    #[command(hide = true)]
    ChannelSinks(SinksArgs),
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
    #[command(flatten)]
    pub(crate) configurations: ConfigurationArgs,
    /// Arguments for the second process of `events`
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    pub(crate) peer: Option<String>,
}

/// So many decisions, and nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountArgs {
    pub(crate) discipline: selvedge_data_sched::Discipline,
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
    /// Nanoseconds a call of an E-code handler in each back end, beside Rust; source to runnable
    Code,
    /// Hand-over to a coprocessor, its wake-up, and its packets a second beside inline
    Coprocessor,
    /// Streams of a media file a core: a coprocessor that reads it, nginx, and FFmpeg
    Files,
    /// Events from process to process over rings, beside bare futex, eventfd and signal
    Events,
    /// Learning which of 1,000 and 10,000 sockets are ready: shared memory, epoll, io_uring, poll
    #[cfg(feature = "kernel")]
    Readiness,
    /// Throughput and latency of stacks, beside UDP, TCP, TLS (rustls) and QUIC (quinn)
    Stack,
    /// Delays of a firm contract between two stacks beside busy threads, and what is refused
    Firm,
}

/// The text is no work to count.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write DISCIPLINE:STREAMS:DECISIONS")]
struct WorkError;

fn count(text: &str) -> Result<CountArgs, WorkError> {
    let parsed = match text.split(':').collect::<Vec<_>>()[..] {
        [discipline, streams, decisions] => selvedge_data_sched::Discipline::from_name(discipline)
            .zip(streams.parse().ok())
            .zip(decisions.parse().ok()),
        _ => None,
    };
    let ((discipline, streams), decisions) = parsed.ok_or(WorkError)?;
    Ok(CountArgs { discipline, streams, decisions })
}

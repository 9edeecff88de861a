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
    #[command(after_help = "Example:\n  selvedge run scenarios/studio.toml\n  \
                            selvedge run scenarios/studio.toml --events")]
    Run(RunArgs),
    /// Check a node file: everything that can be known before starting
    #[command(after_help = "Example:\n  selvedge check scenarios/studio.toml --json")]
    Check(NodeFileArgs),
    /// Receive streams, measure and show them
    #[command(after_help = "Example:\n  selvedge play lecture.sdp --seconds 10\n  \
                            selvedge play rtp://127.0.0.1:5004 --record lecture.rtpdump\n  \
                            selvedge play stack://127.0.0.1:5004 --seconds 10")]
    Play(PlayArgs),
    /// Watch a running node in the terminal
    #[command(after_help = "Example:\n  selvedge top 127.0.0.1:7700\n  \
                            selvedge top --json | jq .streams[].decodable_share")]
    Top(crate::top::TopOptions),
    /// Replay a trace in unit slots and print each decision as a line of JSON
    #[command(after_help = "Example:\n  selvedge schedule vectors/dwcs-00.json\n  \
                            selvedge schedule trace.json --discipline edf\n  \
                            selvedge schedule trace.json --engine coprocessor")]
    Schedule(ScheduleArgs),
    /// Say whether the streams of a trace fit, which one does not, and what would
    #[command(after_help = "Exit status: 1 if they do not fit.\n\nExample:\n  \
                            selvedge admit vectors/01-dwcs-backlogged.json\n  \
                            selvedge admit trace.json --discipline edf --json")]
    Admit(AdmitArgs),
    /// Make trace files
    #[command(subcommand)]
    Trace(crate::trace::TraceCommand),
    /// Check, run and look into handlers written in E-code
    #[command(subcommand)]
    Code(crate::code::CodeCommand),
    /// Event channels among programs and hosts: list, send, receive, deploy handlers
    #[command(subcommand)]
    Events(crate::events::EventsCommand),
    /// Protocol stacks: check a line, profile modules, show connections
    #[command(subcommand)]
    Stack(crate::stack::StackCommand),
    /// Now `selvedge-lab bench`
    #[command(hide = true, disable_help_flag = true)]
    Bench(crate::lab::LabArgs),
    /// Now `selvedge-lab repro`
    #[command(hide = true, disable_help_flag = true)]
    Repro(crate::lab::LabArgs),
    /// Say which placements work on this machine and what the others lack, by trying them
    #[command(after_help = "Example:\n  selvedge doctor\n  \
                            selvedge doctor --json | jq .placements")]
    Doctor(DoctorArgs),
    /// Promise processor time to programs
    #[command(subcommand)]
    Cpu(crate::cpu::CpuCommand),
    /// Schedule a device's packets in the kernel, for any program
    #[cfg(feature = "kernel")]
    #[command(subcommand)]
    Kernel(KernelCommand),
}

#[cfg(feature = "kernel")]
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
        filter: selvedge_place_kernel::Filter,
    },
    /// Take a filter away
    Unbind {
        /// The device
        device: String,
        /// Which packets
        filter: selvedge_place_kernel::Filter,
    },
}

#[cfg(feature = "kernel")]
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
    pub(crate) rate: Option<selvedge_units::Bitrate>,
    /// How much a late wake-up may catch up on
    #[arg(long, default_value = "1 ms", value_parser = span)]
    pub(crate) burst: selvedge_units::Duration,
    /// The order in which packets go: dwcs, dwcs98, edf, priority, fifo, vds, wfq, sfq, drr, hwfq
    /// with a node file's tree, mixed (default: the node files', or dwcs)
    #[arg(long)]
    pub(crate) discipline: Option<String>,
    /// How often a packet of no stream is due
    #[arg(long, default_value = "10 ms", value_parser = span)]
    pub(crate) rest: selvedge_units::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Do not open the page in a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// The playout delay: how long after its arrival a frame may come
    #[arg(long, default_value = "1 s", value_parser = span)]
    pub(crate) delay: selvedge_units::Duration,
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

#[cfg(feature = "gstreamer")]
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) node: NodeFileArgs,
    /// Take part in event channels, and show them on the page: by a settings file (see
    /// docs/events.md), or with the programs of this user and machine
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) events: Option<Option<PathBuf>>,
}

#[derive(Debug, Args)]
pub(crate) struct PlayArgs {
    /// An SDP file, or rtp://HOST:PORT to listen on, or stack://HOST:PORT for a stream that a
    /// protocol stack carries (?clock=HERTZ behind it for sound)
    #[arg(value_name = "SDP|URL")]
    pub(crate) source: String,
    /// Stop after this long (default: until SIGINT)
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// stack://: a file with the secret that the sender has as well
    #[arg(long, value_name = "FILE")]
    pub(crate) secret: Option<PathBuf>,
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
    /// What makes the decisions; all print the same lines
    #[arg(long, value_enum, default_value_t = Engine::Software)]
    pub(crate) engine: Engine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// The scheduler of this program
    Software,
    /// The whole engine of a node, in simulated time: rings, its loop, datagrams over loopback
    Inline,
    /// The same fed through shared memory, as the coprocessor's engine is
    Coprocessor,
    /// Now `selvedge-lab schedule`
    #[value(hide = true)]
    Rtl,
    /// The scheduler in the kernel (needs root, and a kernel that has BPF qdiscs)
    #[cfg(feature = "kernel")]
    Kernel,
}

#[derive(Debug, Args)]
pub(crate) struct AdmitArgs {
    /// The trace
    #[arg(value_name = "TRACE.json")]
    pub(crate) file: PathBuf,
    /// Ask for this discipline in place of the trace's own
    #[arg(long)]
    pub(crate) discipline: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "write a fraction such as 0.75".to_owned())?;
    if (0.01..=10.0).contains(&share) {
        Ok(share)
    } else {
        Err("the share must lie between 0.01 and 10".to_owned())
    }
}

fn span(text: &str) -> Result<selvedge_units::Duration, String> {
    let span: selvedge_units::Duration =
        text.parse().map_err(|e: selvedge_units::ParseUnitError| e.to_string())?;
    let range = selvedge_units::Duration::from_millis(1)..=selvedge_units::Duration::from_secs(60);
    if range.contains(&span) { Ok(span) } else { Err("from 1 ms to 60 s".to_owned()) }
}

//! `selvedge-coproc`: owns a link, and takes frames from producers in other processes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use selvedge_control_config::{LinkConfig, Sending};
use selvedge_data_sched::{Discipline, Tree, TreeError, TreeNode};
use selvedge_place_coprocessor::control::Control;
use selvedge_place_coprocessor::realtime::{RealtimeRequest, SchedClass};
use selvedge_place_coprocessor::server::{Coprocessor, Options, StartError, default_socket};
use selvedge_units::{Bitrate, Bytes, Duration};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Owns a link, and takes frames from producers in other processes through shared memory.
#[derive(Parser)]
#[command(
    name = "selvedge-coproc",
    version,
    subcommand_negates_reqs = true,
    after_help = "Exit status: 0 done, 1 failed, 2 bad usage or input.\n\
                  Logs go to standard error; SELVEDGE_LOG=debug shows more.\n\n\
                  Example:\n  selvedge-coproc --rate \"6 Mbit/s\" --core 1"
)]
struct Arguments {
    #[command(subcommand)]
    control: Option<Control>,
    /// The link's name
    #[arg(long, default_value = "uplink", global = true)]
    name: String,
    /// Bits per second on the wire, headers of IP and UDP included
    #[arg(long, required = true)]
    rate: Option<Bitrate>,
    /// The order in which streams are served
    #[arg(long, default_value = "dwcs", value_parser = discipline)]
    discipline: Discipline,
    /// The tree that hwfq shares the link by: PARENT:WEIGHT of each inner node, parents first, 0 for
    /// the link itself, such as 0:3,0:1,1:2
    #[arg(long, value_parser = tree, value_name = "PARENT:WEIGHT,...")]
    tree: Option<Nodes>,
    /// How often hwfq maps its weights again, in place of exact sharing
    #[arg(long)]
    remap: Option<Duration>,
    /// Do not drop early the frames that can't be on time
    #[arg(long)]
    no_selection: bool,
    /// The largest IP packet
    #[arg(long, default_value = "1500 B")]
    mtu: Bytes,
    /// The most bytes sent at once (default: one packet)
    #[arg(long)]
    burst: Option<Bytes>,
    /// The most bytes that are sent later to make up for late wake-ups (default: two
    /// packets or 20 ms of the rate, at most a tenth of the shortest delay)
    #[arg(long)]
    catch_up: Option<Bytes>,
    /// The most bytes that may wait
    #[arg(long)]
    queue: Option<Bytes>,
    /// How packets go to the kernel: auto, sendmmsg, gso or xdp
    #[arg(long, default_value = "auto", value_parser = sending)]
    send: Sending,
    /// Where to listen for producers
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Run on this core only
    #[arg(long)]
    core: Option<usize>,
    /// fifo, deadline (2 ms of every 4 ms) or fair
    #[arg(long, default_value = "fifo", value_parser = class)]
    class: SchedClass,
    /// How long to watch for frames before sleeping, or "always"
    #[arg(long, default_value = "20 us", value_parser = watch)]
    watch: Duration,
    /// The most memory that all streams together share
    #[arg(long, default_value = "4 GB")]
    memory: Bytes,
    /// End when no producer has been attached for this long
    #[arg(long)]
    alone: Option<Duration>,
    /// Do not lock the process's memory
    #[arg(long)]
    no_lock: bool,
}

/// Why an argument is invalid.
#[derive(Debug, thiserror::Error)]
enum ArgumentError {
    #[error("use one of {0}")]
    Choice(String),
    #[error("write PARENT:WEIGHT for each node, such as 0:3,1:2")]
    Nodes,
    #[error("use fifo, deadline or fair")]
    Class,
    #[error(transparent)]
    Unit(#[from] selvedge_units::ParseUnitError),
    #[error("--rate {0} is out of range; write 1 bit/s to 1000 Gbit/s")]
    Rate(Bitrate),
    #[error("--mtu {0} is out of range; write 576 B to 65535 B")]
    Mtu(Bytes),
    #[error("--burst {0} is out of range; write the mtu to 64 MB")]
    Burst(Bytes),
    #[error("--catch-up {0} is out of range; write 0 B to 64 MB")]
    CatchUp(Bytes),
    #[error("--tree and --remap are for --discipline hwfq; leave them out")]
    Hwfq,
    #[error("--tree: {0}")]
    Tree(#[from] TreeError),
}

fn discipline(text: &str) -> Result<Discipline, ArgumentError> {
    let choice = || ArgumentError::Choice(Discipline::NAMES.join(", "));
    Discipline::from_name(text).ok_or_else(choice)
}

/// The inner nodes of a tree.
#[derive(Clone, Debug)]
struct Nodes(Vec<TreeNode>);

fn tree(text: &str) -> Result<Nodes, ArgumentError> {
    let node = |text: &str| {
        let (parent, weight) = text.split_once(':')?;
        Some(TreeNode { parent: parent.parse().ok()?, weight: weight.parse().ok()? })
    };
    let nodes: Option<Vec<TreeNode>> = text.split(',').map(node).collect();
    nodes.map(Nodes).ok_or(ArgumentError::Nodes)
}

fn sending(text: &str) -> Result<Sending, ArgumentError> {
    let choice = || ArgumentError::Choice(Sending::NAMES.join(", "));
    Sending::from_name(text).ok_or_else(choice)
}

fn class(text: &str) -> Result<SchedClass, ArgumentError> {
    match text {
        "fifo" => Ok(SchedClass::Fifo),
        "deadline" => Ok(SchedClass::Deadline { runtime: 2_000_000, period: 4_000_000 }),
        "fair" => Ok(SchedClass::Fair),
        _ => Err(ArgumentError::Class),
    }
}

fn watch(text: &str) -> Result<Duration, ArgumentError> {
    match text {
        "always" => Ok(Duration(u64::MAX)),
        _ => Ok(text.parse()?),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("SELVEDGE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    if let Some(control) = arguments.control {
        let socket = arguments.socket.unwrap_or_else(|| default_socket(&arguments.name));
        return match control.ask(&socket) {
            Ok(response) => {
                print!("{response}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("selvedge-coproc: {why}");
                ExitCode::from(if why.is_input() { 2 } else { 1 })
            }
        };
    }
    let options = match options(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("selvedge-coproc: {why}");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("selvedge-coproc: {why}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: Arguments) -> Result<Options, ArgumentError> {
    let rate = arguments.rate.unwrap_or_default();
    if rate == Bitrate(0) || rate > Bitrate::from_mbps(1_000_000) {
        return Err(ArgumentError::Rate(rate));
    }
    if !(576..=65_535).contains(&arguments.mtu.0) {
        return Err(ArgumentError::Mtu(arguments.mtu));
    }
    let burst = arguments.burst.unwrap_or(arguments.mtu);
    if burst < arguments.mtu || burst > Bytes(64_000_000) {
        return Err(ArgumentError::Burst(burst));
    }
    if let Some(catch_up) = arguments.catch_up.filter(|&most| most > Bytes(64_000_000)) {
        return Err(ArgumentError::CatchUp(catch_up));
    }
    let mut link = LinkConfig::new(&arguments.name, rate, arguments.discipline);
    link.selection &= !arguments.no_selection;
    if arguments.discipline != Discipline::Hwfq
        && (arguments.tree.is_some() || arguments.remap.is_some())
    {
        return Err(ArgumentError::Hwfq);
    }
    let nodes = arguments.tree.map_or_else(Vec::new, |nodes| nodes.0);
    link.tree = Tree::new(nodes, arguments.remap)?;
    link.mtu = arguments.mtu;
    link.burst = burst;
    link.catch_up = arguments.catch_up;
    link.sending = arguments.send;
    link.queue =
        arguments.queue.or_else(|| LinkConfig::default_queue(link.rate, link.mtu, link.selection));
    let socket = arguments.socket.unwrap_or_else(|| default_socket(&link.name));
    let (core, lock, class) = (arguments.core, !arguments.no_lock, arguments.class);
    let (watch, memory, alone) = (arguments.watch, arguments.memory, arguments.alone);
    Ok(Options {
        link,
        socket,
        realtime_request: RealtimeRequest { core, lock, class },
        watch,
        memory,
        alone,
    })
}

fn run(options: Options) -> Result<(), StartError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let socket = options.socket.display().to_string();
    let coprocessor = Coprocessor::start(options)?;
    println!("listens at {socket}; engine: {}", coprocessor.runs());
    Ok(coprocessor.serve(&stop)?)
}

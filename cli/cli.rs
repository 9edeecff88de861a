//! The command line's syntax: the tree of commands and their help. Each command's arguments stand in
//! its own file.

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(feature = "gstreamer")]
use crate::bond::BondCommand;
use crate::check::CheckArgs;
use crate::code::CodeCommand;
use crate::cpu::CpuCommand;
#[cfg(feature = "gstreamer")]
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::events::EventsCommand;
#[cfg(feature = "kernel")]
use crate::kernel::KernelCommand;
use crate::key::KeyCommand;
use crate::line::LineArgs;
use crate::node::NodeCommand;
use crate::old::OldCommand;
#[cfg(feature = "gstreamer")]
use crate::pack::PackArgs;
use crate::play::PlayArgs;
#[cfg(feature = "gstreamer")]
use crate::receive::ReceiveArgs;
#[cfg(feature = "gstreamer")]
use crate::run::RunArgs;
use crate::sim::SimArgs;
use crate::stack::StackCommand;
use crate::top::TopOptions;
use crate::trace::TraceCommand;

/// Keeps live media on time.
#[derive(Parser)]
#[command(
    name = "selvedge",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SELVEDGE_COMMIT"), ")"),
    about = "Keeps live media on time: declare what each stream may lose, and get the most \
             watchable video that the link can carry.",
    after_help = "Exit status: 0 done, 1 failed, 2 bad usage or input.\n\
                  Logs go to standard error; SELVEDGE_LOG=debug shows more.",
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Log more (-v: what happens, -vv: details)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Seven commands, then the nouns, which have commands of their own.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send real clips over a link that is too small, by dwcs and by fifo, side by side
    #[cfg(feature = "gstreamer")]
    #[command(after_help = "Example:\n  selvedge demo --share 0.53 --seconds 30\n  \
                            selvedge demo --clips ~/Videos --json\n  \
                            selvedge demo --paths")]
    Demo(DemoArgs),
    /// Run a node described by a file, until SIGINT or SIGTERM; SIGHUP reloads the file
    #[cfg(feature = "gstreamer")]
    #[command(
        alias = "start",
        after_help = "Example:\n  selvedge run scenarios/studio.toml\n  \
                            selvedge run scenarios/studio.toml --events"
    )]
    Run(RunArgs),
    /// Take the streams of a bond: write a node file for its far end, and run it
    #[cfg(feature = "gstreamer")]
    #[command(
        after_help = "The near end is a node whose link has `to` and paths: docs/node-file.md, Bonds.\n\n\
                            Example:\n  selvedge receive lecture=rtp://127.0.0.1:5004 --secret van.secret"
    )]
    Receive(ReceiveArgs),
    /// Prepare a media file so that a coprocessor reads it itself: where the bytes of each packet lie in it
    #[cfg(feature = "gstreamer")]
    #[command(after_help = "The file stays as it is, and must stay where it is.\n\n\
                            Example:\n  selvedge pack film.mp4\n  \
                            selvedge pack film.mp4 --name stack.pack --packet '1400 B' --json")]
    Pack(PackArgs),
    /// Check a node file: everything that can be known before starting
    #[command(
        after_help = "Exit status: 1 if the streams do not fit their links; the change that helps is named.\n\n\
                            Example:\n  selvedge check scenarios/studio.toml --json"
    )]
    Check(CheckArgs),
    /// Receive streams, measure and show them
    #[command(after_help = "Example:\n  selvedge play lecture.sdp --seconds 10\n  \
                            selvedge play rtp://127.0.0.1:5004 --record lecture.rtpdump\n  \
                            selvedge play https://192.0.2.1:7700/streams/lobby --page\n  \
                            selvedge play stack://127.0.0.1:5004 --seconds 10")]
    Play(PlayArgs),
    /// Watch a running node in the terminal
    #[command(after_help = "Example:\n  selvedge top 127.0.0.1:7700\n  \
                            selvedge top --json | jq .streams[].decodable_share")]
    Top(TopOptions),
    /// Say which placements work on this machine and what the others lack, by trying them
    #[command(after_help = "Example:\n  selvedge doctor\n  \
                            selvedge doctor --json | jq .placements")]
    Doctor(DoctorArgs),

    /// Simulate nodes and other traffic on a network that is not there, in virtual time
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "Networks that come with Selvedge: 5g-handovers, bonded-van, cable-bloat, \
                            conference-room, dsl, long-fat-pipe, lte-bad, lte-good, satellite, wifi-crowd.\n\n\
                            Example:\n  selvedge sim --node scenarios/studio.toml --network lte-bad\n  \
                            selvedge sim conference-room --seeds 1..20\n  \
                            selvedge sim conference-room --json | jq .hops"
    )]
    Sim(SimArgs),
    /// A node that runs: reload its file, save what was set
    #[command(subcommand)]
    Node(NodeCommand),
    /// The bond for all programs: a network device whose packets go over several paths as one
    #[cfg(feature = "gstreamer")]
    #[command(subcommand)]
    Bond(BondCommand),
    /// Traces: replay them, test them for admission, make them
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Event channels among programs and hosts: list, send, receive, deploy handlers
    #[command(subcommand)]
    Events(EventsCommand),
    /// Protocol stacks: check a line, profile modules, show connections
    #[command(subcommand)]
    Stack(StackCommand),
    /// Keys by which ends of stacks know each other: make them, show them, pair ends
    #[command(subcommand)]
    Key(KeyCommand),
    /// Run two programs with a bad link between them, in real time; change it while they run
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "Each command line is run by sh, in a network namespace of its own. Its variables \
                      SELVEDGE_LINE_NEAR and SELVEDGE_LINE_FAR hold the addresses of the first link's \
                      ends, SELVEDGE_LINE_NEAR6 and SELVEDGE_LINE_FAR6 those of IPv6; with _2 behind, \
                      those of the second link.\n\
                      The exit status is that of the near program, 0 if it was still running when the line \
                      ended by --for, SIGINT or SIGTERM.\n\n\
                      Example:\n  selvedge line lte-bad --for 10s --far 'selvedge stack listen \
                      $SELVEDGE_LINE_FAR:7800' --near 'sleep 1; selvedge stack send \
                      $SELVEDGE_LINE_FAR:7800 --seconds 3'\n  \
                      selvedge line bad.toml --between studio van --record packets.csv"
    )]
    Line(LineArgs),
    /// Promise processor time to programs
    #[command(subcommand)]
    Cpu(CpuCommand),
    /// Schedule a device's packets in the kernel, for any program
    #[cfg(feature = "kernel")]
    #[command(subcommand)]
    Kernel(KernelCommand),
    /// Check, run and look into handlers written in E-code
    #[command(subcommand)]
    Code(CodeCommand),

    /// A source in the network, run by a node alone
    #[cfg(feature = "gstreamer")]
    #[command(hide = true)]
    SourceProcess,

    /// Man pages and completions, for tools/install.sh
    #[cfg(feature = "manual")]
    #[command(hide = true)]
    Manual(crate::manual::ManualArgs),

    #[command(flatten)]
    Old(OldCommand),
}

impl Cli {
    /// The parsed command line; ends the process with status 2 if it is not valid, and with 0 for
    /// `--help`.
    pub(crate) fn typed() -> Self {
        let matches = grouped(Self::command()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// The help with the nouns under a heading of their own, which clap has for arguments only.
fn grouped(command: clap::Command) -> clap::Command {
    let shown = || command.get_subcommands().filter(|one| !one.is_hide_set());
    let width = shown().map(|one| one.get_name().len()).max().unwrap_or_default();
    let line = |one: &clap::Command| {
        let about = one.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:width$}  {about}\n", one.get_name())
    };
    let commands: String = shown().filter(|one| !one.has_subcommands()).map(line).collect();
    let nouns: String = shown().filter(|one| one.has_subcommands()).map(line).collect();
    command.help_template(format!(
        "{{about}}\n\nUsage: {{usage}}\n\nCommands:\n{commands}\n\
         Nouns, with commands of their own:\n{nouns}\nOptions:\n{{options}}{{after-help}}"
    ))
}

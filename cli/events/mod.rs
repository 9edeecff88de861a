//! `selvedge events`: channels among programs and hosts, on the command line.

mod deploy;
mod ls;
mod participant;
mod publish;
#[cfg(feature = "kernel")]
mod services;
mod sub;

use clap::Subcommand;
use selvedge_cli_terminal::Failure;

use crate::old;

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// Show the channels of all hosts: members, sinks, what became of events, what is deployed
    #[command(after_help = "Programs of this user and machine are found by themselves; others by \
                            --connect, --scout or --config.\n\nExample:\n  selvedge events ls\n  \
                            selvedge events ls --connect 192.168.1.6:7451 --json | jq '.[].channel'")]
    Ls(ls::LsArgs),
    /// Print a channel's events as lines of JSON, until SIGINT
    #[command(
        after_help = "Each line: {\"sequence\": 7, \"left_ns\": 4100000, \"attributes\": {}, \
                      \"event\": {\"cpu\": 90}}.\nWithout --format, the one that others have; it \
                      waits until somebody has the channel open.\n\nExample:\n  selvedge events sub \
                      load\n  echo '{ return input.cpu > 80; }' > busy.ec\n  selvedge events sub load \
                      --filter busy.ec --count 10"
    )]
    Sub(sub::SubArgs),
    /// Send events: lines of JSON from standard input, or one again and again
    #[command(
        after_help = "Members that a line leaves out are 0. Attributes of one event stand in its \
                      line as {\"event\": {...}, \"attributes\": {\"name\": 1}}.\n\nExample:\n  echo \
                      'input { int cpu; long memory; };' > load.format\n  echo '{\"cpu\": 90}' | \
                      selvedge events pub load --format load.format\n  selvedge events pub load \
                      --format load.format --event '{\"cpu\": 1}' --rate 100 --seconds 10 --reliable"
    )]
    Pub(publish::PubArgs),
    /// Deploy a handler or filter on another host by its text, or remove it
    #[command(
        after_help = "Who may is said in the target's settings, [deploy]. A handler is called with \
                      each event that comes to its host; what passes is sent on to --to: its `output`, \
                      or else the event. See docs/ecode.md for what may stand in one.\n\nExample:\n  \
                      selvedge events deploy studio load --place handler --file hot.ec --to alarms \
                      --token token\n  selvedge events deploy studio/4711 load --remove hot --token token"
    )]
    Deploy(deploy::DeployArgs),
    /// Now `selvedge-lab bench channels`
    #[command(hide = true, disable_help_flag = true)]
    Bench(old::LabArgs),
    /// System services in the kernel: sockets, scheduling, network, memory
    #[cfg(feature = "kernel")]
    #[command(subcommand)]
    Services(services::ServicesCommand),
}

pub(crate) fn command(command: &EventsCommand, verbose: u8) -> Result<(), Failure> {
    match command {
        EventsCommand::Ls(args) => ls::command(args),
        EventsCommand::Sub(args) => sub::command(args),
        EventsCommand::Pub(args) => publish::command(args),
        EventsCommand::Deploy(args) => deploy::command(args),
        EventsCommand::Bench(args) => {
            old::to_lab("selvedge events bench", &["bench", "channels"], args, verbose)
        }
        #[cfg(feature = "kernel")]
        EventsCommand::Services(command) => services::command(command),
    }
}

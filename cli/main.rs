//! The command line: dispatches the parsed command.

mod absent;
#[cfg(feature = "gstreamer")]
mod bond;
mod check;
mod cli;
mod clip;
mod code;
mod cpu;
#[cfg(feature = "gstreamer")]
mod demo;
mod doctor;
mod events;
mod feasible;
mod identity;
#[cfg(feature = "kernel")]
mod kernel;
mod key;
mod line;
#[cfg(feature = "manual")]
mod manual;
mod network_file;
mod node;
mod node_file;
mod old;
#[cfg(feature = "gstreamer")]
mod pack;
mod play;
#[cfg(feature = "gstreamer")]
mod receive;
#[cfg(feature = "gstreamer")]
mod received;
#[cfg(feature = "gstreamer")]
mod run;
mod sim;
mod sound;
mod stack;
mod time;
mod top;
mod trace;
mod wake_ups;

use std::process::ExitCode;

use selvedge_cli_terminal::{Failure, logging};

use cli::{Cli, Command};

fn main() -> ExitCode {
    let Cli { verbose, command } = Cli::typed();
    logging(verbose);
    let done = match command {
        #[cfg(feature = "gstreamer")]
        Command::Demo(args) => demo::command(&args),
        #[cfg(feature = "gstreamer")]
        Command::Run(args) => run::command(&args),
        #[cfg(feature = "gstreamer")]
        Command::Receive(args) => receive::command(&args),
        #[cfg(feature = "gstreamer")]
        Command::Pack(args) => pack::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Play(args) => play::command(&args),
        Command::Top(options) => top::command(options),
        Command::Doctor(args) => doctor::command(&args),
        Command::Sim(args) => sim::command(&args),
        Command::Node(command) => node::command(&command),
        Command::Trace(command) => trace::command(&command),
        Command::Events(command) => events::command(&command, verbose),
        Command::Stack(command) => stack::command(&command),
        #[cfg(feature = "gstreamer")]
        Command::Bond(command) => bond::command(&command),
        Command::Key(command) => key::command(&command),
        Command::Line(args) => line::command(&args),
        Command::Cpu(command) => cpu::command(&command),
        #[cfg(feature = "kernel")]
        Command::Kernel(command) => kernel::command(&command),
        Command::Code(command) => code::command(&command),
        #[cfg(feature = "manual")]
        Command::Manual(args) => manual::command(&args, <Cli as clap::CommandFactory>::command()),
        #[cfg(feature = "gstreamer")]
        Command::SourceProcess => selvedge_media::isolated::serve().map_err(Failure::failed),
        Command::Old(command) => old::command(&command, verbose),
    };
    Failure::end("selvedge", done)
}

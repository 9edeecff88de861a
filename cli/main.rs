//! The command line: one match from what was typed to what is done.

mod admit;
mod check;
mod cli;
mod code;
mod cpu;
#[cfg(feature = "gstreamer")]
mod demo;
mod doctor;
mod events;
#[cfg(feature = "kernel")]
mod kernel;
mod lab;
mod play;
#[cfg(feature = "gstreamer")]
mod run;
mod schedule;
mod stack;
mod top;
mod trace;

use std::process::ExitCode;

use clap::Parser;
use selvedge_cli_terminal::{Failure, logging, signals};

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let verbose = cli.verbose;
    logging(verbose);
    let done = match cli.command {
        #[cfg(feature = "gstreamer")]
        Command::Demo(args) => demo::command(&args),
        #[cfg(feature = "gstreamer")]
        Command::Run(args) => run::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Play(args) => play::command(&args),
        Command::Top(options) => watch(options),
        Command::Schedule(args) => schedule::command(&args, verbose),
        Command::Admit(args) => admit::command(&args),
        Command::Trace(command) => trace::command(&command),
        Command::Code(command) => code::command(&command),
        Command::Events(command) => events::command(&command, verbose),
        Command::Stack(command) => stack::command(&command),
        Command::Bench(args) => lab::command(&["bench"], &args, verbose),
        #[cfg(feature = "kernel")]
        Command::Kernel(command) => kernel::command(&command),
        Command::Doctor(args) => doctor::command(&args),
        Command::Repro(args) => lab::command(&["repro"], &args, verbose),
        Command::Cpu(command) => cpu::command(&command),
    };
    Failure::end("selvedge", done)
}

fn watch(options: top::TopOptions) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    top::run(top::TopOptions { stop, ..options }).map_err(|error| match error.exit_status() {
        2 => Failure::input(error),
        _ => Failure::failed(error),
    })
}

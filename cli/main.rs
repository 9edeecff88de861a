//! The command line: one match from what was typed to what is done.

mod admit;
mod bench;
mod check;
mod cli;
mod code;
mod cpu;
#[cfg(feature = "gstreamer")]
mod demo;
mod doctor;
mod events;
mod input;
#[cfg(feature = "kernel")]
mod kernel;
mod play;
mod repro;
#[cfg(feature = "gstreamer")]
mod run;
#[cfg(feature = "gstreamer")]
mod running;
mod schedule;
mod signals;
mod stack;
mod table;
mod top;
mod trace;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging(cli.verbose);
    let done = match cli.command {
        #[cfg(feature = "gstreamer")]
        Command::Demo(args) => demo::command(&args),
        #[cfg(feature = "gstreamer")]
        Command::Run(args) => run::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Play(args) => play::command(&args),
        Command::Top(options) => watch(options),
        Command::Schedule(args) => schedule::command(&args),
        Command::Admit(args) => admit::command(&args),
        Command::Trace(command) => trace::command(&command),
        Command::Code(command) => code::command(&command),
        Command::Events(command) => events::command(&command),
        Command::Stack(command) => stack::command(&command),
        Command::Bench(args) => bench::command(&args),
        #[cfg(feature = "kernel")]
        Command::Kernel(command) => kernel::command(&command),
        Command::Doctor(args) => doctor::command(&args),
        Command::Repro(args) => repro::command(&args),
        Command::Cpu(command) => cpu::command(&command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}

fn watch(options: top::TopOptions) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    top::run(top::TopOptions { stop, ..options }).map_err(|error| match error.exit_status() {
        2 => Failure::input(error),
        _ => Failure::failed(error),
    })
}

/// Logs go to standard error: warnings, or more with `-v`, or as `SELVEDGE_LOG` says.
fn logging(verbose: u8) {
    // The engine below events warns of what it mends itself, as of a host that it could not reach.
    let level = match verbose {
        0 => "warn,zenoh=error",
        1 => "info,zenoh=warn",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SELVEDGE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

impl Failure {
    fn report(&self) {
        match self {
            Self::BrokenPipe | Self::Status(_) => {}
            Self::Input(text) | Self::Failed(text) => {
                for line in text.lines() {
                    eprintln!("selvedge: {line}");
                }
            }
        }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::BrokenPipe => ExitCode::SUCCESS,
            Self::Failed(_) => ExitCode::from(1),
            Self::Input(_) => ExitCode::from(2),
            Self::Status(status) => ExitCode::from(*status),
        }
    }
}

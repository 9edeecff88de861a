//! The laboratory's command: benchmarks, the papers' experiments, and the simulated hardware.

mod bench;
mod channels;
mod cli;
mod repro;
mod schedule;

use std::process::ExitCode;

use clap::Parser;
use selvedge_cli_terminal::{Failure, logging};

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging(cli.verbose);
    let done = match cli.command {
        Command::Bench(command) => bench::command(&command),
        Command::Repro(args) => repro::command(&args),
        Command::Schedule(args) => schedule::command(&args),
    };
    Failure::end("selvedge-lab", done)
}

//! `selvedge events`: what happens, as events.

mod services;

use clap::Subcommand;

use crate::cli::Failure;

#[derive(Subcommand)]
pub(crate) enum EventsCommand {
    /// System services in the kernel: sockets, scheduling, network, memory
    #[command(subcommand)]
    Services(services::ServicesCommand),
}

pub(crate) fn command(command: &EventsCommand) -> Result<(), Failure> {
    match command {
        EventsCommand::Services(command) => services::command(command),
    }
}

//! `selvedge bond`: a bond that carries the packets of all programs, by a tunnel.

use std::path::PathBuf;

use clap::Subcommand;
use selvedge_cli_terminal::Failure;

use crate::node_file::{self, NodeFileArgs};
use crate::run::{self, RunArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum BondCommand {
    /// Run a node file with a tunnel until SIGINT or SIGTERM: programs use its device or port as any other
    #[command(
        after_help = "The file has [tunnel.NAME] at both ends: docs/bond.md. A device needs CAP_NET_ADMIN; it, its \
                            routes and the rules of nat are gone when it ends.\n\n\
                            Example:\n  selvedge bond up van.toml"
    )]
    Up {
        /// The node file
        #[arg(value_name = "NODE.toml")]
        file: PathBuf,
        /// At the end print the node as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn command(command: &BondCommand) -> Result<(), Failure> {
    let BondCommand::Up { file, json } = command;
    if node_file::read(file)?.config.tunnels.is_empty() {
        let shown = file.display();
        return Err(Failure::input(format!(
            "{shown} has no tunnel; write a table such as [tunnel.net] with address = \"10.77.0.1/30\", or run the \
             node by `selvedge run {shown}`"
        )));
    }
    let node = NodeFileArgs { file: file.clone(), json: *json };
    run::command(&RunArgs { node, events: None, strict: false })
}

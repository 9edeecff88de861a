//! `selvedge node`: changes of a running node, through its API: reread its file, or write the values
//! set at run time into its file.

use std::io::Write;

use selvedge_cli_terminal::Failure;
use selvedge_units::Duration;
use serde_json::Value;

use crate::top::http::NodeAddress;

/// How long the node may take: it opens new sources first.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum NodeCommand {
    /// Let a node read its file again and apply what changed, whole or not at all; as SIGHUP does
    #[command(
        after_help = "Example:\n  selvedge node reload\n  selvedge node reload 127.0.0.1:7700 --json"
    )]
    Reload(NodeAt),
    /// Write what was set while a node ran into its file; comments and order stay
    #[command(
        after_help = "Example:\n  selvedge node save\n  selvedge node save 127.0.0.1:7700 --json"
    )]
    Save(NodeAt),
}

/// Where a node is.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeAt {
    #[command(flatten)]
    node: NodeAddress,
    /// Print the node's answer as a line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(command: &NodeCommand) -> Result<(), Failure> {
    let (at, path) = match command {
        NodeCommand::Reload(at) => (at, "/api/v1/reload"),
        NodeCommand::Save(at) => (at, "/api/v1/save"),
    };
    let body = at.node.client()?.request("POST", path, ANSWER_WITHIN)?;
    let answer: Value = serde_json::from_slice(&body).map_err(Failure::failed)?;
    let mut out = std::io::stdout().lock();
    if at.json {
        writeln!(out, "{answer}")?;
    } else {
        write!(out, "{}", lines(&answer))?;
    }
    Ok(())
}

/// A line for each thing that changed.
fn lines(answer: &Value) -> String {
    let all = answer.as_object().into_iter().flatten();
    let each = all.flat_map(|(what, list)| {
        list.as_array().into_iter().flatten().map(move |one| match one {
            Value::String(name) => format!("{what} {name}\n"),
            change => {
                format!("{} = {}\n", change["key"].as_str().unwrap_or_default(), change["value"])
            }
        })
    });
    let text: String = each.collect();
    if text.is_empty() { "nothing changed\n".to_owned() } else { text }
}

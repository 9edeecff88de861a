//! `selvedge top`: a terminal view of a running node.
//!
//! Snapshots come from the node's API over HTTP; the view is a pure function of the last ones and of
//! the keys pressed ([`state`], [`draw`]). Nothing here changes the node.

mod draw;
mod figures;
pub(crate) mod http;
mod keys;
mod picture;
mod report;
mod screen;
mod state;

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;

use selvedge_cli_terminal::{Failure, signals};
use selvedge_control_config::view::NodeSnapshot;
use selvedge_units::Duration;

use self::http::{Client, HttpError, NodeAddress};

/// How long one request to the node may take in all.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// What to show, and how.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    pub(crate) node: NodeAddress,
    /// Print one snapshot as a line of JSON and exit
    #[arg(long, conflicts_with = "once")]
    pub(crate) json: bool,
    /// Print one snapshot as plain tables and exit
    #[arg(long)]
    pub(crate) once: bool,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the answer is not a snapshot of a node ({0}); is it the same version?")]
    Snapshot(serde_json::Error),
    #[error("the output is not a terminal; use --once for text, or --json")]
    NoTerminal,
    #[error("can't write to the terminal: {0}")]
    Io(#[from] io::Error),
}

/// Shows a node until SIGINT or SIGTERM, or once.
pub(crate) fn command(options: TopOptions) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    run(options, &stop).map_err(|error| match error {
        TopError::Http(error) => error.into(),
        error => Failure::failed(error),
    })
}

/// A snapshot as plain tables, as `--once` prints it.
#[cfg(feature = "gstreamer")]
pub(crate) fn report_text(node: &NodeSnapshot) -> String {
    report::tables(node)
}

/// Shows a node until requested to stop, or once. While a node does not answer, the view continues and
/// shows that.
fn run(options: TopOptions, stop: &AtomicBool) -> Result<(), TopError> {
    let client = options.node.client()?;
    if options.json {
        let mut line = serde_json::to_string(&snapshot(&client)?).map_err(TopError::Snapshot)?;
        line.push('\n');
        print(&line)
    } else if options.once {
        print(&report::tables(&snapshot(&client)?))
    } else {
        screen::watch(client, stop)
    }
}

fn snapshot(client: &Client) -> Result<NodeSnapshot, TopError> {
    let body = client.request("GET", "/api/v1/node", ANSWER_WITHIN)?;
    serde_json::from_slice(&body).map_err(TopError::Snapshot)
}

/// Prints; a reader that has closed the pipe is no error.
fn print(text: &str) -> Result<(), TopError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

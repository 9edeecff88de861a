//! The requests that a person sends to a running coprocessor: to load an extension, to remove one, to show
//! their costs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{ClientError, Connection};
use crate::message::{ExtensionStatistics, Request};

/// A request to a running coprocessor.
#[derive(Debug, Subcommand)]
pub enum Control {
    /// Load a step, in place of one of the same name
    #[command(
        after_help = "Example:\n  echo '{ if (input.kind == KIND_B && input.left < 5000000) \
                            output.discard = 1; }' > thin.ec\n  \
                            selvedge-coproc load thin --point arrival --code thin.ec"
    )]
    Load {
        /// The name of the step
        step: String,
        /// The stage at which it is called: arrival, choice, dispatch or miss
        #[arg(long)]
        point: String,
        /// A step in E-code
        #[arg(long, value_name = "FILE", required_unless_present = "extension")]
        code: Option<PathBuf>,
        /// The budget of each call, in operations inside loops
        #[arg(long, requires = "code")]
        fuel: Option<u64>,
        /// A step that comes with the program
        #[arg(long, value_name = "NAME", conflicts_with = "code")]
        extension: Option<String>,
        /// The parameter of that step
        #[arg(long, value_name = "JSON", requires = "extension")]
        arguments: Option<Value>,
    },
    /// Remove a step
    Unload {
        /// The name of the step
        step: String,
    },
    /// Show the steps, and what they cost
    Steps {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The file can't be read.
    #[error("can't read \"{}\": {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        why: std::io::Error,
    },
    /// The coprocessor can't be reached, or refuses.
    #[error("{0}")]
    Client(#[from] ClientError),
}

impl ControlError {
    /// Whether the request itself is invalid, rather than its execution.
    #[must_use]
    pub const fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Client(ClientError::Control(selvedge_os::control::ControlError::Refused(
                    _
                )))
        )
    }
}

impl Control {
    /// Sends the request to the coprocessor that listens at a path; returns the text to print.
    pub fn ask(self, socket: &Path) -> Result<String, ControlError> {
        let mut connection = Connection::open(socket)?;
        match self {
            Self::Load { step, point, code, fuel, extension, arguments } => {
                let (extension, arguments) = match (code, extension) {
                    (Some(path), _) => {
                        let read = std::fs::read_to_string(&path);
                        let file = path.display().to_string();
                        let source = read.map_err(|why| ControlError::Read { path, why })?;
                        let code_arguments =
                            json!({ "source": source, "fuel": fuel, "file": file });
                        ("code".to_owned(), code_arguments)
                    }
                    (None, extension) => {
                        (extension.unwrap_or_default(), arguments.unwrap_or_default())
                    }
                };
                connection.ask(Request::Load { name: step, extension, point, arguments }, &[])?;
                Ok(String::new())
            }
            Self::Unload { step } => {
                connection.ask(Request::Unload { name: step }, &[])?;
                Ok(String::new())
            }
            Self::Steps { json } => {
                let steps = connection.statistics()?.extensions;
                if json { Ok(format!("{}\n", json!(steps))) } else { Ok(as_text(&steps)) }
            }
        }
    }
}

fn as_text(steps: &[ExtensionStatistics]) -> String {
    if steps.is_empty() {
        return "no steps\n".to_owned();
    }
    let mut text = format!(
        "{:<20} {:<9} {:>12} {:>10} {:>8} {:>9} {:>12}\n",
        "step", "point", "calls", "discarded", "faults", "mean ns", "longest ns"
    );
    for step in steps {
        let ExtensionStatistics { name, point, calls, discarded, faults, .. } = step;
        let (mean, longest) = (step.mean_ns, step.longest_ns);
        let _ = writeln!(
            text,
            "{name:<20} {point:<9} {calls:>12} {discarded:>10} {faults:>8} {mean:>9.0} {longest:>12}"
        );
    }
    text
}

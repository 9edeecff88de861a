//! A node file as the commands read it: `run`, `check` and `kernel attach`.

use std::path::{Path, PathBuf};

use clap::Args;
use selvedge_cli_terminal::{Failure, input};
use selvedge_control_config::{self, ConfigErrors, ConfigFault, LONGEST_FILE, NodeConfig, Parsed};

#[derive(Debug, Args)]
pub(crate) struct NodeFileArgs {
    /// The node file
    #[arg(value_name = "NODE.toml")]
    pub(crate) file: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A node file, read; relative paths in it are relative to its folder.
pub(crate) struct NodeFile {
    pub(crate) config: NodeConfig,
    pub(crate) map: selvedge_control_config::SourceMap,
    pub(crate) base: PathBuf,
    /// Its name, for messages.
    pub(crate) name: String,
}

/// Reads a node file.
pub(crate) fn read(path: &Path) -> Result<NodeFile, Failure> {
    let name = path.display().to_string();
    let text = input::text(path, LONGEST_FILE as u64)
        .map_err(|why| Failure::input(format!("{name}: {why}")))?;
    let Parsed { config, map } = selvedge_control_config::parse(&text, &name)
        .map_err(|errors| Failure::input(lines(&errors)))?;
    let base = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    Ok(NodeFile { config, map, base, name })
}

/// The errors as lines without the last line feed.
pub(crate) fn lines(errors: &ConfigErrors) -> String {
    errors.to_string().trim_end().to_owned()
}

impl NodeFile {
    /// A text about a key, with the key's place in the file.
    pub(crate) fn located(&self, key: &str, text: &str) -> String {
        let at = self.map.at(key).map_or_else(String::new, |at| format!("{at}: "));
        format!("{}:{at}{key}: {text}", self.name)
    }

    /// Errors in the value of one key of each named stream, at their places in the file.
    pub(crate) fn errors(&self, of: impl IntoIterator<Item = (String, String)>) -> ConfigErrors {
        let mut errors = ConfigErrors::new(&self.name);
        for (key, why) in of {
            errors.push_key(&self.map, &key, ConfigFault::Machine(why));
        }
        errors
    }
}

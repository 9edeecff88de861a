//! The last outcome of each experiment, kept between runs: a JSON file for each, written whole or
//! not at all.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Params};
use crate::outcome::Outcome;

/// What is kept of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The experiment's id.
    pub id: String,
    /// When it ended, in seconds since 1970.
    pub ended: u64,
    /// What it was run with.
    pub seed: u64,
    /// Whether it was the smaller run.
    pub quick: bool,
    /// Whether every claim held.
    pub passed: bool,
    /// Claims that held, of how many that could be judged.
    pub held: (usize, usize),
}

impl Record {
    /// The record of an outcome that ended at this many seconds since 1970.
    #[must_use]
    pub fn new(experiment: &Experiment, params: &Params, outcome: &Outcome, ended: u64) -> Self {
        Self {
            id: experiment.id.to_owned(),
            ended,
            seed: params.seed,
            quick: params.quick,
            passed: outcome.passed(),
            held: outcome.held(),
        }
    }
}

/// Where records are kept: `selvedge/repro` in `$XDG_STATE_HOME`, or in `~/.local/state`; `None`
/// if there is no home. A relative `$XDG_STATE_HOME` counts as unset, as its specification says.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("selvedge/repro"))
}

/// The record of an experiment's last whole run, or of its last quick one if it never ran whole.
#[must_use]
pub fn read(folder: &Path, id: &str) -> Option<Record> {
    let of = |name: String| serde_json::from_str(&fs::read_to_string(folder.join(name)).ok()?).ok();
    of(format!("{id}.json")).or_else(|| of(format!("{id}.quick.json")))
}

/// Keeps a record in place of the one before. A quick run does not take the place of a whole one.
///
/// # Errors
/// Whatever the file system says.
pub fn write(folder: &Path, record: &Record) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let text = serde_json::to_string(record).map_err(io::Error::other)?;
    let quick = if record.quick { ".quick" } else { "" };
    replace(&folder.join(format!("{}{quick}.json", record.id)), format!("{text}\n").as_bytes())
}

/// Writes a file whole: a reader meanwhile sees the old one or the new one.
///
/// # Errors
/// Whatever the file system says.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let aside = path.with_file_name(name);
    let done = fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    if done.is_err() {
        let _ = fs::remove_file(&aside);
    }
    done
}

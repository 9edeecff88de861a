//! The mistakes of one node file, each with its place, in the order of the file.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::{ConfigFault, Position, SourceMap};

/// A mistake and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Its place.
    pub at: Position,
    /// The path of the key (`link.uplink.rate`); empty for the file as a whole.
    pub key: String,
    /// The mistake.
    pub mistake: ConfigFault,
}

impl fmt::Display for ConfigError {
    /// `line:column: key: what is wrong; what to write instead`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.at)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.mistake)
    }
}

impl Serialize for ConfigError {
    /// `{"line": 7, "column": 8, "key": "link.uplink.rate", "message": "..."}`
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("ConfigError", 4)?;
        object.serialize_field("line", &self.at.line)?;
        object.serialize_field("column", &self.at.column)?;
        object.serialize_field("key", &self.key)?;
        object.serialize_field("message", &self.mistake.to_string())?;
        object.end()
    }
}

/// All mistakes that were found in one file, in the order of its lines: the first
/// [`ConfigErrors::MOST`] with their texts, the others as a count.
///
/// Serialises as `{"file": ..., "errors": [...], "omitted": 0}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigErrors {
    file: String,
    errors: Vec<ConfigError>,
    omitted: usize,
}

impl ConfigErrors {
    /// The most mistakes that are kept.
    pub const MOST: usize = 20;

    /// No mistakes yet, in the file of this name.
    #[must_use]
    pub fn new(file_name: &str) -> Self {
        Self { file: file_name.to_owned(), errors: Vec::new(), omitted: 0 }
    }

    /// Adds a mistake at a place; only counts it if [`ConfigErrors::MOST`] are kept already.
    pub fn push(&mut self, at: Position, key: &str, mistake: ConfigFault) {
        if self.is_full() {
            self.omitted += 1;
            return;
        }
        let index = self.errors.partition_point(|error| error.at <= at);
        self.errors.insert(index, ConfigError { at, key: key.to_owned(), mistake });
    }

    /// Adds a mistake in the value of a key, by its path, at its place in `map`.
    pub fn push_key(&mut self, map: &SourceMap, key: &str, mistake: ConfigFault) {
        self.push(map.at(key).unwrap_or(Position::START), key, mistake);
    }

    /// Whether no mistake was found.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The mistakes that are kept, in the order of their lines.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    /// How many more there were.
    #[must_use]
    pub const fn omitted(&self) -> usize {
        self.omitted
    }

    /// The name of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    pub(super) const fn is_full(&self) -> bool {
        self.errors.len() >= Self::MOST
    }
}

impl fmt::Display for ConfigErrors {
    /// A line for each, `file:line:column: key: what is wrong; what to write instead`; no line
    /// end after the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{error}", self.file)?;
        }
        match self.omitted {
            0 => Ok(()),
            1 => write!(f, "\n{}: and one more mistake", self.file),
            n => write!(f, "\n{}: and {n} more mistakes", self.file),
        }
    }
}

impl std::error::Error for ConfigErrors {}

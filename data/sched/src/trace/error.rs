//! The faults of a trace, and how to correct them.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use std::io;

use selvedge_units::nearest;
use thiserror::Error;

/// A malformed trace: where, and what.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{line}: {}{fault}", prefix(.field))]
pub struct TraceError {
    /// The file's name, as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The field, as in `streams[0].window`; empty if the text is not JSON at all.
    pub field: String,
    /// The fault.
    pub fault: Box<Fault>,
}

fn prefix(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("{field}: ") }
}

/// The fault of a field. Texts of the trace are shortened to 40 characters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// There is no such field.
    #[error("unknown field; {}the fields here are {known}", did_you_mean(.suggestion.as_deref()))]
    UnknownField {
        /// The nearest known field.
        suggestion: Option<String>,
        /// All known fields.
        known: String,
    },
    /// The field appears twice.
    #[error("stated twice; remove one")]
    Repeated,
    /// A required field is missing; with a correct example.
    #[error("missing; write {0}")]
    Missing(&'static str),
    /// The value has the wrong type.
    #[error("{found} where {expected} is needed")]
    Type {
        /// The expected type.
        expected: &'static str,
        /// The type found.
        found: &'static str,
    },
    /// The number is out of range or not a whole number.
    #[error("{value} is out of range; write a whole number from {min} to {max}")]
    Range {
        /// The number.
        value: String,
        /// The lowest allowed number.
        min: i64,
        /// The highest allowed number.
        max: u64,
    },
    /// A list with too few or too many elements.
    #[error("{found} elements where {expected} are needed; write {example}")]
    Length {
        /// The number of elements.
        found: usize,
        /// The required number.
        expected: &'static str,
        /// A correct example.
        example: &'static str,
    },
    /// A window that may lose more frames than it holds.
    #[error("{x} of {y} frames would be more than there are; write [x, y] with x at most y")]
    Window {
        /// How many may be lost.
        x: u16,
        /// Out of how many.
        y: u16,
    },
    /// An unknown name.
    #[error("unknown name \"{name}\"; {}use one of {known}", did_you_mean(.suggestion.as_deref()))]
    UnknownName {
        /// The name.
        name: String,
        /// The nearest known name.
        suggestion: Option<String>,
        /// All known names.
        known: String,
    },
    /// A stream without a name.
    #[error("empty; name the stream")]
    EmptyId,
    /// A node of the tree without a name.
    #[error("empty; name the node")]
    EmptyNode,
    /// Two nodes of the same name.
    #[error("there is a node \"{0}\" already; give each its own name")]
    DuplicateNode(String),
    /// A parent that is not a node, or one that comes later.
    #[error(
        "there is no node \"{id}\" before this; {}use the id of one in \"tree\", \
         where each stands before what hangs below it",
        did_you_mean(.suggestion.as_deref())
    )]
    UnknownNode {
        /// The name.
        id: String,
        /// The nearest known name.
        suggestion: Option<String>,
    },
    /// More nodes than a tree may have.
    #[error("{found} nodes; a tree has at most {max}")]
    Nodes {
        /// How many there are.
        found: usize,
        /// The largest allowed number.
        max: usize,
    },
    /// Two streams of the same name.
    #[error("there is a stream \"{0}\" already; give each its own name")]
    DuplicateId(String),
    /// A frame of an unknown stream.
    #[error(
        "there is no stream \"{id}\"; {}use the id of one in \"streams\"",
        did_you_mean(.suggestion.as_deref())
    )]
    UnknownStream {
        /// The name.
        id: String,
        /// The nearest known name.
        suggestion: Option<String>,
    },
    /// A frame that arrives before the previous frame of the same stream.
    #[error(
        "{at} is before {previous}, the arrival of the previous frame of \"{id}\"; \
         list the frames of a stream in order of arrival"
    )]
    Backwards {
        /// The stream.
        id: String,
        /// When this one arrives.
        at: u64,
        /// When the previous one arrived.
        previous: u64,
    },
    /// Arrivals of streams that are always backlogged.
    #[error("a backlogged trace has no arrivals of its own; remove one of the two fields")]
    BothBacklogAndArrivals,
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("did you mean \"{name}\"? "))
}

impl Fault {
    pub(super) fn unknown_name(name: &str, known: &[&str]) -> Self {
        Self::UnknownName {
            name: shorten(name),
            suggestion: nearest(name, known.iter().copied()).map(Into::into),
            known: known.join(", "),
        }
    }
}

/// Why a replay stopped.
#[derive(Debug, Error)]
pub enum RunError {
    /// The trace is malformed; nothing was printed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The events could not be written.
    #[error("cannot write the events: {0}")]
    Write(#[from] io::Error),
}

/// The first 40 characters, so that no message grows with its input.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => text[..end].chars().chain("...".chars()).collect(),
        None => text.into(),
    }
}

//! Changes of single keys of a node file that keep its comments and their order: the proposals of
//! `selvedge check`, and the values that were set while a node ran and are to be written back.

use std::fmt;

use serde::Serialize;
use toml_edit::{DocumentMut, Item};

use super::{ConfigErrors, Parsed, parse, stream_table};

/// A value of a node file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A text, which the file has in quotes.
    Text(String),
    /// A whole number.
    Integer(i64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Integer(number) => write!(f, "{number}"),
        }
    }
}

/// A key of the node file, and a value that it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The path of the key: `link.uplink.rate`.
    pub key: String,
    /// The value.
    pub value: Value,
}

impl Change {
    /// A change of a key of `[table.name]` to a text.
    #[must_use]
    pub fn text(table: &str, name: &str, key: &str, value: impl fmt::Display) -> Self {
        let table = match table {
            "stream" => stream_table(name),
            _ => format!("{table}.{name}"),
        };
        Self { key: format!("{table}.{key}"), value: Value::Text(value.to_string()) }
    }
}

impl fmt::Display for Change {
    /// As a line of TOML outside of all tables: `link.uplink.rate = "2.1 Mbit/s"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}

/// Why a file can't be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// It is not TOML.
    #[error("the file is no TOML any more: {0}")]
    Syntax(String),
    /// It has no such table.
    #[error("the file has no table for \"{0}\"; reload it first")]
    NoTable(String),
    /// The changes would make it wrong.
    #[error("the changed file would be wrong: {0}")]
    Wrong(#[from] ConfigErrors),
}

/// A node file with these changes. Comments, blank lines and the order of everything else stay.
///
/// # Errors
/// [`EditError`]; the result is always a valid node file.
pub fn edited(text: &str, file_name: &str, changes: &[Change]) -> Result<String, EditError> {
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| EditError::Syntax(error.to_string()))?;
    for Change { key, value } in changes {
        let absent = || EditError::NoTable(key.clone());
        let (path, last) = key.rsplit_once('.').ok_or_else(absent)?;
        let mut item = document.as_item_mut();
        for part in path.split('.') {
            item = item.get_mut(part).ok_or_else(absent)?;
        }
        let table = item.as_table_like_mut().ok_or_else(absent)?;
        let mut new = match value {
            Value::Text(text) => toml_edit::Value::from(text.as_str()),
            Value::Integer(number) => toml_edit::Value::from(*number),
        };
        if let Some(old) = table.get_mut(last).and_then(Item::as_value_mut) {
            // A comment after the value on its line belongs to the old value.
            *new.decor_mut() = old.decor().clone();
            *old = new;
        } else {
            table.remove(last);
            table.insert(last, Item::Value(new));
        }
    }
    let text = document.to_string();
    let Parsed { .. } = parse(&text, file_name)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# A node.\n[link.uplink]\nrate = \"6 Mbit/s\" # as measured\n\n\
                        # The lecture.\n[stream.lecture]\nto = \"rtp://127.0.0.1:5004\"\n\
                        source = \"test:video\"   # for now\n\n\
                        [stream.lecture.window]\nI = \"0/1\"\n\n[stream.sound]\n\
                        source = \"test:audio\"\nto = \"rtp://127.0.0.1:5006\"\n";

    #[test]
    fn comments_and_order_stay() {
        let changes = [
            Change::text("link", "uplink", "rate", "2100 kbit/s"),
            Change { key: "stream.sound.priority".into(), value: Value::Integer(-3) },
            Change::text("stream", "lecture", "window", "2/5"),
        ];
        let text = edited(FILE, "x.toml", &changes).unwrap();
        let expected = FILE
            .replace("6 Mbit/s", "2100 kbit/s")
            .replace("[stream.lecture.window]\nI = \"0/1\"\n\n", "")
            .replace("# for now\n", "# for now\nwindow = \"2/5\"\n")
            .replace("127.0.0.1:5006\"\n", "127.0.0.1:5006\"\npriority = -3\n");
        assert_eq!(text, expected);
        assert_eq!(edited(FILE, "x.toml", &[]).unwrap(), FILE);
        assert_eq!(changes[1].to_string(), "stream.sound.priority = -3");
    }

    #[test]
    fn a_file_that_would_be_wrong_is_not_written() {
        let of = |change| edited(FILE, "x.toml", &[change]).unwrap_err();
        let wrong = of(Change::text("link", "uplink", "rate", "2100"));
        assert!(wrong.to_string().contains("x.toml:3:8: link.uplink.rate: "), "{wrong}");
        let absent = of(Change::text("link", "other", "rate", "2 Mbit/s"));
        assert_eq!(absent, EditError::NoTable("link.other.rate".into()));
        let broken = edited("[link", "x.toml", &[]).unwrap_err();
        assert!(matches!(broken, EditError::Syntax(_)), "{broken}");
    }
}

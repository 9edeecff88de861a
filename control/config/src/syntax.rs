//! From text to TOML tables. The parser's own messages are kept where they help; its message about a
//! table given twice is replaced by one that names both lines.

use toml::de::{DeTable, Error};

use super::position::Lines;
use super::{ConfigErrors, ConfigFault, Position, quoted};

/// Above this many bytes only the first error of the syntax is reported: the parser keeps all
/// that it finds, and a file of garbage holds many.
const SEVERAL_UP_TO: usize = 256 * 1024;

/// The tables of a text. `None` if it is not TOML and nothing more can be found out; all mistakes have
/// been reported. A table given twice is reported, and reading continues.
pub(super) fn tables<'t>(
    text: &'t str,
    lines: &Lines<'t>,
    errors: &mut ConfigErrors,
) -> Option<DeTable<'t>> {
    let first = match DeTable::parse(text) {
        Ok(root) => return Some(root.into_inner()),
        Err(first) => first,
    };
    if text.len() > SEVERAL_UP_TO {
        report(&first, text, lines, &Headers(Vec::new()), errors);
        return None;
    }
    let (root, found) = DeTable::parse_recoverable(text);
    let headers = Headers::of(text);
    let mut readable = true;
    let (mut last_line, mut repeated) = (0, None);
    for error in &found {
        readable &= is_duplicate(error);
        let line = place(error, lines).line;
        let table = headers.above(line + 1);
        if is_duplicate(error) && table.is_some_and(|&(top, _)| top == line) {
            repeated = table;
        }
        // A further error in the same line is most often the same mistake again, and so is every key of
        // a table that is there twice.
        let inside = is_duplicate(error) && repeated.is_some() && headers.above(line) == repeated;
        if line != last_line && !inside {
            report(error, text, lines, &headers, errors);
        }
        last_line = line;
    }
    readable.then_some(root.into_inner())
}

fn is_duplicate(error: &Error) -> bool {
    error.message() == "duplicate key"
}

fn place(error: &Error, lines: &Lines<'_>) -> Position {
    error.span().map_or(Position::START, |span| lines.position(span.start))
}

fn report(
    error: &Error,
    text: &str,
    lines: &Lines<'_>,
    headers: &Headers,
    errors: &mut ConfigErrors,
) {
    let at = place(error, lines);
    if !is_duplicate(error) {
        let (what, hint) = (described(error.message()), hint(lines.line(at.line)));
        errors.push(at, "", ConfigFault::Syntax { what, hint });
    } else if errors.is_full() {
        // Counted only: no need to look for the first.
        errors.push(at, "", ConfigFault::Twice { first: None, table: false });
    } else {
        let word = error.span().and_then(|span| text.get(span)).unwrap_or("");
        let (path, mistake) = twice(word, at.line, lines, headers);
        errors.push(at, &path, mistake);
    }
}

/// The path of the key or table that line `number` repeats, and the mistake.
fn twice(word: &str, number: u32, lines: &Lines<'_>, headers: &Headers) -> (String, ConfigFault) {
    let line = lines.line(number);
    if let Some(path) = header(line) {
        let first = headers.first(&path).filter(|&first| first < number);
        return (shown(&path), ConfigFault::Twice { first, table: true });
    }
    let Some(key) = key(line).filter(|key| key.ends_with(word)) else {
        // In a table in braces: both are mostly in one line.
        return (shown(word), ConfigFault::Twice { first: None, table: false });
    };
    let (top, path) = headers.above(number).map_or((0, ""), |(top, path)| (*top, path));
    let first = (top + 1..number).find(|&n| self::key(lines.line(n)) == Some(key));
    let stop = if path.is_empty() { "" } else { "." };
    (shown(&format!("{path}{stop}{key}")), ConfigFault::Twice { first, table: false })
}

/// The lines that name a table, with its path.
struct Headers(Vec<(u32, String)>);

impl Headers {
    fn of(text: &str) -> Self {
        let numbered = (1..).zip(text.lines());
        Self(numbered.filter_map(|(number, line)| Some((number, header(line)?))).collect())
    }

    /// The last one before a line.
    fn above(&self, number: u32) -> Option<&(u32, String)> {
        self.0[..self.0.partition_point(|&(line, _)| line < number)].last()
    }

    fn first(&self, path: &str) -> Option<u32> {
        self.0.iter().find(|(_, other)| other == path).map(|&(line, _)| line)
    }
}

/// The path in a line such as `[stream.lecture]`, without white space.
fn header(line: &str) -> Option<String> {
    let (path, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    Some(path.chars().filter(|c| !c.is_whitespace()).collect())
}

/// The key in a line such as `rate = "6 Mbit/s"`.
fn key(line: &str) -> Option<&str> {
    line.split_once('=').map(|(key, _)| key.trim())
}

fn shown(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if path.len() <= 160 && path.chars().all(plain) { path.to_owned() } else { quoted(path) }
}

/// The parser's words, without its part about the one most common mistake: [`hint`] covers that.
fn described(message: &str) -> String {
    match message.strip_prefix("string values must be quoted") {
        Some(_) => "the value is not in quotes, or missing".to_owned(),
        None => message.to_owned(),
    }
}

/// The line with its value in quotes, if that is all it lacks.
fn hint(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.split('#').next()?.trim());
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let text = |c: char| c.is_ascii_alphanumeric() || " _-./:?&=%".contains(c);
    if key.is_empty() || key.len() > 64 || !key.chars().all(plain) {
        None
    } else if value.is_empty() {
        Some(format!("write a value behind {key} ="))
    } else {
        let quotable = value.len() <= 80 && value.chars().all(text);
        quotable.then(|| format!("write {key} = \"{value}\""))
    }
}

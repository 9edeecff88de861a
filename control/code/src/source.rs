//! Places in a source, and the report of a mistake there: line, column, the line itself with a caret below,
//! and a remedy.

use std::fmt;

/// A part of a source, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where it begins.
    pub start: u32,
    /// Where it ends, exclusive.
    pub end: u32,
}

impl Span {
    /// From the start of one to the end of another.
    pub(crate) fn to(self, last: Self) -> Self {
        Self { start: self.start, end: last.end.max(self.start) }
    }
}

/// A mistake at a place, before the line and column are known.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    pub(crate) at: Span,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Diagnostic {
    pub(crate) fn new(at: Span, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { at, what: what.into(), remedy: remedy.into() }
    }
}

/// A line and a column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

impl Position {
    /// The position of a byte of a source. Linear in the source's length.
    pub fn of(source: &str, byte: u32) -> Self {
        let byte = floor(source, byte as usize);
        let before = &source[..byte];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.bytes().filter(|&b| b == b'\n').count() as u32 + 1;
        Self { line, column: before[start..].chars().count() as u32 + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The next boundary of a character at or below a byte.
fn floor(source: &str, byte: usize) -> usize {
    let mut byte = byte.min(source.len());
    while !source.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

/// One mistake in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Where it begins.
    pub position: Position,
    /// The mistake, with the offending text.
    pub what: String,
    /// The remedy.
    pub remedy: String,
    /// The line, shortened to fit a screen, and the caret line below it.
    pub line: String,
    /// The carets, with preceding blanks.
    pub carets: String,
}

/// How much of a line is shown, in characters.
const SHOWN: usize = 100;

impl Diagnosis {
    fn new(source: &str, mistake: Diagnostic) -> Self {
        let start = floor(source, mistake.at.start as usize);
        let position = Position::of(source, start as u32);
        let begin = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let end = source[start..].find('\n').map_or(source.len(), |at| start + at);
        let last = floor(source, mistake.at.end as usize).clamp(start, end);
        let before = source[begin..start].chars().count();
        let width = source[start..last].chars().count().max(1);
        // For a long line, the part that begins shortly before the mistake.
        let skip = if before + width > SHOWN { before.saturating_sub(20) } else { 0 };
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let line: String = source[begin..end].chars().skip(skip).take(SHOWN).map(plain).collect();
        let carets = " ".repeat(before - skip) + &"^".repeat(width.min(SHOWN - (before - skip)));
        let Diagnostic { what, remedy, .. } = mistake;
        Self { position, what, remedy, line: line.trim_end().to_owned(), carets }
    }
}

/// The mistakes in a source; at least one, in the order of the source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct CodeError {
    /// The source's name, as it was given.
    pub name: String,
    /// The mistakes.
    pub diagnoses: Vec<Diagnosis>,
}

impl CodeError {
    pub(crate) fn new(name: &str, source: &str, mut diagnostics: Vec<Diagnostic>) -> Self {
        diagnostics.sort_by_key(|mistake| mistake.at.start);
        diagnostics.truncate(crate::limits::DIAGNOSTICS_MAX);
        let diagnoses = diagnostics.into_iter().map(|mistake| Diagnosis::new(source, mistake));
        Self { name: name.to_owned(), diagnoses: diagnoses.collect() }
    }
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnosis) in self.diagnoses.iter().enumerate() {
            let Diagnosis { position, what, remedy, line, carets } = diagnosis;
            let number = position.line.to_string();
            let blank = " ".repeat(number.len());
            if index > 0 {
                writeln!(f)?;
            }
            writeln!(f, "{}:{position}: {what}", self.name)?;
            writeln!(f, " {number} | {line}")?;
            writeln!(f, " {blank} | {carets}")?;
            write!(f, " {blank} = {remedy}")?;
        }
        Ok(())
    }
}

//! Places in a node file: from byte offsets, as the TOML parser gives them, to lines and columns.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// A place in a text, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Position {
    /// `line:column`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Where each key of a node file stands, so that later findings (no such file, no such device) can be
/// reported at its line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMap {
    places: BTreeMap<String, Position>,
}

impl SourceMap {
    /// Where the value of a key stands, by its path (`stream.lecture.source`). For a key that the file
    /// leaves out, the place of the table that it would be in; `None` if there is no such table either.
    /// O(log n).
    #[must_use]
    pub fn at(&self, key_path: &str) -> Option<Position> {
        let mut path = key_path;
        loop {
            if let Some(&place) = self.places.get(path) {
                return Some(place);
            }
            path = &path[..path.rfind('.')?];
        }
    }

    pub(super) fn insert(&mut self, path: &str, place: Position) {
        self.places.insert(path.to_owned(), place);
    }
}

/// Finds lines and columns in one text. A look-up reads at most [`Lines::STRIDE`] bytes twice,
/// also where the whole text is one line.
pub(super) struct Lines<'t> {
    text: &'t str,
    /// Offset of the first byte of each line.
    starts: Vec<usize>,
    /// Characters before each multiple of [`Lines::STRIDE`] bytes.
    counts: Vec<usize>,
}

impl<'t> Lines<'t> {
    const STRIDE: usize = 1024;

    /// O(length of the text).
    pub(super) fn new(text: &'t str) -> Self {
        let after_breaks =
            text.bytes().enumerate().filter(|&(_, b)| b == b'\n').map(|(i, _)| i + 1);
        let starts = std::iter::once(0).chain(after_breaks).collect();
        let mut total = 0;
        let counts = text
            .as_bytes()
            .chunks(Self::STRIDE)
            .map(|chunk| {
                let before = total;
                total += chars_in(chunk);
                before
            })
            .collect();
        Self { text, starts, counts }
    }

    /// Where the byte at this offset stands; an offset past the end is the end.
    pub(super) fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.starts.partition_point(|&start| start <= offset);
        let column = self.chars_before(offset) - self.chars_before(self.starts[line - 1]) + 1;
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Position { line: small(line), column: small(column) }
    }

    /// The text of a line, counted from 1, without its end; empty if there is no such line.
    pub(super) fn line(&self, number: u32) -> &'t str {
        let index = (number as usize).saturating_sub(1);
        let Some(&start) = self.starts.get(index) else { return "" };
        let end = self.starts.get(index + 1).map_or(self.text.len(), |next| next - 1);
        self.text[start..end].trim_end_matches('\r')
    }

    fn chars_before(&self, offset: usize) -> usize {
        let chunk = offset / Self::STRIDE;
        let Some(count) = self.counts.get(chunk) else {
            // The text's end, where that is a multiple of the stride.
            let last = chunk.saturating_sub(1) * Self::STRIDE;
            let counted = self.counts.last().copied().unwrap_or(0);
            return counted + chars_in(&self.text.as_bytes()[last.min(offset)..offset]);
        };
        count + chars_in(&self.text.as_bytes()[chunk * Self::STRIDE..offset])
    }
}

/// Characters that begin in these bytes of UTF-8.
fn chars_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let lines = Lines::new("a\nbäc\n");
        assert_eq!(lines.position(0), Position { line: 1, column: 1 });
        assert_eq!(lines.position(1), Position { line: 1, column: 2 });
        assert_eq!(lines.position(5), Position { line: 2, column: 3 });
        assert_eq!(lines.position(99), Position { line: 3, column: 1 });
        assert_eq!(lines.line(2), "bäc");
        assert_eq!(lines.line(9), "");
    }

    #[test]
    fn a_key_that_is_left_out_is_found_at_its_table() {
        let mut map = SourceMap::default();
        map.insert("stream.a", Position { line: 4, column: 1 });
        map.insert("stream.a.to", Position { line: 5, column: 6 });
        assert_eq!(map.at("stream.a.to").map(|p| p.line), Some(5));
        assert_eq!(map.at("stream.a.source").map(|p| p.line), Some(4));
        assert_eq!(map.at("link.b.rate"), None);
    }

    proptest! {
        #[test]
        fn agrees_with_counting_from_the_start(text in "(?s)[aä\n😀]{0,3000}", at in 0_usize..9000) {
            let at = (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap();
            let before = &text[..at];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
            let place = Lines::new(&text).position(at);
            prop_assert_eq!((place.line as usize, place.column as usize), (line, column));
        }
    }
}

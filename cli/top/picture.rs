//! Lines of text with styles, measured in a terminal's cells, and the escape codes (ECMA-48) that draw them.

use unicode_width::UnicodeWidthChar;

/// A colour of text, by its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    #[default]
    Usual = 39,
}

/// How text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) is_bold: bool,
    pub(super) is_reversed: bool,
    pub(super) colour: Colour,
}

impl Style {
    pub(super) const PLAIN: Self =
        Self { is_bold: false, is_reversed: false, colour: Colour::Usual };
    pub(super) const BOLD: Self = Self { is_bold: true, ..Self::PLAIN };

    /// Plain text of this colour.
    pub(super) const fn coloured(colour: Colour) -> Self {
        Self { colour, ..Self::PLAIN }
    }

    /// The code that sets this style and no other.
    fn code(self) -> String {
        let bold = if self.is_bold { ";1" } else { "" };
        let reversed = if self.is_reversed { ";7" } else { "" };
        format!("\x1b[0{bold}{reversed};{}m", self.colour as u8)
    }
}

/// A line: pieces of text, each in a style. It contains no control characters, so that a name from
/// outside cannot steer the terminal.
#[derive(Clone, Debug, Default)]
pub(super) struct Line(Vec<(Style, String)>);

impl Line {
    /// Plain text.
    pub(super) fn plain(text: impl AsRef<str>) -> Self {
        Self::default().and(Style::PLAIN, text)
    }

    /// The same with more text at its end.
    pub(super) fn and(mut self, style: Style, text: impl AsRef<str>) -> Self {
        let shown = text.as_ref().chars().filter(|c| !c.is_control());
        self.0.push((style, shown.collect()));
        self
    }

    /// The same in `width` cells: cut, or padded with blanks.
    pub(super) fn fitted(mut self, width: usize) -> Self {
        let mut left = width;
        for (_, text) in &mut self.0 {
            let (begin, taken) = beginning(text, left);
            left = if begin.len() < text.len() { 0 } else { left - taken };
            text.truncate(begin.len());
        }
        let taken: usize = self.0.iter().map(|(_, text)| beginning(text, usize::MAX).1).sum();
        self.and(Style::PLAIN, " ".repeat(width - taken))
    }

    /// The text alone.
    #[cfg(test)]
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }
}

/// The longest beginning of a text that takes at most `most` cells, and how many it takes.
pub(super) fn beginning(text: &str, most: usize) -> (&str, usize) {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        let width = c.width().unwrap_or(0);
        if width > most - taken {
            return (&text[..at], taken);
        }
        taken += width;
    }
    (text, taken)
}

/// The words of a text in lines of at most `most` bytes; a longer word has a line of its own.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= most => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The codes that draw lines from the screen's first one down, over the old content.
pub(super) fn drawn(lines: &[Line]) -> String {
    let mut codes = String::new();
    for (row, Line(pieces)) in (1..).zip(lines) {
        codes += &format!("\x1b[{row};1H");
        for (style, text) in pieces {
            codes += &style.code();
            codes += text;
        }
    }
    codes + "\x1b[0m"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_filled_to_whole_cells() {
        let line = Line::plain("ab\u{1b}[").and(Style::BOLD, "講義").and(Style::PLAIN, "e\u{301}");
        for (width, text) in [
            (0, ""),
            (2, "ab"),
            (4, "ab[ "),
            (5, "ab[講"),
            (8, "ab[講義e\u{301}"),
            (9, "ab[講義e\u{301} "),
        ] {
            assert_eq!(line.clone().fitted(width).text(), text, "{width}");
        }
    }

    #[test]
    fn styles_end_where_the_next_begins() {
        let red = Style { is_reversed: true, ..Style::coloured(Colour::Red) };
        let lines = [Line::plain("a").and(red, "b"), Line::default().and(Style::BOLD, "c")];
        let expected = "\x1b[1;1H\x1b[0;39ma\x1b[0;7;31mb\x1b[2;1H\x1b[0;1;39mc\x1b[0m";
        assert_eq!(drawn(&lines), expected);
    }

    #[test]
    fn words_stay_whole() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 1), ["one", "two", "three"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}

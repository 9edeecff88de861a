//! Plain text tables for terminals and pipes: columns as wide as their widest cell.

use std::fmt;

use unicode_width::UnicodeWidthStr;

/// A table: a line of titles, then rows. Widths count terminal cells, not characters; control
/// characters are shown escaped, so that a name from outside cannot steer the terminal.
#[derive(Clone, Debug, Default)]
pub struct Table {
    titles: Vec<String>,
    /// Whether the cells of a column are aligned to the right.
    is_right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Adds columns of words.
    #[must_use]
    pub fn left<const N: usize>(self, titles: [&str; N]) -> Self {
        self.with(titles, false)
    }

    /// Adds columns of numbers.
    #[must_use]
    pub fn right<const N: usize>(self, titles: [&str; N]) -> Self {
        self.with(titles, true)
    }

    fn with<const N: usize>(mut self, titles: [&str; N], is_right: bool) -> Self {
        self.titles.extend(titles.map(plain));
        self.is_right.extend([is_right; N]);
        self
    }

    /// Adds a row. Cells that are missing are empty; cells beyond the last column are left out.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<String> =
            cells.into_iter().take(self.titles.len()).map(|cell| plain(cell.as_ref())).collect();
        row.resize(self.titles.len(), String::new());
        self.rows.push(row);
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.titles).chain(&self.rows)
    }

    fn widths(&self) -> Vec<usize> {
        let width_of = |column: usize| self.lines().map(|row| row[column].width()).max();
        (0..self.titles.len()).map(|column| width_of(column).unwrap_or(0)).collect()
    }
}

impl fmt::Display for Table {
    /// Each line ends in a line feed and in no blanks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for row in self.lines() {
            let mut line = String::new();
            for ((cell, is_right), &width) in row.iter().zip(&self.is_right).zip(&widths) {
                let blanks = " ".repeat(width.saturating_sub(cell.width()));
                let gap = if line.is_empty() { "" } else { "  " };
                let blanks = blanks.as_str();
                let (before, after) = if *is_right { (blanks, "") } else { ("", blanks) };
                line.extend([gap, before, cell.as_str(), after]);
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::default().left(["stream"]).right(["rate"]);
        table.row(["講義", "2.94 Mbit/s"]);
        table.row(["lobby-north", "0"]);
        let expected = "\
stream              rate
講義         2.94 Mbit/s
lobby-north            0
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn odd_rows_fit() {
        let mut table = Table::default().left(["a", "b"]);
        table.row(["\u{1b}[2J"]);
        table.row(["1", "2", "3"]);
        assert_eq!(table.to_string(), "a          b\n\\u{1b}[2J\n1          2\n");
        assert_eq!(Table::default().to_string(), "\n");
    }
}

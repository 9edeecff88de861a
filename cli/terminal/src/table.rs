//! Plain text tables for terminals and pipes: columns as wide as their widest cell.

use std::fmt;

use unicode_width::UnicodeWidthStr;

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table: a line of titles, then rows. Widths count terminal cells, not characters; control
/// characters are shown escaped, so that a name from outside cannot steer the terminal.
#[derive(Clone, Debug)]
pub struct Table {
    aligns: Vec<Align>,
    /// The first row is the titles.
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns and no rows.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let titles = columns.iter().map(|&(title, _)| plain(title)).collect();
        Self { aligns: columns.iter().map(|&(_, align)| align).collect(), rows: vec![titles] }
    }

    /// Adds a row. Cells that are missing are empty; cells beyond the last column are left out.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut row: Vec<String> =
            cells.into_iter().take(self.aligns.len()).map(|cell| plain(cell.as_ref())).collect();
        row.resize(self.aligns.len(), String::new());
        self.rows.push(row);
    }

    fn widths(&self) -> Vec<usize> {
        let width_of = |column: usize| self.rows.iter().map(|row| row[column].width()).max();
        (0..self.aligns.len()).map(|column| width_of(column).unwrap_or(0)).collect()
    }
}

impl fmt::Display for Table {
    /// Each line ends in a line feed and in no blanks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &align), &width) in row.iter().zip(&self.aligns).zip(&widths) {
                let blanks = " ".repeat(width.saturating_sub(cell.width()));
                let gap = if line.is_empty() { "" } else { "  " };
                let (before, after) = match align {
                    Align::Left => ("", blanks.as_str()),
                    Align::Right => (blanks.as_str(), ""),
                };
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
        let mut table = Table::new(&[("stream", Align::Left), ("rate", Align::Right)]);
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
        let mut table = Table::new(&[("a", Align::Left), ("b", Align::Left)]);
        table.row(["\u{1b}[2J"]);
        table.row(["1", "2", "3"]);
        assert_eq!(table.to_string(), "a          b\n\\u{1b}[2J\n1          2\n");
        assert_eq!(Table::new(&[]).to_string(), "\n");
    }
}

//! What an experiment gives: tables with ours beside the paper's, claims, plots.

use serde::Serialize;

use crate::plot::Plot;

/// What came out of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Ours beside the paper's.
    pub tables: Vec<Table>,
    /// What was claimed, and whether it held.
    pub claims: Vec<Claim>,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
    /// Drawn on request.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

impl Outcome {
    /// Whether every claim held that could be judged.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.claims.iter().all(|claim| claim.passed || !claim.is_judged)
    }

    /// How many claims held, of those that could be judged.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        let judged = || self.claims.iter().filter(|claim| claim.is_judged);
        (judged().filter(|claim| claim.passed).count(), judged().count())
    }

    /// Judges no claim: the machine was kept from its work, so that figures say nothing of what is claimed.
    pub(crate) fn judge_nothing(&mut self) {
        self.claims.iter_mut().for_each(|claim| claim.is_judged = false);
    }

    /// Adds a claim, whether it held, and the figures that decided it.
    pub fn claim(&mut self, text: impl Into<String>, passed: bool, found: impl Into<String>) {
        let (text, found) = (text.into(), found.into());
        self.claims.push(Claim { text, passed, found, is_judged: true });
    }

    /// Adds what another outcome has; its claims as remarks, if they are not to be judged.
    pub(crate) fn absorb(&mut self, other: Self, is_judged: bool) {
        self.tables.extend(other.tables);
        self.plots.extend(other.plots);
        if is_judged {
            self.claims.extend(other.claims);
        } else {
            self.notes.extend(other.claims.into_iter().map(|claim| {
                let holds = if claim.passed { "holds" } else { "does not hold" };
                format!("Not judged: {} {holds}: {}", claim.text, claim.found)
            }));
        }
        self.notes.extend(other.notes);
    }

    /// Adds a remark.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

/// A finding that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// What must hold.
    pub text: String,
    /// Whether it did.
    pub passed: bool,
    /// Whether the machine was calm enough for that to count.
    pub is_judged: bool,
    /// The figures that decided it.
    pub found: String,
}

/// A table: columns with names, rows of cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The columns' names, units included.
    pub columns: Vec<String>,
    /// As many cells in each as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as there are columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "a cell for each column of \"{}\"", self.title);
        self.rows.push(row);
    }
}

/// A cell of a table; in JSON a text, a number, or null.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A measured or computed figure, rounded to what is worth showing.
    Figure(f64),
    /// The paper does not say, or it makes no sense here.
    None,
}

impl Cell {
    /// A figure, rounded to so many decimals.
    #[must_use]
    pub fn rounded(value: f64, decimals: i32) -> Self {
        let scale = 10_f64.powi(decimals);
        Self::Figure((value * scale).round() / scale)
    }

    /// The text that is printed; a stroke for nothing.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Figure(figure) => figure.to_string(),
            Self::None => "-".to_owned(),
        }
    }

    /// Whether it stands on the right of its column.
    #[must_use]
    pub const fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_))
    }
}

impl Claim {
    /// What a line begins with.
    #[must_use]
    pub const fn verdict(&self) -> &'static str {
        match (self.is_judged, self.passed) {
            (false, _) => "not judged: noisy",
            (_, true) => "holds",
            (_, false) => "FAILS",
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(figure: f64) -> Self {
        Self::Figure(figure)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_passes_if_every_claim_does() {
        let mut outcome = Outcome::default();
        outcome.claim("a", true, "1");
        assert!(outcome.passed());
        outcome.claim("b", false, "2");
        assert!(!outcome.passed());
        assert_eq!(outcome.held(), (1, 2));
        outcome.judge_nothing();
        assert!(outcome.passed());
        assert_eq!(outcome.held(), (0, 0));
    }

    #[test]
    fn cells_are_json_values() {
        let cells = [Cell::from("a"), Cell::from(3), Cell::rounded(1.26, 1), Cell::None];
        assert_eq!(serde_json::to_string(&cells).unwrap(), "[\"a\",3,1.3,null]");
        assert_eq!(cells.map(|cell| cell.shown()), ["a", "3", "1.3", "-"]);
    }
}

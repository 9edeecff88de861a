//! The budget of a metered path: what it may carry in a calendar month, by UTC. What was carried is kept in a file beside
//! the node file, `LINK.PATH.usage`, so that a restart gives no new budget.

use std::io;
use std::path::PathBuf;

use selvedge_os::clock::wall_time;
use selvedge_units::Bytes;

use selvedge_comm_carrier::credentials::replace;

/// Why what was carried can't be kept.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// The file can't be read or written.
    #[error("{}: {why}; what the path carried is kept there", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
    /// The file holds something else.
    #[error(
        "{}: {text:?} is no month with the bytes carried in it, such as \"2026-11 123456\"; correct it, or remove the file",
        path.display()
    )]
    Text {
        /// The file.
        path: PathBuf,
        /// What it holds.
        text: String,
    },
}

/// What a path carried this month, of what it may.
#[derive(Debug)]
pub(crate) struct Budget {
    file: PathBuf,
    most: Bytes,
    /// Such as `2026-11`.
    month: String,
    carried: Bytes,
    /// Whether the file holds this.
    is_kept: bool,
}

/// The month, by UTC.
pub(crate) fn month() -> String {
    let mut text = humantime::format_rfc3339_seconds(wall_time()).to_string();
    text.truncate("2026-11".len());
    text
}

impl Budget {
    /// Reads what the path has carried this month.
    ///
    /// # Errors
    /// [`BudgetError`].
    pub(crate) fn open(file: PathBuf, most: Bytes, month: &str) -> Result<Self, BudgetError> {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => format!("{month} 0"),
            Err(why) => return Err(BudgetError::File { path: file, why }),
        };
        let read = || {
            let (of, carried) = text.trim().split_once(' ')?;
            let is_month = of.len() == 7 && of.as_bytes()[4] == b'-';
            Some((of, Bytes(carried.parse().ok()?))).filter(|_| is_month)
        };
        let Some((of, carried)) = read() else {
            let text = text.chars().take(40).collect();
            return Err(BudgetError::Text { path: file, text });
        };
        let carried = if of == month { carried } else { Bytes(0) };
        let mut budget = Self { file, most, month: month.to_owned(), carried, is_kept: false };
        budget.keep()?;
        Ok(budget)
    }

    /// What the path may still carry.
    pub(crate) fn left(&self) -> Bytes {
        self.most - self.carried
    }

    /// So much is left. Returns what may be carried from now on if a month began.
    pub(crate) fn handle_left(&mut self, left: Bytes, month: &str) -> Option<Bytes> {
        let carried = self.most - left;
        self.is_kept &= carried == self.carried;
        self.carried = carried;
        if self.month == month {
            return None;
        }
        (self.month, self.carried, self.is_kept) = (month.to_owned(), Bytes(0), false);
        Some(self.most)
    }

    /// Writes the file, if it does not hold what was carried.
    ///
    /// # Errors
    /// [`BudgetError::File`].
    pub(crate) fn keep(&mut self) -> Result<(), BudgetError> {
        if self.is_kept {
            return Ok(());
        }
        let text = format!("{} {}\n", self.month, self.carried.0);
        replace(&self.file, &text)
            .map_err(|why| BudgetError::File { path: self.file.clone(), why })?;
        self.is_kept = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_carried_counts_after_a_restart_until_the_month_ends() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("uplink.lte.usage");
        let open = |month| Budget::open(file.clone(), Bytes(1_000), month);
        let mut budget = open("2026-11").unwrap();
        assert_eq!(budget.left(), Bytes(1_000));
        assert_eq!(budget.handle_left(Bytes(400), "2026-11"), None);
        budget.keep().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "2026-11 600\n");
        let mut budget = open("2026-11").unwrap();
        assert_eq!(budget.left(), Bytes(400));
        assert_eq!(budget.handle_left(Bytes(0), "2026-12"), Some(Bytes(1_000)));
        budget.keep().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "2026-12 0\n");
        assert_eq!(open("2027-01").unwrap().left(), Bytes(1_000));
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("usage");
        for text in ["", "2026-11", "2026-11 -1", "tomorrow 12", "2026-11 1 2"] {
            std::fs::write(&file, text).unwrap();
            let why = Budget::open(file.clone(), Bytes(1_000), "2026-11").unwrap_err();
            assert!(matches!(why, BudgetError::Text { .. }), "{text}: {why}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        let why = Budget::open(folder.path().join("no/usage"), Bytes(1), "2026-11").unwrap_err();
        assert!(matches!(why, BudgetError::File { .. }), "{why}");
    }
}

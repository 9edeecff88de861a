//! The known word that a mistyped one was meant to be.

/// The longest word that is compared, in bytes: names and keys are no longer.
const LONGEST: usize = 64;

/// The candidate with the fewest edits from `word`, if that is at most a third of its letters.
/// The first of equals.
/// O(letters of `word` x letters of all candidates).
#[must_use]
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if word.len() > LONGEST {
        return None;
    }
    let most = word.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|&(distance, _)| distance <= most)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with a neighbour to come from `a` to `b`
/// (optimal string alignment distance); capitals count as their small letters.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 5] = ["rate", "discipline", "burst", "mtu", "queue"];

    #[test]
    fn finds_what_was_meant() {
        for (typed, meant) in [
            ("rates", "rate"),
            ("Rate", "rate"),
            ("dicsipline", "discipline"),
            ("disciplin", "discipline"),
            ("quque", "queue"),
            ("mut", "mtu"),
        ] {
            assert_eq!(nearest(typed, KEYS), Some(meant), "{typed}");
        }
    }

    #[test]
    fn guesses_nothing_far_off() {
        for typed in ["placement", "", "x", "rt", &"rate".repeat(100)] {
            assert_eq!(nearest(typed, KEYS), None, "{typed}");
        }
    }
}

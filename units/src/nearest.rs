//! The known word that a mistyped one was probably meant to be.

/// The longest word that is compared, in bytes: names and keys are not longer.
const LONGEST: usize = 64;

/// The candidate with the fewest letters to insert, remove, replace or swap with a neighbour. It is returned
/// if they are at most a third of those of `word`, or if `word` ends with it, as `bitrate` does with `rate`.
/// Capitals count as their small letters. The first of equals. O(letters of `word` x letters of all
/// candidates).
#[must_use]
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if word.len() > LONGEST {
        return None;
    }
    let (word, most) = (word.to_lowercase(), word.chars().count() / 3);
    let distance = |candidate: &str| strsim::osa_distance(&word, &candidate.to_lowercase());
    let candidates = candidates.into_iter().filter(|candidate| candidate.len() <= LONGEST);
    let near = candidates.map(|candidate| (distance(candidate), candidate));
    let is_end = |candidate: &str| candidate.len() > 2 && word.ends_with(candidate);
    let near = near.filter(|&(distance, candidate)| distance <= most || is_end(candidate));
    near.min_by_key(|&(distance, _)| distance).map(|(_, candidate)| candidate)
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
            ("bitrate", "rate"),
            ("max-Queue", "queue"),
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

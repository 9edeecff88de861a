//! A set of sequence numbers, as ranges that do not touch: what arrived out of order, at either end.

use std::collections::BTreeMap;

/// Ranges by their beginnings; each ends in front of its value.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    ends: BTreeMap<u64, u64>,
    total: u64,
}

impl Ranges {
    /// How many numbers are in it.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Adds the numbers from `start` to in front of `end`. O(log n) for each range that it joins.
    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((&from, &to)) =
            self.ends.range(..=end).next_back().filter(|(_, to)| **to >= start)
        {
            self.ends.remove(&from);
            self.total -= to - from;
            (start, end) = (start.min(from), end.max(to));
        }
        self.ends.insert(start, end);
        self.total += end - start;
    }

    /// Takes out what lies below.
    pub(super) fn remove_below(&mut self, at: u64) {
        while let Some(first) = self.ends.first_entry().filter(|first| *first.key() < at) {
            let (from, to) = first.remove_entry();
            self.total -= to.min(at) - from;
            if to > at {
                self.ends.insert(at, to);
            }
        }
    }

    /// The range that holds this number.
    pub(super) fn around(&self, at: u64) -> Option<(u64, u64)> {
        let (&from, &to) = self.ends.range(..=at).next_back()?;
        (at < to).then_some((from, to))
    }

    /// The first range that begins at this number or later.
    pub(super) fn next(&self, at: u64) -> Option<(u64, u64)> {
        self.ends.range(at..).next().map(|(&from, &to)| (from, to))
    }

    /// How many numbers from `start` to in front of `end` are in it. O(ranges from `start` on).
    pub(super) fn covered(&self, start: u64, end: u64) -> u64 {
        let within = self.backwards().skip_while(|(from, _)| *from >= end);
        let within = within.take_while(|(_, to)| *to > start);
        within.map(|(from, to)| to.min(end).saturating_sub(from.max(start))).sum()
    }

    /// All ranges, the last first.
    pub(super) fn backwards(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ends.iter().rev().map(|(&from, &to)| (from, to))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use selvedge_data_net_line::Random;

    use super::*;

    #[test]
    fn it_holds_what_a_set_of_numbers_holds() {
        let mut random = Random::named(1, "ranges");
        let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
        for round in 0..3_000_u64 {
            let (start, length) = (random.below(200), random.below(9));
            if round % 40 == 39 {
                ranges.remove_below(start / 2);
                set.retain(|n| *n >= start / 2);
            }
            if round % 400 == 399 {
                (ranges, set) = Default::default();
            }
            ranges.insert(start, start + length);
            set.extend(start..start + length);
            assert_eq!(ranges.total(), set.len() as u64);
            let (from, to) = (random.below(220), random.below(220));
            let wanted = set.iter().filter(|n| (from..to).contains(n)).count() as u64;
            assert_eq!(ranges.covered(from, to), wanted, "{from}..{to} of {ranges:?}");
            assert_eq!(ranges.around(from).is_some(), set.contains(&from));
            let next = ranges.next(from).map(|(start, _)| start);
            let begins = |n: &&u64| !set.contains(&n.wrapping_sub(1));
            assert_eq!(next, set.range(from..).find(begins).copied());
        }
    }
}

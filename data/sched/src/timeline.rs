//! When something happens to which stream: a tree of earliest moments over the streams.
//!
//! The scheduler keeps two: the deadlines of all head frames, and the ready times of those that
//! wait for theirs. It answers in the order of stream indexes, which the rules ask for, and not
//! in the order of time. [`Instant::MAX`] means never.

use alloc::vec::Vec;

use selvedge_units::Instant;

/// The tree. Leaves are numbered from zero; their number is a power of two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    /// `earliest[1]` is the root; the second half holds the leaves.
    earliest: Vec<Instant>,
}

impl Timeline {
    /// Makes room for `leaves` (a power of two), keeping the moments. O(leaves).
    pub(crate) fn grow(&mut self, leaves: usize) {
        let mut grown = Vec::with_capacity(2 * leaves);
        grown.resize(leaves, Instant::MAX);
        grown.extend_from_slice(&self.earliest[self.leaves()..]);
        grown.resize(2 * leaves, Instant::MAX);
        self.earliest = grown;
        for node in (1..leaves).rev() {
            self.earliest[node] = self.below(node);
        }
    }

    fn leaves(&self) -> usize {
        self.earliest.len() / 2
    }

    fn below(&self, node: usize) -> Instant {
        self.earliest[2 * node].min(self.earliest[2 * node + 1])
    }

    /// Sets the moment of a leaf. O(log N).
    pub(crate) fn set(&mut self, leaf: u32, at: Instant) {
        let mut node = self.leaves() + leaf as usize;
        self.earliest[node] = at;
        while node > 1 {
            node /= 2;
            let earliest = self.below(node);
            if earliest == self.earliest[node] {
                break;
            }
            self.earliest[node] = earliest;
        }
    }

    /// The lowest leaf, from `from` on, whose moment has come at `now`. O(log N), and O(1) if
    /// there is none at all. A moment of [`Instant::MAX`] never comes.
    pub(crate) fn first_due(&self, now: Instant, from: u32) -> Option<u32> {
        let leaves = self.leaves();
        let due = |node: usize| self.earliest[node] <= now && self.earliest[node] != Instant::MAX;
        if from as usize >= leaves || !due(1) {
            return None;
        }
        let mut node = leaves + from as usize;
        while !due(node) {
            // On to the next subtree on the right: up while this is a right child, then across.
            while node % 2 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < leaves {
            node *= 2;
            if !due(node) {
                node += 1;
            }
        }
        u32::try_from(node - leaves).ok()
    }

    /// The earliest moment after `now`. O(1) if nothing is due at `now`; else it looks below
    /// every node under which something is.
    pub(crate) fn next_after(&self, now: Instant) -> Option<Instant> {
        let next = if self.earliest.is_empty() { Instant::MAX } else { self.after(1, now) };
        (next != Instant::MAX).then_some(next)
    }

    fn after(&self, node: usize, now: Instant) -> Instant {
        if self.earliest[node] > now {
            self.earliest[node]
        } else if node >= self.leaves() {
            Instant::MAX
        } else {
            self.after(2 * node, now).min(self.after(2 * node + 1, now))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn moment() -> impl Strategy<Value = u64> {
        prop_oneof![0..20_u64, Just(u64::MAX)]
    }

    proptest! {
        #[test]
        fn agrees_with_looking_at_all(
            steps in prop::collection::vec((0..16_u32, moment()), 1..100),
            now in moment(),
            from in 0..17_u32,
        ) {
            let mut tree = Timeline::default();
            prop_assert_eq!(tree.next_after(Instant(now)), None);
            tree.grow(2);
            let mut leaves = 2_u32;
            let mut plain = [u64::MAX; 16];
            for (leaf, at) in steps {
                while leaf >= leaves {
                    leaves *= 2;
                    tree.grow(leaves as usize);
                }
                plain[leaf as usize] = at;
                tree.set(leaf, Instant(at));
                let real = |i: &u32| plain[*i as usize] != u64::MAX;
                let due = (from..16).filter(real).find(|&i| plain[i as usize] <= now);
                prop_assert_eq!(tree.first_due(Instant(now), from), due);
                let next = plain.into_iter().filter(|&at| at > now && at != u64::MAX).min();
                prop_assert_eq!(tree.next_after(Instant(now)), next.map(Instant));
            }
        }
    }
}

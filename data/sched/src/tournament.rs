//! Selection: a tournament tree over the streams, lowest key at its root.
//!
//! The scheduler enters a key for each head frame that may be sent and takes it out again; a
//! change replays the matches between the stream's leaf and the root, O(log N), and stops early
//! where the outcome of a match that the stream is not part of stays the same. Equal keys are won
//! by the lower index.

use alloc::vec::Vec;

use selvedge_units::Instant;

/// Everything that a decision compares: the discipline's rank, then the head frame's arrival.
/// The stream's index, which comes last, is its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) rank: u128,
    pub(crate) arrival: Instant,
}

impl Key {
    /// After every real key: no discipline's rank has all bits set.
    const NONE: Self = Self { rank: u128::MAX, arrival: Instant::MAX };
}

/// The tree. Leaves are numbered from zero; their number is a power of two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tournament {
    keys: Vec<Key>,
    /// `winners[1]` is the root, `winners[n]` plays out `winners[2n]` and `winners[2n + 1]`; the
    /// second half names the leaves themselves.
    winners: Vec<u32>,
}

impl Tournament {
    /// Makes room for `leaves` (a power of two), keeping the keys. O(leaves).
    pub(crate) fn grow(&mut self, leaves: usize) {
        self.keys.resize(leaves, Key::NONE);
        self.winners.clear();
        self.winners.resize(leaves, 0);
        self.winners.extend((0_u32..).take(leaves));
        for node in (1..leaves).rev() {
            self.winners[node] = self.play(node);
        }
    }

    fn play(&self, node: usize) -> u32 {
        let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
        if self.keys[right as usize] < self.keys[left as usize] { right } else { left }
    }

    /// Enters or changes the key of a leaf. O(log N).
    pub(crate) fn enter(&mut self, leaf: u32, key: Key) {
        self.keys[leaf as usize] = key;
        let mut node = (self.keys.len() + leaf as usize) / 2;
        while node > 0 {
            let winner = self.play(node);
            if winner == self.winners[node] && winner != leaf {
                break;
            }
            self.winners[node] = winner;
            node /= 2;
        }
    }

    /// Takes a leaf out. O(log N); nothing to do if it is not in.
    pub(crate) fn leave(&mut self, leaf: u32) {
        if self.keys[leaf as usize] != Key::NONE {
            self.enter(leaf, Key::NONE);
        }
    }

    /// The leaf with the lowest key, if any is in. O(1).
    pub(crate) fn winner(&self) -> Option<(Key, u32)> {
        let leaf = *self.winners.get(1)?;
        let key = self.keys[leaf as usize];
        (key != Key::NONE).then_some((key, leaf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lowest_key_wins_and_of_equals_the_lower_index(
            steps in prop::collection::vec((0..16_u32, prop::option::of(0..6_u64)), 1..200),
        ) {
            let mut tree = Tournament::default();
            tree.grow(2);
            let mut leaves = 2_usize;
            let mut plain = [None; 16];
            for (leaf, number) in steps {
                while leaf as usize >= leaves {
                    leaves *= 2;
                    tree.grow(leaves);
                }
                plain[leaf as usize] = number;
                match number {
                    Some(n) => {
                        let key = Key { rank: u128::from(n / 2), arrival: Instant(n % 2) };
                        tree.enter(leaf, key);
                    }
                    None => tree.leave(leaf),
                }
                let lowest = (0..16).filter_map(|i| Some((plain[i as usize]?, i))).min();
                prop_assert_eq!(tree.winner().map(|(_, i)| i), lowest.map(|(_, i)| i));
            }
        }
    }
}

//! Selection: a tournament of keys over the streams, the lowest at its root.
//!
//! The scheduler enters a key for each head frame that competes and takes it out again. Four
//! contenders meet in one cache line, and their winner goes up; so a change touches one line for
//! each level, log4 N of them, and waits for one comparison in each (the software form of
//! ShareStreams' decision blocks; a loser tree waits for twice as many). A key holds its leaf's
//! number in its low bits. Where two keys differ in nothing else the caller breaks the tie.
//!
//! Taking out the winner is put off until something else changes: if it comes back with another
//! key, as a stream does that is served and has a next frame, one pass does both.

use alloc::vec::Vec;

use crate::prefetch::prefetch;

/// What a decision compares: a rank, and below it the number of the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    const LEAF_BITS: u32 = 24;
    /// Leaves are numbered below this.
    pub(crate) const LEAVES: u32 = (1 << Self::LEAF_BITS) - 4;
    /// Ranks are below `2^RANK_BITS`.
    pub(crate) const RANK_BITS: u32 = 127 - Self::LEAF_BITS;

    pub(crate) const fn new(rank: u128, leaf: u32) -> Self {
        Self(rank << Self::LEAF_BITS | leaf as u128)
    }

    /// Nothing: after every real key. Those of different leaves differ, so they are no ties.
    const fn none(leaf: u32) -> Self {
        Self::new(1 << Self::RANK_BITS | leaf as u128, leaf)
    }

    const fn is_real(self) -> bool {
        self.0 >> 127 == 0
    }

    pub(crate) const fn leaf(self) -> u32 {
        self.0 as u32 & ((1 << Self::LEAF_BITS) - 1)
    }

    pub(crate) const fn rank(self) -> u128 {
        self.0 >> Self::LEAF_BITS
    }

    /// The lower of two. Of equal ranks, the one that `before` says.
    #[inline(always)]
    fn lower(self, other: Self, before: &impl Fn(u32, u32) -> bool) -> Self {
        if (self.0 ^ other.0) >> Self::LEAF_BITS == 0 {
            return self.tied(other, before);
        }
        // Written with both halves, so that it becomes conditional moves.
        if other.0 < self.0 { other } else { self }
    }

    #[cold]
    #[inline(never)]
    fn tied(self, other: Self, before: &impl Fn(u32, u32) -> bool) -> Self {
        let other_first = self.is_real() && before(other.leaf(), self.leaf());
        if other_first { other } else { self }
    }
}

/// Breaks ties by the lower leaf.
pub(crate) const fn lower_leaf(a: u32, b: u32) -> bool {
    a < b
}

/// Four contenders in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group([Key; 4]);

const NOBODY: u32 = u32::MAX;
/// 4^12 leaves are all that a key can number.
const LEVELS: usize = 12;
/// Of the winners of so many levels below the root, each is soon the winner of all: its cache
/// lines are fetched when it gets there.
const SOON: usize = 3;
/// Levels below that many groups fit the first-level cache.
const NEAR_GROUPS: usize = 64;

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    /// Level by level, the leaves first.
    groups: Vec<Group>,
    /// Where each level begins.
    starts: [u32; LEVELS],
    depth: usize,
    /// How many levels, from the leaves up, are too large for the first-level cache.
    far: usize,
    root: Key,
    /// The winner, if it has left and the tree still shows it.
    vacant: u32,
    /// A leaf that is likely to win soon.
    soon: u32,
}

impl Default for Tournament {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            starts: [0; LEVELS],
            depth: 0,
            far: 0,
            root: Key::none(0),
            vacant: NOBODY,
            soon: 0,
        }
    }
}

impl Tournament {
    /// Makes room for `leaves`, keeping the keys. O(leaves).
    pub(crate) fn grow(&mut self, leaves: usize, before: &impl Fn(u32, u32) -> bool) {
        self.settle(before);
        let bottom = if self.depth == 0 { 0 } else { self.level_len(0) };
        let mut groups: Vec<Group> = self.groups[..bottom].to_vec();
        let mut level = leaves.div_ceil(4).max(1);
        while groups.len() < level {
            let first = 4 * groups.len() as u32;
            groups.push(Group([0, 1, 2, 3].map(|n| Key::none(first + n))));
        }
        self.depth = 1;
        self.far = 0;
        while level > 1 {
            if level > NEAR_GROUPS {
                self.far = self.depth;
            }
            self.starts[self.depth] = groups.len() as u32;
            self.depth += 1;
            level = level.div_ceil(4);
            // Places above no group hold a key of their own that never wins.
            let empty = Group([0, 1, 2, 3].map(|n| Key::none(Key::LEAVES + n)));
            groups.resize(groups.len() + level, empty);
        }
        self.groups = groups;
        self.rebuild(before);
    }

    /// Gives every leaf that is in a new key.
    pub(crate) fn rekey(&mut self, key: impl Fn(u32) -> Key, before: &impl Fn(u32, u32) -> bool) {
        self.settle(before);
        let bottom = if self.depth == 0 { 0 } else { self.level_len(0) };
        for group in &mut self.groups[..bottom] {
            for place in group.0.iter_mut().filter(|place| place.is_real()) {
                *place = key(place.leaf());
            }
        }
        self.rebuild(before);
    }

    fn level_len(&self, level: usize) -> usize {
        let end = if level + 1 < self.depth {
            self.starts[level + 1] as usize
        } else {
            self.groups.len()
        };
        end - self.starts[level] as usize
    }

    fn rebuild(&mut self, before: &impl Fn(u32, u32) -> bool) {
        for level in 0..self.depth {
            for n in 0..self.level_len(level) {
                let [a, b, c, d] = self.groups[self.starts[level] as usize + n].0;
                let winner = a.lower(b, before).lower(c.lower(d, before), before);
                match self.starts.get(level + 1).filter(|_| level + 1 < self.depth) {
                    Some(&above) => self.groups[above as usize + n / 4].0[n % 4] = winner,
                    None => self.root = winner,
                }
            }
        }
    }

    /// Enters or changes the key of a leaf. O(log N).
    #[inline]
    pub(crate) fn enter(&mut self, key: Key, before: &impl Fn(u32, u32) -> bool) {
        if self.vacant != NOBODY {
            if self.vacant == key.leaf() {
                self.vacant = NOBODY;
            } else {
                self.settle(before);
            }
        }
        self.replay(key.leaf(), key, before);
    }

    /// Takes a leaf out; nothing to do if it is not in. O(log N), and O(1) if it is the winner.
    #[inline]
    pub(crate) fn leave(&mut self, leaf: u32, before: &impl Fn(u32, u32) -> bool) {
        if self.vacant == NOBODY && self.root.leaf() == leaf && self.root.is_real() {
            self.vacant = leaf;
        } else if self.vacant != leaf
            && self.groups[leaf as usize / 4].0[leaf as usize % 4].is_real()
        {
            self.settle(before);
            self.replay(leaf, Key::none(leaf), before);
        }
    }

    /// Does what was put off.
    #[inline]
    pub(crate) fn settle(&mut self, before: &impl Fn(u32, u32) -> bool) {
        if self.vacant != NOBODY {
            let leaf = core::mem::replace(&mut self.vacant, NOBODY);
            self.replay(leaf, Key::none(leaf), before);
        }
    }

    #[inline]
    fn replay(&mut self, leaf: u32, key: Key, before: &impl Fn(u32, u32) -> bool) {
        let mut winner = key;
        let mut at = leaf as usize;
        let soon = self.depth.wrapping_sub(SOON + 1);
        for level in 0..self.depth {
            let group = &mut self.groups[self.starts[level] as usize + at / 4].0;
            let place = at % 4;
            // If this is another stream that won here before, nothing changes from here on.
            if group[place] == winner && winner.leaf() != leaf {
                return;
            }
            group[place] = winner;
            let others = group[place ^ 2].lower(group[place ^ 3], before);
            let others = others.lower(group[place ^ 1], before);
            winner = winner.lower(others, before);
            at /= 4;
            if level == soon {
                self.soon = winner.leaf();
            }
        }
        self.root = winner;
    }

    /// The lowest key, if any is in. O(1); O(log N) just after the winner has left.
    #[inline]
    pub(crate) fn winner(&self, before: &impl Fn(u32, u32) -> bool) -> Option<Key> {
        let winner = if self.vacant == NOBODY { self.root } else { self.winner_but_vacant(before) };
        winner.is_real().then_some(winner)
    }

    #[inline(never)]
    fn winner_but_vacant(&self, before: &impl Fn(u32, u32) -> bool) -> Key {
        let mut winner = Key::none(self.vacant);
        let mut at = self.vacant as usize;
        for level in 0..self.depth {
            let group = &self.groups[self.starts[level] as usize + at / 4].0;
            for other in 1..4 {
                winner = winner.lower(group[(at % 4) ^ other], before);
            }
            at /= 4;
        }
        winner
    }

    /// A leaf that is likely to win soon, after a change that brought it up; its lines in the
    /// tree are being fetched. `None` where all of the tree is near.
    #[inline]
    pub(crate) fn fetch_ahead(&self) -> Option<u32> {
        if self.far == 0 {
            return None;
        }
        let mut at = self.soon as usize;
        for level in 0..self.far {
            at /= 4;
            if let Some(group) = self.groups.get(self.starts[level] as usize + at) {
                prefetch(group);
            }
        }
        Some(self.soon)
    }

    /// Goes down the tree: `look` sees the winner of each subtree, and at the bottom each key
    /// that is in (`true`); it says whether to look below.
    pub(crate) fn search(&self, mut look: impl FnMut(Key, bool) -> bool) {
        if let Some(top) = self.depth.checked_sub(1) {
            self.search_in(top, 0, &mut look);
        }
    }

    fn search_in(&self, level: usize, group: usize, look: &mut impl FnMut(Key, bool) -> bool) {
        for (n, key) in self.groups[self.starts[level] as usize + group].0.into_iter().enumerate() {
            let gone = key.leaf() == self.vacant;
            if !key.is_real() || (level == 0 && gone) {
                continue;
            }
            if (gone || look(key, level == 0)) && level > 0 {
                self.search_in(level - 1, 4 * group + n, look);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_looking_at_all(
            steps in prop::collection::vec((0..80_u32, prop::option::of(0..6_u64)), 1..300),
        ) {
            // Ties by the higher leaf, to see that it is asked.
            let before = |a: u32, b: u32| a > b;
            let mut tree = Tournament::default();
            let mut leaves = 1_usize;
            tree.grow(leaves, &before);
            let mut plain = [None; 80];
            for (leaf, rank) in steps {
                while leaf as usize >= leaves {
                    leaves *= 2;
                    tree.grow(leaves, &before);
                }
                plain[leaf as usize] = rank;
                match rank {
                    Some(rank) => tree.enter(Key::new(rank.into(), leaf), &before),
                    None => tree.leave(leaf, &before),
                }
                let real = || (0..80).filter_map(|leaf| Some((plain[leaf as usize]?, leaf)));
                let lowest = real().min_by_key(|&(rank, leaf)| (rank, u32::MAX - leaf));
                let winner = tree.winner(&before).map(|key| (key.rank() as u64, key.leaf()));
                prop_assert_eq!(winner, lowest);
                let mut seen = Vec::new();
                tree.search(|key, bottom| {
                    if bottom {
                        seen.push((key.rank() as u64, key.leaf()));
                    }
                    true
                });
                seen.sort_by_key(|&(_, leaf)| leaf);
                prop_assert_eq!(seen, real().collect::<Vec<_>>());
            }
            // New keys for all, in another order.
            let rekeyed = |leaf: u32| Key::new(u128::from(leaf * 7 % 5), leaf);
            tree.rekey(rekeyed, &before);
            let lowest = (0..80_u32).filter(|&leaf| plain[leaf as usize].is_some())
                .min_by_key(|&leaf| (leaf * 7 % 5, u32::MAX - leaf));
            prop_assert_eq!(tree.winner(&before).map(Key::leaf), lowest);
        }
    }
}

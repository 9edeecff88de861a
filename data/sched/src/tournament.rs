//! Selection: a tournament of keys over the streams, the lowest at its root.
//!
//! The scheduler enters a key for each head frame that competes and removes it again. Four contenders meet in
//! one cache line, and their winner goes up. So a change touches one line for each level, log4 N of them, and
//! waits for one comparison in each (ShareStreams' decision blocks in software). A loser tree waits for twice
//! as many, and changes only where the last winner was. Where two keys are equal the caller breaks the tie.
//!
//! Removal of the winner is deferred until something else changes. If the winner returns with another key, as
//! a stream does that is served and has a next frame, one pass does both.

use alloc::vec::Vec;
use core::ops::Range;

use selvedge_data_memory::fetch::prefetch;

use crate::machine::lower;

/// The highest key of a leaf that is in. Higher keys stand for nothing; each place of a group has a different
/// one, so that they are no ties.
pub(crate) const LAST_KEY: u64 = u64::MAX - 4;
/// In each place of a group.
const NO_KEYS: [u64; 4] = [u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX];

const NOBODY: u32 = u32::MAX;
/// The third level from the root has 16 groups, the first of them at this place. Each of the 64 that meet in
/// them soon becomes the overall winner: its cache lines are fetched when it gets there.
const SOON_LEVEL: usize = 1 + 4;
/// The groups of the four levels next to the root stay in the first-level cache, and as many at the bottom as
/// the lowest of these has.
const NEAR_GROUPS: usize = 1 + 4 + 16 + 64;
const NEAR_LEAVES: usize = 64;

/// A leaf that is in, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: u64,
    pub(crate) leaf: u32,
}

impl Entry {
    const NONE: Self = Self { key: u64::MAX, leaf: NOBODY };

    /// The lower of two. Of equal keys, the one that `before` prefers.
    #[inline(always)]
    fn lower(self, other: Self, before: impl Fn(u32, u32) -> bool + Copy) -> Self {
        let tied = self.key == other.key && self.key <= LAST_KEY;
        let other_first = if tied { before(other.leaf, self.leaf) } else { other.key < self.key };
        if other_first { other } else { self }
    }
}

/// The keys of four neighbouring leaves.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Leaves([u64; 4]);

/// The winners of four neighbouring groups, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group {
    keys: [u64; 4],
    leaves: [u32; 4],
}

impl Group {
    #[inline(always)]
    fn at(&self, place: usize) -> Entry {
        Entry { key: self.keys[place], leaf: self.leaves[place] }
    }
}

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    bottom: Vec<Leaves>,
    /// The root's group first, then level by level: the winners of groups `4n + 1` to `4n + 4` meet in group
    /// `n`, numbers after the last being those of the bottom. All paths are equally long.
    upper: Vec<Group>,
    /// A leaf's number without this number of low bits is that of its path where it crosses the third level;
    /// `None` if all of the tree is near.
    soon_shift: Option<u32>,
    root: Entry,
    /// The winner, if it has left and the tree still shows it.
    vacant: u32,
    /// A leaf that is likely to win soon.
    soon: u32,
}

impl Default for Tournament {
    fn default() -> Self {
        Self {
            bottom: Vec::new(),
            upper: Vec::new(),
            soon_shift: None,
            root: Entry::NONE,
            vacant: NOBODY,
            soon: 0,
        }
    }
}

impl Tournament {
    /// Makes room for `leaves`, keeping the keys. O(leaves).
    pub(crate) fn grow(&mut self, leaves: usize, before: impl Fn(u32, u32) -> bool + Copy) {
        self.settle(before);
        let groups = leaves.div_ceil(4).max(self.bottom.len()).max(1);
        self.bottom.resize(groups, Leaves(NO_KEYS));
        let (mut levels, mut upper) = (0, 0);
        while 3 * upper + 1 < groups {
            levels += 1;
            upper = 4 * upper + 1;
        }
        self.soon_shift = (groups > NEAR_LEAVES).then(|| 2 * (levels - 2));
        self.upper.clear();
        self.upper.resize(upper, Group { keys: NO_KEYS, leaves: [NOBODY; 4] });
        self.rebuild(before);
    }

    /// Gives a new key to every leaf that is in. O(leaves).
    pub(crate) fn rekey(
        &mut self,
        key: impl Fn(u32) -> u64,
        before: impl Fn(u32, u32) -> bool + Copy,
    ) {
        self.settle(before);
        for (group, first) in self.bottom.iter_mut().zip((0..).step_by(4)) {
            for (place, leaf) in group.0.iter_mut().zip(first..) {
                if *place <= LAST_KEY {
                    *place = key(leaf);
                }
            }
        }
        self.rebuild(before);
    }

    fn rebuild(&mut self, before: impl Fn(u32, u32) -> bool + Copy) {
        for group in &mut self.upper {
            group.keys = NO_KEYS;
        }
        let mut winner = Entry::NONE;
        for number in (0..self.upper.len() + self.bottom.len()).rev() {
            winner = match number.checked_sub(self.upper.len()) {
                Some(n) => least(&[0, 1, 2, 3].map(|place| self.leaf(4 * n + place)), before),
                None => least(&[0, 1, 2, 3].map(|place| self.upper[number].at(place)), before),
            };
            if let Some(above) = number.checked_sub(1).filter(|_| winner.key <= LAST_KEY) {
                let group = &mut self.upper[above / 4];
                group.keys[above % 4] = winner.key;
                group.leaves[above % 4] = winner.leaf;
            }
        }
        self.root = winner;
    }

    fn leaf(&self, leaf: usize) -> Entry {
        let key = self.bottom[leaf / 4].0[leaf % 4];
        if key > LAST_KEY { Entry::NONE } else { Entry { key, leaf: leaf as u32 } }
    }

    /// Enters or changes the key of a leaf, at most `LAST_KEY`. O(log N).
    #[inline(always)]
    pub(crate) fn insert(&mut self, leaf: u32, key: u64, before: impl Fn(u32, u32) -> bool + Copy) {
        debug_assert!(key <= LAST_KEY, "a key stands for nothing");
        if self.vacant != NOBODY {
            if self.vacant == leaf {
                self.vacant = NOBODY;
            } else {
                self.settle(before);
            }
        }
        self.replay(leaf, key, before);
    }

    /// Changes the key of the current winner. O(log N).
    #[inline(always)]
    pub(crate) fn change(&mut self, leaf: u32, key: u64, before: impl Fn(u32, u32) -> bool + Copy) {
        debug_assert!(self.settled_winner().is_some_and(|winner| winner.leaf == leaf));
        self.replay(leaf, key, before);
    }

    /// Removes a leaf; does nothing if it is not in. O(log N), and O(1) if it is the winner.
    #[inline]
    pub(crate) fn remove(&mut self, leaf: u32, before: impl Fn(u32, u32) -> bool + Copy) {
        if self.root.leaf == leaf {
            // It may be gone already: then this changes nothing.
            self.vacant = leaf;
        } else {
            self.remove_now(leaf, before);
        }
    }

    #[inline(never)]
    fn remove_now(&mut self, leaf: u32, before: impl Fn(u32, u32) -> bool + Copy) {
        if self.bottom[leaf as usize / 4].0[leaf as usize % 4] <= LAST_KEY {
            self.settle(before);
            self.replay(leaf, NO_KEYS[leaf as usize % 4], before);
        }
    }

    /// Does the deferred removal.
    #[inline(never)]
    fn settle(&mut self, before: impl Fn(u32, u32) -> bool + Copy) {
        if self.vacant != NOBODY {
            let leaf = core::mem::replace(&mut self.vacant, NOBODY);
            self.replay(leaf, NO_KEYS[leaf as usize % 4], before);
        }
    }

    #[inline(always)]
    fn replay(&mut self, leaf: u32, key: u64, before: impl Fn(u32, u32) -> bool + Copy) {
        let at = leaf as usize / 4;
        let (first, place) = (leaf & !3, leaf as usize % 4);
        let keys = &mut self.bottom[at].0;
        keys[place] = key;
        let name = move |place: usize| first | place as u32;
        let mut winner = replay_group(keys, place, Entry { key, leaf }, name, before);
        let mut number = self.upper.len() + at;
        while let Some(above) = number.checked_sub(1) {
            number = above / 4;
            let (group, place) = (&mut self.upper[number], above % 4);
            // If the winner is another stream that this place shows already, nothing changes from here on.
            if group.at(place) == winner && winner.leaf != leaf {
                return;
            }
            group.keys[place] = winner.key;
            group.leaves[place] = winner.leaf;
            let leaves = &group.leaves;
            winner = replay_group(&group.keys, place, winner, |place| leaves[place], before);
        }
        self.root = winner;
    }

    /// The lowest key, if any is in. O(1); O(log N) just after the winner has left.
    #[inline]
    pub(crate) fn winner(&self, before: impl Fn(u32, u32) -> bool + Copy) -> Option<Entry> {
        let winner = if self.vacant == NOBODY { self.root } else { self.runner_up(before) };
        (winner.key <= LAST_KEY).then_some(winner)
    }

    /// The winner, if no deferred removal hides it.
    #[inline(always)]
    pub(crate) fn settled_winner(&self) -> Option<Entry> {
        (self.vacant == NOBODY && self.root.key <= LAST_KEY).then_some(self.root)
    }

    /// Whether all keys are above `key`, as far as a look shows: a winner that has left still counts.
    #[inline(always)]
    pub(crate) const fn is_after(&self, key: u64) -> bool {
        self.root.key > key
    }

    #[inline(never)]
    fn runner_up(&self, before: impl Fn(u32, u32) -> bool + Copy) -> Entry {
        let vacant = self.vacant as usize;
        let rivals = [1, 2, 3].map(|of| self.leaf(vacant ^ of));
        let mut winner = least(&rivals, before);
        let mut number = self.upper.len() + vacant / 4;
        while let Some(above) = number.checked_sub(1) {
            number = above / 4;
            for of in 1..4 {
                winner = winner.lower(self.upper[number].at((above % 4) ^ of), before);
            }
        }
        winner
    }

    /// A leaf that is likely to win soon: one that a change to `leaf` brought up to near the root. Prefetches
    /// its lines in the tree. `None` where all of the tree is near.
    #[inline(always)]
    pub(crate) fn fetch_ahead(&mut self, leaf: u32) -> Option<u32> {
        let path = leaf as usize >> self.soon_shift?;
        let group = self.upper.get(SOON_LEVEL + path / 4)?;
        self.soon = group.leaves[path % 4];
        self.fetch(self.soon)?;
        Some(self.soon)
    }

    /// Prefetches the lines of a leaf that will change soon according to another tree.
    #[inline(always)]
    pub(crate) fn prefetch_leaf(&self, leaf: u32) {
        if self.soon_shift.is_some() {
            self.fetch(leaf);
        }
    }

    #[inline(always)]
    fn fetch(&self, leaf: u32) -> Option<()> {
        let at = leaf as usize / 4;
        prefetch(self.bottom.get(at)?);
        let mut number = (self.upper.len() + at - 1) / 4;
        while number >= NEAR_GROUPS {
            prefetch(self.upper.get(number)?);
            number = (number - 1) / 4;
        }
        Some(())
    }

    /// Where the keys lie.
    pub(crate) fn memory(&self) -> [Range<*const u8>; 2] {
        [lies(&self.bottom), lies(&self.upper)]
    }

    /// The last result of `fetch_ahead`.
    pub(crate) fn soon(&self) -> Option<u32> {
        self.soon_shift.map(|_| self.soon)
    }

    /// Walks down the tree: `look` gets the winner of each subtree, and at the bottom each key that is in
    /// (`true`); it returns whether to look below.
    pub(crate) fn search(&self, mut look: impl FnMut(Entry, bool) -> bool) {
        if !self.bottom.is_empty() {
            self.search_in(0, &mut look);
        }
    }

    fn search_in(&self, number: usize, look: &mut impl FnMut(Entry, bool) -> bool) {
        let bottom = number.checked_sub(self.upper.len());
        for place in 0..4 {
            let entry = match bottom {
                Some(n) => self.leaf(4 * n + place),
                None => self.upper[number].at(place),
            };
            let gone = entry.leaf == self.vacant;
            if entry.key > LAST_KEY || (bottom.is_some() && gone) {
                continue;
            }
            if (gone || look(entry, bottom.is_some())) && bottom.is_none() {
                self.search_in(4 * number + 1 + place, look);
            }
        }
    }
}

/// Where a list lies in memory.
pub(crate) fn lies<T>(list: &[T]) -> Range<*const u8> {
    let Range { start, end } = list.as_ptr_range();
    start.cast()..end.cast()
}

/// The winner of a group of four, one of which has just changed. The other three are compared without waiting
/// for that one. No branch depends on the winner, which is hard to predict.
#[inline(always)]
fn replay_group(
    keys: &[u64; 4],
    place: usize,
    changed: Entry,
    name: impl Fn(usize) -> u32,
    before: impl Fn(u32, u32) -> bool + Copy,
) -> Entry {
    let rival = |of: usize| (keys[place ^ of], name(place ^ of));
    let ((a, a_leaf), (b, b_leaf), (c, c_leaf)) = (rival(2), rival(3), rival(1));
    let pair = lower((a, a_leaf), (b, b_leaf));
    let rivals = lower(pair, (c, c_leaf));
    let winner = lower(rivals, (changed.key, changed.leaf));
    // Three branches that are hardly ever taken, written separately so that they stay three.
    if a == b {
        return play_ties::<0>(keys, name, before);
    }
    if pair.0 == c {
        return play_ties::<1>(keys, name, before);
    }
    if rivals.0 == changed.key {
        return play_ties::<2>(keys, name, before);
    }
    Entry { key: winner.0, leaf: winner.1 }
}

#[cold]
#[inline(never)]
fn play_ties<const WHICH: u8>(
    keys: &[u64; 4],
    name: impl Fn(usize) -> u32,
    before: impl Fn(u32, u32) -> bool + Copy,
) -> Entry {
    let entries = [0, 1, 2, 3].map(|place| Entry { key: keys[place], leaf: name(place) });
    least(&entries, before)
}

fn least(entries: &[Entry], before: impl Fn(u32, u32) -> bool + Copy) -> Entry {
    entries.iter().fold(Entry::NONE, |least, &entry| entry.lower(least, before))
}

#[cfg(test)]
mod tests;

//! A pairing heap whose links lie in one array, by member: any number of heaps over one set of members, each
//! member in at most one of them; only a new member allocates.
//!
//! Fredman, Sedgewick, Sleator and Tarjan, Algorithmica 1986: insertion O(1), removal of the first
//! or any other O(log n) amortised. The order is the caller's, and must be strict and total.

use alloc::vec::Vec;

/// No member: the root of an empty heap.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    /// The first child.
    child: u32,
    /// The sibling to the right.
    next: u32,
    /// The sibling to the left; for a first child, its parent.
    back: u32,
}

impl Links {
    const ALONE: Self = Self { child: NONE, next: NONE, back: NONE };
}

/// The links of all members. A heap is represented by its root, which the caller keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairingHeaps {
    links: Vec<Links>,
}

impl PairingHeaps {
    /// Makes room for members below `members`.
    pub(crate) fn grow(&mut self, members: usize) {
        if members > self.links.len() {
            self.links.resize(members, Links::ALONE);
        }
    }

    /// Puts a member, which is in no heap, into that of `root`; returns the new root.
    pub(crate) fn insert(
        &mut self,
        root: u32,
        member: u32,
        before: &impl Fn(u32, u32) -> bool,
    ) -> u32 {
        self.links[member as usize] = Links::ALONE;
        self.meld(root, member, before)
    }

    /// Takes a member out of the heap of `root`; returns the new root.
    pub(crate) fn remove(
        &mut self,
        root: u32,
        member: u32,
        before: &impl Fn(u32, u32) -> bool,
    ) -> u32 {
        let Links { child, next, back } = self.links[member as usize];
        self.links[member as usize] = Links::ALONE;
        let below = self.merge_pairs(child, before);
        if member == root {
            return below;
        }
        let link = &mut self.links[back as usize];
        if link.child == member {
            link.child = next;
        } else {
            link.next = next;
        }
        if next != NONE {
            self.links[next as usize].back = back;
        }
        self.meld(root, below, before)
    }

    /// Melds two heaps, given by their roots, into one.
    fn meld(&mut self, a: u32, b: u32, before: &impl Fn(u32, u32) -> bool) -> u32 {
        if a == NONE || b == NONE {
            return if a == NONE { b } else { a };
        }
        let (first, other) = if before(b, a) { (b, a) } else { (a, b) };
        let child = self.links[first as usize].child;
        if child != NONE {
            self.links[child as usize].back = other;
        }
        let other_links = &mut self.links[other as usize];
        (other_links.next, other_links.back) = (child, first);
        self.links[first as usize].child = other;
        first
    }

    /// Melds siblings into one heap: pairs from the left, then all of them from the right.
    fn merge_pairs(&mut self, mut left: u32, before: &impl Fn(u32, u32) -> bool) -> u32 {
        let mut pairs = NONE;
        while left != NONE {
            let right = self.pop_sibling(&mut left);
            let other = if left == NONE { NONE } else { self.pop_sibling(&mut left) };
            let pair = self.meld(right, other, before);
            self.links[pair as usize].next = pairs;
            pairs = pair;
        }
        let mut all = NONE;
        while pairs != NONE {
            let pair = self.pop_sibling(&mut pairs);
            all = self.meld(all, pair, before);
        }
        all
    }

    /// Removes the first of a list of siblings.
    fn pop_sibling(&mut self, list: &mut u32) -> u32 {
        let first = *list;
        let links = &mut self.links[first as usize];
        *list = links.next;
        (links.next, links.back) = (NONE, NONE);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Two heaps over the same members, against sorted lists.
        #[test]
        fn heaps_are_sorted_lists(
            keys in prop::collection::vec(0..50_u8, 40),
            steps in prop::collection::vec((0..40_u32, 0..2_usize), 1..300),
        ) {
            let mut heaps = PairingHeaps::default();
            heaps.grow(40);
            let before = |a: u32, b: u32| (keys[a as usize], a) < (keys[b as usize], b);
            let mut roots = [NONE; 2];
            let mut lists = [Vec::new(), Vec::new()];
            for (member, which) in steps {
                match (0..2).find(|&n| lists[n].contains(&member)) {
                    Some(n) => {
                        roots[n] = heaps.remove(roots[n], member, &before);
                        lists[n].retain(|&m| m != member);
                    }
                    None => {
                        roots[which] = heaps.insert(roots[which], member, &before);
                        lists[which].push(member);
                    }
                }
                for n in 0..2 {
                    let first = lists[n].iter().copied().min_by_key(|&m| (keys[m as usize], m));
                    prop_assert_eq!(roots[n], first.unwrap_or(NONE));
                }
            }
            for n in 0..2 {
                while let Some(first) = Some(roots[n]).filter(|&root| root != NONE) {
                    prop_assert!(lists[n].iter().all(|&m| m == first || before(first, m)));
                    roots[n] = heaps.remove(roots[n], first, &before);
                    lists[n].retain(|&m| m != first);
                }
                prop_assert!(lists[n].is_empty());
            }
        }
    }
}

//! The tournament against a search of all leaves.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn agrees_with_looking_at_all(
        steps in prop::collection::vec((0..80_u32, prop::option::of(0..6_u64)), 1..300),
    ) {
        // Ties by the higher leaf, to check that `before` is called.
        let before = |a: u32, b: u32| a > b;
        let mut tree = Tournament::default();
        let mut leaves = 1_usize;
        tree.grow(leaves, before);
        let mut plain = [None; 80];
        for (leaf, rank) in steps {
            while leaf as usize >= leaves {
                leaves *= 2;
                tree.grow(leaves, before);
            }
            plain[leaf as usize] = rank;
            match rank {
                Some(rank) => tree.insert(leaf, rank, before),
                None => tree.remove(leaf, before),
            }
            let real = || (0..80).filter_map(|leaf| Some((plain[leaf as usize]?, leaf)));
            let lowest = real().min_by_key(|&(rank, leaf)| (rank, u32::MAX - leaf));
            let winner = tree.winner(before).map(|entry| (entry.key, entry.leaf));
            prop_assert_eq!(winner, lowest);
            let mut seen = Vec::new();
            tree.search(|entry, bottom| {
                if bottom {
                    seen.push((entry.key, entry.leaf));
                }
                true
            });
            seen.sort_by_key(|&(_, leaf)| leaf);
            prop_assert_eq!(seen, real().collect::<Vec<_>>());
        }
        // New keys for all, in another order.
        let rekeyed = |leaf: u32| u64::from(leaf * 7 % 5);
        tree.rekey(rekeyed, before);
        let lowest = (0..80_u32).filter(|&leaf| plain[leaf as usize].is_some())
            .min_by_key(|&leaf| (leaf * 7 % 5, u32::MAX - leaf));
        prop_assert_eq!(tree.winner(before).map(|entry| entry.leaf), lowest);
    }
}

//! References between pictures, inferred from their kinds in decoding order.
//!
//! For streams whose headers contain no more than the kind of each picture. P needs the last
//! reference picture before it, B the last two; a reference picture in turn needs its own. MPEG-1
//! and MPEG-2 work this way; an encoder of H.264 may refer to other pictures, which its slice
//! headers name.

use crate::{Kind, References};

/// Follows one stream's pictures and returns the references of each.
#[derive(Clone, Debug, Default)]
pub struct GroupTracker {
    count: u64,
    /// The last reference picture, and the one before it, by count.
    last: Option<u64>,
    before: Option<u64>,
}

impl GroupTracker {
    /// The references of the next frame. `closes` means that nothing after this frame can refer to
    /// anything before it (an H.264 IDR picture, a closed group of pictures).
    pub fn push(&mut self, kind: Kind, referenced: bool, closes: bool) -> References {
        let seq = self.count;
        self.count += 1;
        let back = |to: u64| u32::try_from(seq - to).unwrap_or(u32::MAX);
        let refs = match (kind, self.last, self.before) {
            (Kind::Predicted, Some(last), _) => References::to([back(last)]),
            (Kind::Bidirectional, Some(last), before) => {
                References::to([back(last), before.map_or(0, back)])
            }
            (Kind::Predicted | Kind::Bidirectional, None, _) => References::UNKNOWN,
            _ => References::NONE,
        };
        let anchors = matches!(kind, Kind::Intra | Kind::Predicted | Kind::Bidirectional);
        if anchors && referenced {
            self.before = if closes { None } else { self.last };
            self.last = Some(seq);
        }
        refs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{Bidirectional as B, Intra as I, Predicted as P};

    fn refs(kinds: &[(Kind, bool, bool)]) -> Vec<Vec<u16>> {
        let mut group = GroupTracker::default();
        kinds
            .iter()
            .map(|&(kind, referenced, closes)| group.push(kind, referenced, closes))
            .map(|r| r.distances().collect())
            .collect()
    }

    #[test]
    fn b_needs_the_anchors_on_both_sides() {
        let closed = [(I, true, true), (P, true, false), (B, false, false), (B, false, false)];
        assert_eq!(refs(&closed), [&[][..], &[1], &[1, 2], &[2, 3]]);
    }

    #[test]
    fn leading_b_of_an_open_group_needs_the_group_before() {
        let open = [(I, true, true), (P, true, false), (I, true, false), (B, false, false)];
        assert_eq!(refs(&open)[3], [1, 2]);
        let closed = [(I, true, true), (P, true, false), (I, true, true), (B, false, false)];
        assert_eq!(refs(&closed)[3], [1]);
    }

    #[test]
    fn joined_in_the_middle_nothing_is_known_until_an_intra_picture() {
        let seen = refs(&[(P, true, false), (B, false, false), (I, true, true), (P, true, false)]);
        // The B picture's own reference is known, and can itself never be decoded.
        assert_eq!(seen, [&[u16::MAX][..], &[1], &[], &[1]]);
    }

    #[test]
    fn sound_and_stills_stand_alone() {
        let alone = [(Kind::Audio, false, false), (Kind::Still, false, false)];
        assert_eq!(refs(&alone), [vec![], vec![]]);
    }
}

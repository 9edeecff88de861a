//! Which earlier frames a frame needs: a bounded set that the producer of the frame states, and
//! that selection, ledger, receiver and the offline bound use.

/// The frames of the same stream, by how far back they lie in decoding order, without all of which
/// a frame can't be decoded; they need their own. Each of the [`NEAR`](Self::NEAR) before it may be
/// one, and a single one farther back (a long-term reference, say).
///
/// In one word: the lower 48 bits mark the frames 1 to 48 back, the upper 16 give the distance of
/// the farther one, 0 for none. Every bit pattern is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct References(u64);

impl References {
    /// Up to this distance any number of frames may be needed.
    pub const NEAR: u16 = 48;
    /// Stands alone.
    pub const NONE: Self = Self(0);
    /// Refers to a frame that never came (joined in the middle): it can never be decoded.
    pub const UNKNOWN: Self = Self((u16::MAX as u64) << Self::NEAR);

    const NEAR_BITS: u64 = (1 << Self::NEAR) - 1;

    /// The frames at these distances; 0 is none. Of several beyond [`NEAR`](Self::NEAR) the nearest
    /// counts: that one is likely to need the farther ones as well. [`UNKNOWN`](Self::UNKNOWN) if
    /// there is one at 65,535 or beyond and none of these is nearer.
    #[must_use]
    pub fn to(distances: impl IntoIterator<Item = u32>) -> Self {
        distances.into_iter().fold(Self::NONE, Self::with)
    }

    /// These and the one at another distance, by the rule of [`to`](Self::to).
    #[must_use]
    pub fn with(self, back: u32) -> Self {
        if back == 0 {
            return self;
        }
        if back <= u32::from(Self::NEAR) {
            return Self(self.0 | 1 << (back - 1));
        }
        let back = u16::try_from(back).unwrap_or(u16::MAX);
        let far = match self.far() {
            0 => back,
            far => far.min(back),
        };
        Self(self.near() | u64::from(far) << Self::NEAR)
    }

    /// From the result of [`bits`](Self::bits).
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// As a number, for memory and wire.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Which of the nearer 48 it needs: bit 0 for the frame just before it.
    #[must_use]
    pub const fn near(self) -> u64 {
        self.0 & Self::NEAR_BITS
    }

    /// How far back the farther one lies; 0 if there is none.
    #[must_use]
    pub const fn far(self) -> u16 {
        (self.0 >> Self::NEAR) as u16
    }

    /// Whether the frame can be decoded at all, whatever arrives.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.far() != u16::MAX
    }

    /// How far back each lies, the nearest first.
    pub fn distances(self) -> impl Iterator<Item = u16> {
        let mut near = self.near();
        let near = core::iter::from_fn(move || {
            let back = near.trailing_zeros();
            near &= near.wrapping_sub(1);
            (back < u64::BITS).then_some(back as u16 + 1)
        });
        near.chain((self.far() != 0).then_some(self.far()))
    }

    /// The sequence numbers referred to by the frame numbered `seq`.
    pub fn of(self, seq: u32) -> impl Iterator<Item = u32> {
        self.distances().map(move |back| seq.wrapping_sub(u32::from(back)))
    }

    /// Whether each of them is decodable: the one rule by which sender and receiver count.
    /// `decodable` states this for the 64 frames before, the last in the lowest bit; `is_decodable`
    /// is called for one farther back.
    #[inline(always)]
    #[must_use]
    pub fn are_met(self, decodable: u64, is_decodable: impl FnOnce(u16) -> bool) -> bool {
        self.near() & !decodable == 0
            && match self.far() {
                0 => true,
                u16::MAX => false,
                back => is_decodable(back),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_put_in_comes_out() {
        let refs = References::to([3, 1, 0, 48, 300, 49]);
        assert_eq!(refs.distances().collect::<Vec<_>>(), [1, 3, 48, 49]);
        assert_eq!(refs.of(2).collect::<Vec<_>>(), [1, u32::MAX, u32::MAX - 45, u32::MAX - 46]);
        assert_eq!(References::to([0]), References::NONE);
        assert_eq!(References::to([70_000]), References::UNKNOWN);
        assert!(!References::UNKNOWN.is_known() && References::NONE.is_known());
        assert!(References::to([70_000, 60]).is_known());
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "pure arithmetic, and cases are kept in files")]
        fn met_if_each_is(bits: u64, decodable: u64, farther: bool) {
            let refs = References::from_bits(bits);
            prop_assert_eq!(References::from_bits(refs.bits()), refs);
            let each = refs.distances().all(|back| match back {
                1..=48 => decodable >> (back - 1) & 1 == 1,
                back => back != u16::MAX && farther,
            });
            // A far one at a near distance, which only a foreign sender writes, is looked up all
            // the same.
            if refs.far() == 0 || refs.far() > References::NEAR {
                prop_assert_eq!(refs.are_met(decodable, |_| farther), each);
            }
        }
    }
}

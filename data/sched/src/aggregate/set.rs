//! Sets of streamlets: how many there can be, which weights go together, and the state of one.

use super::StreamletCounts;
use super::ring::Ring;

/// The most sets of one aggregate.
pub const SETS_MAX: usize = 16;

/// The largest least common multiple of the weights of an aggregate's sets.
pub const MEASURE_MAX: u64 = 1 << 48;

/// A set's index in an aggregate: the lowest that was free when it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetIndex(pub u8);

/// Why a set can't be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// There are [`SETS_MAX`] already.
    #[error("there are {SETS_MAX} sets already; put streamlets into one")]
    TooMany,
    /// A weight of 0 gives no share.
    #[error("a weight of 0 is no share; state 1 to 65535")]
    Weightless,
    /// With this weight the least common multiple of all is above [`MEASURE_MAX`], and shares
    /// could not be kept exactly.
    #[error(
        "the weight {0} has no common multiple with the others up to 2^48; choose a rounder one"
    )]
    Measure(u16),
}

#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) weight: u16,
    /// Streamlets that have frames waiting, the next first.
    pub(super) ring: Ring,
    /// The start of its next frame in virtual time, in units of a byte by the common measure; while it has no
    /// frame, the end of its last one.
    pub(super) tag: u128,
    pub(super) streamlets: u32,
    pub(super) tally: StreamletCounts,
}

/// A set that has streamlets.
pub(super) fn set_of(sets: &mut [Option<Set>; SETS_MAX], set: u8) -> &mut Set {
    sets[set as usize].as_mut().expect("a set with streamlets is not removed")
}

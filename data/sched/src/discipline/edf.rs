//! `edf`: earliest deadline first.

use selvedge_units::Instant;

use super::{HeadState, Rule, fine};

/// Rank and key: the deadline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edf;

impl Rule for Edf {
    const DEADLINE_FIRST: bool = true;

    fn rank(&self, head: &HeadState) -> u128 {
        head.deadline.0.into()
    }

    #[inline]
    fn key(&self, head: &HeadState, _: Instant) -> u64 {
        fine(head.deadline)
    }
}

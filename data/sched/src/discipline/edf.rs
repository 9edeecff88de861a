//! `edf`: earliest deadline first.

use selvedge_units::Instant;

use super::{Rule, Standing, fine};

/// Rank and key: the deadline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edf;

impl Rule for Edf {
    const DEADLINE_FIRST: bool = true;

    fn rank(&self, head: &Standing) -> u128 {
        head.deadline.0.into()
    }

    #[inline]
    fn key(&self, head: &Standing, _: Instant) -> u64 {
        fine(head.deadline)
    }
}

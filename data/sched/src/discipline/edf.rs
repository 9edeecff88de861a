//! `edf`: earliest deadline first.

use super::{Rule, Standing};

/// Rank: the deadline, 64 bits above 48 empty ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edf;

impl Rule for Edf {
    const DEADLINE_FIRST: bool = true;

    #[inline]
    fn rank(&self, head: &Standing) -> u128 {
        u128::from(head.deadline.0) << 48
    }
}

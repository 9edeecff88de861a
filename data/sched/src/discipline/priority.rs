//! `priority`: highest priority first.

use selvedge_units::Instant;

use super::{HeadState, Rule, coarse};

/// Rank: how far the priority lies below the highest possible one. Key: that, and the arrival, next in order,
/// as far as the other 32 bits hold it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Priority;

impl Priority {
    #[inline]
    fn below_highest(head: &HeadState) -> u32 {
        i32::MAX.abs_diff(head.priority)
    }
}

impl Rule for Priority {
    fn rank(&self, head: &HeadState) -> u128 {
        Self::below_highest(head).into()
    }

    #[inline]
    fn key(&self, head: &HeadState, _: Instant) -> u64 {
        u64::from(Self::below_highest(head)) << 32 | coarse(head.arrival)
    }
}

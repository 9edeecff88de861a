//! `priority`: highest priority first.

use super::{Rule, Standing};

/// Rank: how far the priority lies below the highest that there is, 32 bits; the arrival, which
/// breaks ties under every discipline, 64; 16 empty ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Priority;

impl Rule for Priority {
    const TIME_AT: u32 = 16;

    #[inline]
    fn rank(&self, head: &Standing) -> u128 {
        let below_highest = i32::MAX.abs_diff(head.priority);
        u128::from(below_highest) << 80 | u128::from(head.arrival.0) << 16
    }
}

//! `dwcs`: earliest deadline first, then the tightest window (ShareStreams Table 2, Q-Fabric
//! Table 1).

use super::{Rule, Standing};
use crate::window::tightness;

/// Rank, from the top bit down: 16 bits free, deadline 64, tightness 48.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dwcs;

impl Rule for Dwcs {
    const DEADLINE_FIRST: bool = true;

    #[inline]
    fn rank(&self, head: &Standing) -> u128 {
        u128::from(head.deadline.0) << 48 | u128::from(tightness(head.window))
    }
}

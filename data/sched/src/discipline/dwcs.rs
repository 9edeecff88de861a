//! `dwcs`: earliest deadline first, then the tightest window (ShareStreams Table 2, Q-Fabric
//! Table 1).

use selvedge_units::Instant;

use super::{HeadState, Rule};
use crate::window::{CLASS_BITS, tightness, tightness_class};

/// Rank: deadline, tightness. Key: 44 bits of the deadline since the epoch, 20 of the tightness.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dwcs;

impl Rule for Dwcs {
    const DEADLINE_FIRST: bool = true;

    fn rank(&self, head: &HeadState) -> u128 {
        u128::from(head.deadline.0) << 48 | u128::from(tightness(head.window))
    }

    #[inline]
    fn key(&self, head: &HeadState, epoch: Instant) -> u64 {
        const FAR: u64 = (1 << (64 - CLASS_BITS)) - 1;
        let since = head.deadline.0.wrapping_sub(epoch.0);
        // Deadlines before the epoch wrap to distant ones: the epoch is no higher than `EPOCH_MAX`.
        if since < FAR {
            since << CLASS_BITS | tightness_class(head.window)
        } else if head.deadline < epoch {
            0
        } else {
            FAR << CLASS_BITS
        }
    }
}

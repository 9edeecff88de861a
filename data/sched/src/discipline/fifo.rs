//! `fifo`: first come, first served.

use selvedge_units::Instant;

use super::{HeadState, Rule, fine};

/// Rank: nothing, since the order by arrival is common to all disciplines. Key: the arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo;

impl Rule for Fifo {
    fn rank(&self, _: &HeadState) -> u128 {
        0
    }

    #[inline]
    fn key(&self, head: &HeadState, _: Instant) -> u64 {
        fine(head.arrival)
    }
}

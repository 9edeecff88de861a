//! `fifo`: first come, first served.

use super::{Rule, Standing};

/// Rank: the arrival, which breaks ties under every discipline; here it is all that counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo;

impl Rule for Fifo {
    #[inline]
    fn rank(&self, head: &Standing) -> u128 {
        u128::from(head.arrival.0) << 48
    }
}

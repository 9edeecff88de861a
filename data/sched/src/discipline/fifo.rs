//! `fifo`: first come, first served; the order by arrival is common to all disciplines.

use super::{Rule, Standing};

/// Rank: nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo;

impl Rule for Fifo {
    fn rank(&mut self, _: &Standing) -> u128 {
        0
    }
}

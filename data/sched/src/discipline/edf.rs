//! `edf`: earliest deadline first.

use super::{Rule, Standing};

/// Rank: the deadline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edf;

impl Rule for Edf {
    fn rank(&mut self, head: &Standing) -> u128 {
        u128::from(head.deadline.0)
    }
}

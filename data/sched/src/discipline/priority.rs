//! `priority`: highest priority first.

use super::{Rule, Standing};

/// Rank: how far the priority lies below the highest that there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Priority;

impl Rule for Priority {
    fn rank(&mut self, head: &Standing) -> u128 {
        u128::from(i32::MAX.abs_diff(head.priority))
    }
}

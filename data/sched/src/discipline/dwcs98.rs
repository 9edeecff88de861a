//! `dwcs98`: the tightest window first, then the deadline (NI coprocessors, section 2.2.4).

use super::{Rule, Standing};
use crate::window::fraction;

/// Rank, from the top bit down: 16 bits free, fraction 32, then 80 bits that only heads with the
/// same fraction compare: deadline 64 and `x'` 16 if it is not 0; `y'` 16 and deadline 64 if it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dwcs98;

impl Rule for Dwcs98 {
    fn rank(&mut self, head: &Standing) -> u128 {
        let deadline = u128::from(head.deadline.0);
        let fraction = u128::from(fraction(head.window));
        let tie = if fraction != 0 {
            // "equal and not 0: lower D, then lower x'".
            deadline << 16 | u128::from(head.window.lose)
        } else {
            // "both 0 with y' = 0 for both: lower D; otherwise higher y'": the deadline counts
            // between streams without a window only.
            let deadline = if head.window.of == 0 { deadline } else { 0 };
            u128::from(u16::MAX - head.window.of) << 64 | deadline
        };
        fraction << 80 | tie
    }
}

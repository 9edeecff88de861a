//! `dwcs`: earliest deadline first, then the tightest window (ShareStreams Table 2, Q-Fabric
//! Table 1).

use super::{Rule, Standing};
use crate::window::fraction;

/// Rank, from the top bit down: 16 bits free, deadline 64, fraction 32, tie 16.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dwcs;

impl Rule for Dwcs {
    fn rank(&mut self, head: &Standing) -> u128 {
        let fraction = fraction(head.window);
        // "both 0: higher y'"; "equal and not 0: lower x'".
        let tie = if fraction == 0 { u16::MAX - head.window.of } else { head.window.lose };
        u128::from(head.deadline.0) << 48 | u128::from(fraction) << 16 | u128::from(tie)
    }
}

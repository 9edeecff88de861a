//! `dwcs98`: the tightest window first, then the deadline (NI coprocessors, section 2.2.4).

use super::{Rule, Standing};
use crate::window::tightness;

/// Rank, from the top bit down: 16 bits free, fraction 32, deadline 64, `x'` 16. Where `x' = 0`
/// the fraction's place holds how far `y'` lies below its highest, and the deadline counts only
/// between streams without a window: between the others its place holds the arrival, next in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dwcs98;

impl Rule for Dwcs98 {
    const TIME_AT: u32 = 16;

    #[inline]
    fn rank(&self, head: &Standing) -> u128 {
        let tightness = tightness(head.window);
        // "both 0 with y' = 0 for both: lower D; otherwise higher y'".
        let timed = head.window.lose != 0 || head.window.of == 0;
        let time = if timed { head.deadline } else { head.arrival };
        u128::from(tightness >> 16) << 80
            | u128::from(time.0) << 16
            | u128::from(tightness & 0xffff)
    }
}

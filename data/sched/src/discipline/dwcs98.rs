//! `dwcs98`: the tightest window first, then the deadline (NI coprocessors, section 2.2.4).

use selvedge_units::Instant;

use super::{HeadState, Rule, coarse};
use crate::window::tightness;

/// Rank: the fraction, which holds `y'` where `x' = 0`; the deadline; `x'`. "Both 0 with `y' = 0` for both:
/// lower `D`; otherwise higher `y'`". So between streams with a window and `x' = 0` the deadline does not
/// count. Its place holds the arrival, which is next in order. Key: the fraction, 32 bits, and that time as
/// far as the remaining bits can hold it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dwcs98;

impl Dwcs98 {
    #[inline]
    fn time(head: &HeadState) -> Instant {
        let timed = head.window.lose != 0 || head.window.of == 0;
        if timed { head.deadline } else { head.arrival }
    }
}

impl Rule for Dwcs98 {
    fn rank(&self, head: &HeadState) -> u128 {
        let tightness = u128::from(tightness(head.window));
        (tightness >> 16) << 80 | u128::from(Self::time(head).0) << 16 | tightness & 0xffff
    }

    #[inline]
    fn key(&self, head: &HeadState, _: Instant) -> u64 {
        (tightness(head.window) >> 16) << 32 | coarse(Self::time(head))
    }
}

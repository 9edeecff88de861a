//! The limits of an estimate, as the owner of a path gives them to its estimator.

use selvedge_units::Bitrate;

/// The limits of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateParams {
    /// Where it begins.
    pub start: Bitrate,
    /// It never falls below this.
    pub least: Bitrate,
    /// It never rises above this: more would be of no use.
    pub most: Bitrate,
}

impl Default for RateParams {
    /// From 500 kbit/s, within 50 kbit/s and 1 Gbit/s.
    fn default() -> Self {
        let [start, least, most] = [500, 50, 1_000_000].map(Bitrate::from_kbps);
        Self { start, least, most }
    }
}

//! Tags of the fair disciplines: bytes for each unit of weight, in fixed point.
//!
//! A tag is a whole number of [`UNIT`]s, 2^-48 byte for each unit of weight. A frame of `L` bytes in a stream
//! of weight `w` is `L / w` long, rounded down. That is off by less than one unit, so the sum over a million
//! frames is off by less than 2^-28 byte for each unit of weight. A frame counts as at most 2^40 bytes (1
//! TiB), so that 2^24 of the largest still fit the 112 bits of a rank; beyond that tags saturate.

use selvedge_units::Bytes;

/// A point of virtual time.
pub(crate) type Tag = u128;

/// Bits behind the point.
pub(crate) const FRACTION: u32 = 48;
/// The last tag that fits a rank.
pub(crate) const LAST: Tag = (1 << 112) - 1;
const BYTES_MAX: u64 = 1 << 40;

/// A frame's size as the tags count it, in bytes.
pub(crate) fn counted(size: Bytes) -> u64 {
    size.0.min(BYTES_MAX)
}

/// A frame's work: its bytes in units.
pub(crate) fn work(size: Bytes) -> u128 {
    u128::from(counted(size)) << FRACTION
}

/// How long a frame is in virtual time, for a weight of at least 1.
pub(crate) fn span(size: Bytes, weight: u32) -> Tag {
    work(size) / u128::from(weight.max(1))
}

/// The tag `span` after `start`, at most [`LAST`].
pub(crate) fn after(start: Tag, span: Tag) -> Tag {
    start.saturating_add(span).min(LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_long_as_its_share_is_small() {
        assert_eq!(span(Bytes(1000), 1), 1000 << FRACTION);
        assert_eq!(span(Bytes(1000), 8), 125 << FRACTION);
        assert_eq!(span(Bytes(1000), 0), span(Bytes(1000), 1));
        // Rounded down by less than one unit: times the weight, by less than the weight.
        let lost = work(Bytes(1)) - 3 * span(Bytes(1), 3);
        assert_eq!(lost, 1);
        assert!(span(Bytes(1), u32::MAX) >= 1 << 16);
    }

    #[test]
    fn ten_million_of_the_largest_frames_fit() {
        let longest = span(Bytes(u64::MAX), 1);
        assert!(10_000_000 * longest < LAST);
        assert_eq!(after(LAST - 1, longest), LAST);
    }
}

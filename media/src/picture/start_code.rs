//! Cuts bytes at the start codes (00 00 01) that MPEG video and H.264 byte streams share.

/// The bytes after each start code, up to the next one or to the end; may be empty.
pub(super) fn units(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = after_next(bytes);
    core::iter::from_fn(move || {
        let unit = rest?;
        rest = after_next(unit);
        let end = rest.map_or(unit.len(), |next| unit.len() - next.len() - 3);
        Some(&unit[..end])
    })
}

/// The bytes after the first start code.
pub(super) fn after_next(bytes: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    // The third byte of a window determines the minimum distance to a start code.
    loop {
        match *bytes.get(at + 2)? {
            0 => at += 1,
            1 if bytes[at] == 0 && bytes[at + 1] == 0 => return Some(&bytes[at + 3..]),
            _ => at += 3,
        }
    }
}

/// The payload of a NAL unit: without the emulation prevention bytes (3).
pub(super) fn unescaped(nal: &[u8]) -> Vec<u8> {
    let mut zeros = 0;
    let is_payload = |&&byte: &&u8| {
        let escapes = zeros >= 2 && byte == 3;
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        !escapes
    };
    nal.iter().filter(is_payload).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_what_lies_between() {
        let bytes = [9, 0, 0, 1, 5, 6, 0, 0, 0, 1, 7, 0, 0, 1];
        let found = units(&bytes).collect::<Vec<_>>();
        assert_eq!(found, [&[5, 6, 0][..], &[7], &[]]);
        assert_eq!(units(&[0, 0]).count(), 0);
    }

    #[test]
    fn escapes_are_taken_out() {
        assert_eq!(unescaped(&[1, 0, 0, 3, 1, 0, 3, 0, 0, 3]), [1, 0, 0, 1, 0, 3, 0, 0]);
        assert_eq!(unescaped(&[0, 0, 3, 0, 0, 3, 3]), [0, 0, 0, 0, 3]);
    }

    proptest! {
        #[test]
        fn as_many_as_a_naive_search_finds(bytes in prop::collection::vec(0u8..3, 0..64)) {
            let naive = bytes.windows(3).filter(|w| w == &[0, 0, 1]).count();
            prop_assert_eq!(units(&bytes).count(), naive);
        }
    }
}

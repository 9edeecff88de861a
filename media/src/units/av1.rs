//! Payloads of AV1 (RTP Payload Format for AV1, version 1.0, section 4): open bitstream units (OBUs) without their sizes, of
//! which a packet's first may continue the one before. The output is a temporal unit in the low-overhead format. Pure.

use crate::picture::av1::{HAS_EXTENSION, HAS_SIZE, TEMPORAL_DELIMITER, leb128, push_leb128};

/// The temporal unit of these payloads; `None` if one is malformed.
pub(super) fn unit<'a>(payloads: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut unit = vec![TEMPORAL_DELIMITER << 3 | HAS_SIZE, 0];
    let mut open: Vec<u8> = Vec::new();
    for payload in payloads {
        let (&aggregation, rest) = payload.split_first()?;
        let [is_continued, continues] = [0x80, 0x40].map(|bit| aggregation & bit != 0);
        if is_continued == open.is_empty() {
            return None;
        }
        let parts = parts(rest, aggregation >> 4 & 3)?;
        let last = parts.len().checked_sub(1)?;
        for (n, part) in parts.into_iter().enumerate() {
            open.extend_from_slice(part);
            if n < last || !continues {
                push_sized(&open, &mut unit)?;
                open.clear();
            }
        }
    }
    open.is_empty().then_some(unit)
}

/// The OBUs of a payload, whole or in part: `count` of them, of which the last has no size before it; or any number, all with
/// their sizes, where that is 0.
fn parts(mut rest: &[u8], count: u8) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    for _ in 1..count {
        let (size, behind) = leb128(rest)?;
        let (part, behind) = behind.split_at_checked(size)?;
        parts.push(part);
        rest = behind;
    }
    if count > 0 {
        parts.push(rest);
        return Some(parts);
    }
    while !rest.is_empty() {
        let (size, behind) = leb128(rest)?;
        let (part, behind) = behind.split_at_checked(size)?;
        parts.push(part);
        rest = behind;
    }
    Some(parts)
}

/// Appends an OBU with its size, which it may have already.
fn push_sized(obu: &[u8], unit: &mut Vec<u8>) -> Option<()> {
    let &head = obu.first()?;
    if head & HAS_SIZE != 0 {
        unit.extend_from_slice(obu);
        return Some(());
    }
    let (header, body) = obu.split_at_checked(1 + usize::from(head & HAS_EXTENSION != 0))?;
    unit.push(head | HAS_SIZE);
    unit.extend_from_slice(&header[1..]);
    push_leb128(body.len(), unit);
    unit.extend_from_slice(body);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(payloads: &[&[u8]]) -> Option<Vec<u8>> {
        unit(payloads.iter().copied())
    }

    #[test]
    fn parts_of_all_forms_make_one_unit() {
        // A sequence header with a size before it and a frame in three pieces; one with an extension; sizes for all.
        let pieces: [&[u8]; 3] = [&[0x60, 2, 0x08, 7, 0x30, 1], &[0xd0, 2], &[0x90, 3]];
        let others: [&[u8]; 2] = [&[0x10, 0x34, 5, 6], &[0x00, 2, 0x28, 9, 3, 0x2a, 1, 8]];
        let whole = [
            &[0x12, 0][..],
            &[0x0a, 1, 7],
            &[0x32, 3, 1, 2, 3],
            &[0x36, 5, 1, 6],
            &[0x2a, 1, 9],
            &[0x2a, 1, 8],
        ];
        assert_eq!(found(&[&pieces[..], &others].concat()), Some(whole.concat()));
        for broken in [
            &[][..],
            &[0x00],
            &[0x10],
            &[0x90, 1],
            &[0x50, 0x30, 1],
            &[0x20, 9, 1],
            &[0x00, 0x80],
            &[0x10, 0x34],
        ] {
            assert_eq!(found(&[broken]), None, "{broken:?}");
        }
    }
}

//! Payloads of H.264 (RFC 6184) and H.265 (RFC 7798), of which the units of the network abstraction layer (NAL) are made: a
//! packet holds one, several, or a piece of one. The output is a byte stream (Annex B). Pure.

/// In front of each NAL unit.
const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// The payload format of a codec.
#[derive(Debug)]
pub(super) struct PayloadFormat {
    /// The bytes of a header, of which the first has the type.
    header: usize,
    /// How far left the type stands in that byte, and which bits it has.
    shift: u32,
    mask: u8,
    /// The types of payloads that hold several units, and of those that hold a piece of one. What lies between these two and
    /// beyond has another order than that of decoding.
    several: u8,
    piece: u8,
}

pub(super) const H264: PayloadFormat =
    PayloadFormat { header: 1, shift: 0, mask: 0x1f, several: 24, piece: 28 };
pub(super) const H265: PayloadFormat =
    PayloadFormat { header: 2, shift: 1, mask: 0x3f, several: 48, piece: 49 };

/// A byte stream of these payloads; `None` if one is malformed, or of a form that only interleaved
/// streams have.
pub(super) fn unit<'a>(
    format: &PayloadFormat,
    payloads: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<u8>> {
    let (mut unit, mut is_begun) = (Vec::new(), false);
    for payload in payloads {
        let (header, mut rest) = payload.split_at_checked(format.header)?;
        let kind = header[0] >> format.shift & format.mask;
        if kind < format.several {
            unit.extend(START_CODE);
            unit.extend_from_slice(payload);
        } else if kind == format.several {
            while let Some((len, after)) = rest.split_first_chunk() {
                let len = usize::from(u16::from_be_bytes(*len));
                let (part, after) = after.split_at_checked(len)?;
                unit.extend(START_CODE);
                unit.extend_from_slice(part);
                rest = after;
            }
        } else if kind == format.piece {
            let (&of, piece) = rest.split_first()?;
            if of & 0x80 != 0 {
                unit.extend(START_CODE);
                let own = (of & format.mask) << format.shift;
                unit.push(header[0] & !(format.mask << format.shift) | own);
                unit.extend_from_slice(&header[1..]);
                is_begun = true;
            }
            if !is_begun {
                return None;
            }
            unit.extend_from_slice(piece);
            is_begun = of & 0x40 == 0;
        } else {
            return None;
        }
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(format: &PayloadFormat, payloads: &[&[u8]]) -> Option<Vec<u8>> {
        unit(format, payloads.iter().copied())
    }

    fn stream(parts: &[&[u8]]) -> Option<Vec<u8>> {
        Some(parts.iter().flat_map(|part| [&START_CODE, *part].concat()).collect())
    }

    #[test]
    fn parts_of_all_forms_make_one_unit() {
        let aggregate: &[u8] = &[0x78, 0, 2, 0x67, 1, 0, 3, 0x68, 2, 3];
        let pieces: [&[u8]; 3] = [&[0x7c, 0x85, 7], &[0x7c, 0x05, 8], &[0x7c, 0x45, 9]];
        let found = all(&H264, &[aggregate, &[0x06, 5], pieces[0], pieces[1], pieces[2]]);
        assert_eq!(found, stream(&[&[0x67, 1], &[0x68, 2, 3], &[0x06, 5], &[0x65, 7, 8, 9]]));
        for broken in [&[][..], &[0x7c, 0x05, 8], &[0x7c], &[0x78, 0, 9, 1], &[0x7d, 1, 2], &[0x79]]
        {
            assert_eq!(all(&H264, &[broken]), None, "{broken:?}");
        }
    }

    #[test]
    fn headers_of_two_bytes_are_kept() {
        let aggregate: &[u8] = &[0x60, 1, 0, 3, 0x40, 1, 5, 0, 2, 0x42, 1];
        let pieces: [&[u8]; 2] = [&[0x62, 3, 0x80 | 19, 7], &[0x62, 3, 0x40 | 19, 8]];
        let found = all(&H265, &[aggregate, &[0x02, 1, 9], pieces[0], pieces[1]]);
        let whole: [&[u8]; 4] = [&[0x40, 1, 5], &[0x42, 1], &[0x02, 1, 9], &[19 << 1, 3, 7, 8]];
        assert_eq!(found, stream(&whole));
        for broken in [&[0x62][..], &[0x62, 1], &[0x62, 1, 19, 1], &[0x64, 1, 2]] {
            assert_eq!(all(&H265, &[broken]), None, "{broken:?}");
        }
    }
}

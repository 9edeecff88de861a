//! Payloads of VP8 (RFC 7741) and VP9 (RFC 9628): a descriptor, and a piece of the frame behind it. Pure.

use crate::picture::bits::Bits;

/// The frame of these payloads, whose descriptors `skip` reads; `None` if one is malformed.
pub(super) fn unit<'a>(
    skip: impl Fn(&mut Bits<'_>) -> Option<()>,
    mut payloads: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<u8>> {
    payloads.try_fold(Vec::new(), |mut unit, payload| {
        let mut bits = Bits::new(payload);
        skip(&mut bits)?;
        unit.extend_from_slice(bits.rest());
        Some(unit)
    })
}

/// Reads the descriptor of VP8 (RFC 7741, section 4.2).
pub(super) fn vp8(bits: &mut Bits<'_>) -> Option<()> {
    let is_extended = bits.flag()?;
    bits.skip(7)?;
    if !is_extended {
        return Some(());
    }
    let [has_picture, has_level, has_layer, has_key] =
        [bits.flag()?, bits.flag()?, bits.flag()?, bits.flag()?];
    bits.skip(4)?;
    if has_picture {
        skip_picture_number(bits)?;
    }
    bits.skip(8 * (usize::from(has_level) + usize::from(has_layer || has_key)))
}

/// Reads the descriptor of VP9 (RFC 9628, section 4.2).
pub(super) fn vp9(bits: &mut Bits<'_>) -> Option<()> {
    let mut next = || bits.flag();
    let [has_picture, is_predicted, has_layers, is_flexible] = [next()?, next()?, next()?, next()?];
    bits.skip(2)?;
    let has_structure = bits.flag()?;
    bits.skip(1)?;
    if has_picture {
        skip_picture_number(bits)?;
    }
    if has_layers {
        bits.skip(if is_flexible { 8 } else { 16 })?;
    }
    if is_flexible && is_predicted {
        // A distance to another picture in seven bits, and whether one more follows.
        while bits.number(8)? & 1 == 1 {}
    }
    if has_structure { skip_structure(bits) } else { Some(()) }
}

/// A number of 7 bits, or of 15 if the first bit says so.
fn skip_picture_number(bits: &mut Bits<'_>) -> Option<()> {
    let is_long = bits.flag()?;
    bits.skip(if is_long { 15 } else { 7 })
}

/// The sizes of the spatial layers of VP9, and which pictures of a group refer to which.
fn skip_structure(bits: &mut Bits<'_>) -> Option<()> {
    let layers = bits.number(3)? as usize + 1;
    let [has_sizes, has_group] = [bits.flag()?, bits.flag()?];
    bits.skip(3)?;
    if has_sizes {
        bits.skip(32 * layers)?;
    }
    for _ in 0..if has_group { bits.number(8)? } else { 0 } {
        bits.skip(4)?;
        let references = bits.number(2)? as usize;
        bits.skip(2 + 8 * references)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(skip: fn(&mut Bits<'_>) -> Option<()>, payloads: &[&[u8]]) -> Option<Vec<u8>> {
        unit(skip, payloads.iter().copied())
    }

    #[test]
    fn descriptors_of_vp8_are_left_out() {
        // Without an extension; with a long number, a level and a layer; with a short number and a key.
        let all: [&[u8]; 3] = [&[0x10, 1], &[0x80, 0xe0, 0x80, 7, 7, 7, 2], &[0x80, 0x90, 7, 7, 3]];
        assert_eq!(found(vp8, &all), Some(vec![1, 2, 3]));
        for broken in [&[][..], &[0x80], &[0x80, 0x80], &[0x80, 0x80, 0x80], &[0x80, 0x40]] {
            assert_eq!(found(vp8, &[broken]), None, "{broken:?}");
        }
    }

    #[test]
    fn descriptors_of_vp9_are_left_out() {
        let all: [&[u8]; 4] = [
            // A short number; layers and their pictures; two references; two sizes and a group of two pictures.
            &[0x80, 7, 1],
            &[0x20, 7, 7, 2],
            &[0xf0, 0x80, 7, 7, 0x03, 0x02, 3],
            &[0x02, 0x38, 0, 9, 0, 9, 0, 9, 0, 9, 2, 0x04, 5, 0x00, 4],
        ];
        assert_eq!(found(vp9, &all), Some(vec![1, 2, 3, 4]));
        for broken in [&[][..], &[0x80], &[0x20, 7], &[0x50, 3], &[0x02, 0x10, 1], &[0x02, 0x08, 1]]
        {
            assert_eq!(found(vp9, &[broken]), None, "{broken:?}");
        }
    }
}

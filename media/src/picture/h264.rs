//! H.264 (ITU-T Rec. H.264, sections 7.3.1 and 7.3.3): the kind of an access unit from its
//! slice headers.

mod memory;
mod order;
mod references;

use h264_reader::nal::{NalHeader, UnitType};
use h264_reader::rbsp::{BitRead, BitReader, ByteReader};
use selvedge_data_stream::Kind;

pub use self::references::H264Reader;
use super::{Picture, start_code};

/// The NAL header and a slice header's first two fields fit into this, escapes included.
const SLICE_PREFIX: usize = 14;

/// `nal_unit_type` of a sequence parameter set.
const SEQUENCE: u8 = 7;
/// `nal_unit_type` of an access unit delimiter, which has one byte of body.
const DELIMITER: u8 = 9;

/// The picture of a whole access unit in byte-stream format; `None` if it holds no readable slice.
#[must_use]
pub fn picture(unit: &[u8]) -> Option<Picture> {
    start_code::units(unit).filter_map(slice).reduce(Picture::joined)
}

/// How many bytes an access unit delimiter takes at the front of a unit; 0 if there is none.
#[must_use]
pub fn delimiter_len(unit: &[u8]) -> usize {
    match start_code::after_next(unit) {
        Some([head, _, rest @ ..]) if head & 0x9f == DELIMITER => match rest {
            [0, 0, 1, ..] | [0, 0, 0, 1, ..] => unit.len() - rest.len(),
            _ => 0,
        },
        _ => 0,
    }
}

/// `profile-level-id` (RFC 6184 section 8.1): the three bytes of the first sequence parameter
/// set in a unit, in hexadecimal.
#[must_use]
pub fn profile_level_id(unit: &[u8]) -> Option<String> {
    start_code::units(unit).find_map(|nal| match nal {
        [head, profile, constraints, level, ..] if head & 0x9f == SEQUENCE => {
            Some(format!("{profile:02x}{constraints:02x}{level:02x}"))
        }
        _ => None,
    })
}

fn slice(nal: &[u8]) -> Option<Picture> {
    let header = NalHeader::new(*nal.first()?).ok()?;
    let closes = match header.nal_unit_type() {
        UnitType::SliceLayerWithoutPartitioningIdr => true,
        UnitType::SliceLayerWithoutPartitioningNonIdr | UnitType::SliceDataPartitionALayer => false,
        _ => return None,
    };
    // Zeros between a NAL unit and the next start code belong to neither.
    let len = nal[..nal.len().min(SLICE_PREFIX)].iter().rposition(|&byte| byte != 0)? + 1;
    let prefix = &nal[..len];
    let mut bits = BitReader::new(ByteReader::skipping_h264_header(prefix));
    bits.read_ue("first_mb_in_slice").ok()?;
    // Types 5 to 9 mean that all slices of the picture are of the same type, 0 to 4.
    let kind = match bits.read_ue("slice_type").ok()? {
        0 | 5 | 3 | 8 => Kind::Predicted,
        1 | 6 => Kind::Bidirectional,
        2 | 7 | 4 | 9 => Kind::Intra,
        _ => return None,
    };
    Some(Picture { kind, referenced: header.nal_ref_idc() != 0, closes, refs: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{Bidirectional as B, Intra as I, Predicted as P};
    use proptest::prelude::*;

    /// A slice with `first_mb_in_slice` 0 and this type.
    fn nal(header: u8, slice_type: u32) -> Vec<u8> {
        let code = slice_type + 1;
        let width = 32 - code.leading_zeros();
        // `1` for first_mb_in_slice, then width - 1 zeros and the code itself.
        let bits = 1u32 << 31 | code << (32 - 2 * width) | 0x0101;
        [&[0, 0, 0, 1, header][..], &bits.to_be_bytes(), &[0x80, 0, 0]].concat()
    }

    fn read(units: &[Vec<u8>]) -> Option<(Kind, bool, bool)> {
        picture(&units.concat()).map(|p| (p.kind, p.referenced, p.closes))
    }

    #[test]
    fn all_ten_slice_types() {
        let kinds = [P, B, I, P, I, P, B, I, P, I];
        for (slice_type, kind) in (0u32..).zip(kinds) {
            assert_eq!(read(&[nal(0x41, slice_type)]), Some((kind, true, false)), "{slice_type}");
        }
        assert_eq!(read(&[nal(0x41, 10)]), None);
    }

    #[test]
    fn idr_closes_and_ref_idc_counts() {
        assert_eq!(read(&[nal(0x65, 7)]), Some((I, true, true)));
        assert_eq!(read(&[nal(0x61, 7)]), Some((I, true, false)));
        assert_eq!(read(&[nal(0x01, 6)]), Some((B, false, false)));
    }

    #[test]
    fn the_most_dependent_slice_counts() {
        let delimiter = vec![0, 0, 1, 9, 0xf0];
        let mixed = [delimiter.clone(), nal(0x41, 2), nal(0x41, 1), nal(0x41, 0)];
        assert_eq!(read(&mixed), Some((B, true, false)));
        assert_eq!(read(&[delimiter]), None);
    }

    #[test]
    fn a_delimiter_in_front_is_measured() {
        let slice = nal(0x41, 0);
        assert_eq!(delimiter_len(&[&[0, 0, 0, 1, 9, 0xf0], &slice[..]].concat()), 6);
        assert_eq!(delimiter_len(&[&[0, 0, 1, 9, 0xf0], &slice[1..]].concat()), 5);
        for without in [&slice[..], &[0, 0, 1, 9], &[0, 0, 1, 9, 0xf0], &[0, 0, 1, 9, 1, 2, 3]] {
            assert_eq!(delimiter_len(without), 0);
        }
    }

    #[test]
    fn the_profile_stands_in_the_first_parameter_set() {
        let unit = [0, 0, 1, 9, 0xf0, 0, 0, 1, 0x67, 0x4d, 0x40, 0x1f, 0x96];
        assert_eq!(profile_level_id(&unit).as_deref(), Some("4d401f"));
        assert_eq!(profile_level_id(&unit[..10]), None);
    }

    #[test]
    fn a_real_first_slice_of_a_stream() {
        // From car-detection.mp4: parameter sets, then the beginning of its first IDR slice.
        let unit = [
            &[0, 0, 0, 1, 0x67, 0x42, 0x80, 0x16, 0x96, 0x54][..],
            &[0, 0, 0, 1, 0x68, 0xce, 0x35, 0x20],
            &[0, 0, 0, 1, 0x65, 0xb8, 0x00, 0x04, 0x00, 0x00, 0x03, 0x00],
        ];
        assert_eq!(read(&unit.map(<[u8]>::to_vec)), Some((I, true, true)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = picture(&bytes);
            prop_assert!(delimiter_len(&bytes) <= bytes.len());
        }

        #[test]
        fn any_slices_are_survived(
            nals in prop::collection::vec(prop::collection::vec(0u8..4, 0..40), 0..8)
        ) {
            let unit = nals.iter().flat_map(|n| [&[0, 0, 1, 0x41][..], n].concat());
            let found = picture(&unit.collect::<Vec<_>>());
            prop_assert!(found.is_none_or(|p| (p.kind as u8) < 3));
        }
    }
}

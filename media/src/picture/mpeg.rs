//! MPEG-1 and MPEG-2 video (ISO/IEC 11172-2 section 2.4.2, ISO/IEC 13818-2 section 6.2): the kind of a
//! picture, and the fields that the RTP payload header (RFC 2250 section 3.4) repeats.

use selvedge_data_stream::Kind;

use super::{Picture, start_code};

const PICTURE: u8 = 0x00;
const SLICES: core::ops::RangeInclusive<u8> = 0x01..=0xaf;
const SEQUENCE: u8 = 0xb3;
const GROUP: u8 = 0xb8;
/// Bytes of the MPEG video-specific header in each RTP packet.
pub const RTP_HEADER_LEN: usize = 4;

/// The headers of a picture and of those that precede it in its access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Its kind; a D picture counts as I.
    pub kind: Kind,
    /// `temporal_reference`: its place in display order within the group, modulo 1024.
    pub temporal_reference: u16,
    /// Whether a group header precedes it, and then whether the group is closed.
    pub group: Option<bool>,
    /// Whether a sequence header precedes it.
    pub sequence: bool,
    /// `picture_coding_type`, 1 to 4.
    coding: u8,
    /// `full_pel_*_vector` and `*_f_code` as RFC 2250 packs them: FBV, BFC, FFV, FFC.
    vectors: u8,
}

/// The headers of the first picture in an access unit; `None` if there is none. If the unit
/// holds more than one (the fields of a frame), the most dependent kind counts.
#[must_use]
pub fn headers(unit: &[u8]) -> Option<Headers> {
    let (mut group, mut sequence, mut found) = (None, false, None::<Headers>);
    for part in start_code::units(unit) {
        match part {
            [SEQUENCE, ..] => sequence = true,
            [GROUP, _, _, _, flags, ..] => group = Some(flags & 0x40 != 0),
            [PICTURE, body @ ..] => {
                let Some(next) = picture_header(body) else { continue };
                found = Some(match found {
                    Some(first) if first.kind as u8 >= next.kind as u8 => first,
                    Some(first) => Headers { kind: next.kind, ..first },
                    None => Headers { group, sequence, ..next },
                });
            }
            _ => {}
        }
    }
    found
}

fn picture_header(body: &[u8]) -> Option<Headers> {
    let coding = body.get(1)? >> 3 & 0x07;
    let kind = match coding {
        1 | 4 => Kind::Intra,
        2 => Kind::Predicted,
        3 => Kind::Bidirectional,
        _ => return None,
    };
    let temporal_reference = u16::from_be_bytes([body[0], body[1]]) >> 6;
    // After vbv_delay (16 bits): 4 bits forward if P or B, 4 bits backward if B.
    let tail = |at: usize| body.get(at).copied().unwrap_or(0);
    let codes = u16::from_be_bytes([tail(3), tail(4)]) >> 3;
    let (forward, backward) = ((codes >> 4 & 0x0f) as u8, (codes & 0x0f) as u8);
    let vectors = match kind {
        Kind::Predicted => forward,
        Kind::Bidirectional => backward << 4 | forward,
        _ => 0,
    };
    Some(Headers { kind, temporal_reference, group: None, sequence: false, coding, vectors })
}

/// The picture of an access unit; `None` if it holds none.
#[must_use]
pub fn picture(unit: &[u8]) -> Option<Picture> {
    headers(unit).map(|headers| headers.picture())
}

impl Headers {
    /// The relation of the picture to others.
    #[must_use]
    pub fn picture(&self) -> Picture {
        let intra = self.kind == Kind::Intra;
        Picture {
            kind: self.kind,
            referenced: self.kind != Kind::Bidirectional,
            closes: intra && self.group == Some(true),
            refs: None,
        }
    }

    /// Makes the MPEG video-specific header of one of the picture's packets (RFC 2250 section 3.4), to
    /// go in front of this payload. `first` and `last` state the packet's position.
    #[must_use]
    pub fn rtp_header(&self, payload: &[u8], first: bool, last: bool) -> [u8; RTP_HEADER_LEN] {
        let begins = matches!(payload, [0, 0, 1, code, ..] if SLICES.contains(code));
        let flags = [(self.sequence && first, 0x20), (first || begins, 0x10), (last, 0x08)];
        let flags = flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum::<u8>();
        let [high, low] = (self.temporal_reference & 0x03ff).to_be_bytes();
        [high, low, flags | self.coding & 0x07, self.vectors]
    }
}

/// Follows display order through the groups of a stream that comes without timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub struct DisplayOrder {
    decoded: u64,
    group_began: u64,
}

impl DisplayOrder {
    /// By how many frame periods the display of the next picture lies behind its decoding: the
    /// one period that reordering takes, plus or minus its place in the group. At most 1024.
    pub fn lag(&mut self, headers: &Headers) -> u64 {
        if headers.group.is_some() {
            self.group_began = self.decoded;
        }
        let shown = self.group_began + u64::from(headers.temporal_reference) + 1;
        let lag = shown.saturating_sub(self.decoded);
        self.decoded += 1;
        lag.min(1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{Bidirectional as B, Intra as I, Predicted as P};
    use proptest::prelude::*;

    fn coded(coding: u8, reference: u16) -> Vec<u8> {
        // Both vectors of half pixels, both f_codes 7.
        let word = u32::from(reference) << 22 | u32::from(coding) << 19 | 0xffff << 3 | 0b011;
        [&[0, 0, 1, PICTURE][..], &word.to_be_bytes(), &[0b1011_1000, 0], &[0, 0, 1, 1, 9]].concat()
    }

    const CLOSED: [u8; 8] = [0, 0, 1, GROUP, 0, 8, 0, 0x40];
    const OPEN: [u8; 8] = [0, 0, 1, GROUP, 0, 8, 0, 0x00];

    #[test]
    fn the_coding_type_is_the_kind() {
        let kind = |coding| picture(&coded(coding, 0)).map(|p| (p.kind, p.referenced));
        assert_eq!(kind(1), Some((I, true)));
        assert_eq!(kind(2), Some((P, true)));
        assert_eq!(kind(3), Some((B, false)));
        assert_eq!(kind(4), Some((I, true)));
        for invalid in [0, 5, 6, 7] {
            assert_eq!(kind(invalid), None);
        }
    }

    #[test]
    fn only_the_intra_picture_of_a_closed_group_closes() {
        let closes = |parts: &[&[u8]]| picture(&parts.concat()).unwrap().closes;
        assert!(closes(&[&CLOSED, &coded(1, 0)]));
        assert!(!closes(&[&OPEN, &coded(1, 2)]));
        assert!(!closes(&[&coded(1, 0)]));
        assert!(!closes(&[&CLOSED, &coded(2, 0)]));
    }

    #[test]
    fn the_fields_of_a_frame_count_as_the_more_dependent() {
        let both = [coded(1, 7), coded(2, 7)].concat();
        let read = headers(&both).unwrap();
        assert_eq!((read.kind, read.temporal_reference), (P, 7));
    }

    #[test]
    fn the_rtp_header_repeats_the_picture_header() {
        let unit = [&[0, 0, 1, SEQUENCE, 1, 2, 3][..], &CLOSED, &coded(3, 513)].concat();
        let read = headers(&unit).unwrap();
        // Reference 513; sequence, begin of slice, B; both f_codes 7.
        assert_eq!(read.rtp_header(&unit, true, false), [0x02, 0x01, 0x20 | 0x10 | 3, 0x77]);
        assert_eq!(read.rtp_header(&[1, 2, 3], false, true), [0x02, 0x01, 0x08 | 3, 0x77]);
        assert_eq!(read.rtp_header(&[0, 0, 1, 1], false, false)[2], 0x10 | 3);
    }

    #[test]
    fn display_lags_behind_decoding_by_the_place_in_the_group() {
        let mut order = DisplayOrder::default();
        let units = [
            [&CLOSED[..], &coded(1, 0)].concat(),
            coded(2, 3),
            coded(3, 1),
            coded(3, 2),
            [&OPEN[..], &coded(1, 2)].concat(),
            coded(3, 0),
            coded(3, 1),
        ];
        let lags = units.map(|unit| order.lag(&headers(&unit).unwrap()));
        assert_eq!(lags, [1, 3, 0, 0, 3, 0, 0]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(0u8..8, 0..256)) {
            if let Some(read) = headers(&bytes) {
                prop_assert!(read.temporal_reference < 1024);
                prop_assert!(DisplayOrder::default().lag(&read) <= 1024);
            }
        }

        #[test]
        fn a_cut_picture_is_survived(len in 0usize..30, coding in 0u8..8) {
            let whole = [&CLOSED[..], &coded(coding, 1)].concat();
            let _ = picture(&whole[..len.min(whole.len())]);
        }
    }
}

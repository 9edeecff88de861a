//! AV1 temporal units into RTP packets (RTP Payload Format for AV1, version 1.0, section 4).
//!
//! Units come from the parser as open bitstream units in the low-overhead format; payloads go to the
//! packetizer, which keeps them. GStreamer's own payloader is in a plug-in that Debian does not have,
//! and that would bring more crates than this has functions. Pure.

use selvedge_data_stream::rtp::HEADER_LEN;

use crate::picture::av1::{
    HAS_SIZE, Obu, SEQUENCE_HEADER, TEMPORAL_DELIMITER, obu_type, obus, push_leb128,
};

/// Types of open bitstream units that stand in the format but not in packets.
const TILE_LIST: u8 = 8;
const PADDING: u8 = 15;
/// Bits of the aggregation header: the first element continues, the last will continue, a sequence
/// begins.
const CONTINUED: u8 = 0x80;
const CONTINUES: u8 = 0x40;
const BEGINS: u8 = 0x08;
/// The marker in a packet's second byte.
const MARKER: u8 = 0x80;
/// The longest size of an element, in bytes: as many as packets of 64 KiB need.
const SIZE_LEN_MAX: usize = 3;

/// Makes packets of one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Av1Packets {
    payload_max: usize,
    payload_type: u8,
}

impl Av1Packets {
    pub(super) const fn new(payload_max: usize, payload_type: u8) -> Self {
        Self { payload_max, payload_type }
    }

    /// Appends the packets of a unit to `bytes`, and the end of each to `ends`, both empty before; none
    /// for invalid units. All elements have their sizes, so that any number of them fits a packet.
    pub(super) fn write(
        &self,
        unit: &[u8],
        timestamp: u32,
        bytes: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) {
        let elements = elements(unit);
        let is_sequence = |element: &Vec<u8>| obu_type(element[0]) == SEQUENCE_HEADER;
        let mut begins = if elements.iter().any(is_sequence) { BEGINS } else { 0 };
        let mut open = None;
        for element in &elements {
            let (mut rest, mut continued) = (element.as_slice(), 0);
            while !rest.is_empty() {
                let at = *open.get_or_insert_with(|| {
                    self.begin(timestamp, continued | std::mem::take(&mut begins), bytes)
                });
                let used = bytes.len() - at + SIZE_LEN_MAX;
                let room = (HEADER_LEN + self.payload_max).saturating_sub(used);
                let (now, later) = rest.split_at(rest.len().min(room));
                if !now.is_empty() {
                    push_leb128(now.len(), bytes);
                    bytes.extend_from_slice(now);
                    rest = later;
                    if !rest.is_empty() {
                        bytes[at + HEADER_LEN] |= CONTINUES;
                        continued = CONTINUED;
                    }
                }
                if !rest.is_empty() {
                    ends.push(bytes.len());
                    open = None;
                }
            }
        }
        if let Some(last) = open {
            ends.push(bytes.len());
            bytes[last + 1] |= MARKER;
        }
    }

    /// Begins a packet; returns its start.
    fn begin(&self, timestamp: u32, aggregation: u8, bytes: &mut Vec<u8>) -> usize {
        let at = bytes.len();
        bytes.extend_from_slice(&[0x80, self.payload_type, 0, 0]);
        bytes.extend_from_slice(&timestamp.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, aggregation]);
        at
    }
}

/// The parts of a temporal unit that go into packets, each open bitstream unit without its size. Ends
/// at the first invalid one.
fn elements(unit: &[u8]) -> Vec<Vec<u8>> {
    let left_out = [TEMPORAL_DELIMITER, TILE_LIST, PADDING];
    let sent = obus(unit).filter(|obu| !left_out.contains(&obu_type(obu.head)));
    let element = |obu: Obu<'_>| [&[obu.head & !HAS_SIZE], obu.extension, obu.body].concat();
    sent.map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::av1::{HAS_EXTENSION, leb128};
    use proptest::prelude::*;

    /// The elements that a receiver assembles from packets, whole.
    fn received(bytes: &[u8], ends: &[usize]) -> Vec<Vec<u8>> {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let mut elements: Vec<Vec<u8>> = Vec::new();
        let mut is_open = false;
        for (start, &end) in starts.zip(ends) {
            let aggregation = bytes[start + HEADER_LEN];
            assert_eq!(aggregation & CONTINUED != 0, is_open, "who goes on was begun");
            let mut rest = &bytes[start + HEADER_LEN + 1..end];
            while !rest.is_empty() {
                let (size, behind) = leb128(rest).unwrap();
                let (part, behind) = behind.split_at(size);
                match elements.last_mut() {
                    Some(last) if is_open => last.extend(part),
                    _ => elements.push(part.to_vec()),
                }
                (rest, is_open) = (behind, false);
            }
            is_open = aggregation & CONTINUES != 0;
            assert_eq!(
                bytes[start + 1] & MARKER != 0,
                end == bytes.len(),
                "the last has the marker"
            );
        }
        assert!(!is_open);
        elements
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            bodies in prop::collection::vec((0u8..16, any::<bool>(), 0usize..3000), 0..8),
            payload_max in 64usize..1500,
        ) {
            let mut unit = vec![TEMPORAL_DELIMITER << 3 | HAS_SIZE, 0];
            let mut expected = Vec::new();
            for (kind, extended, size) in bodies {
                let head = kind << 3 | if extended { HAS_EXTENSION } else { 0 };
                let extension: &[u8] = if extended { &[0x20] } else { &[] };
                let body = vec![kind; size];
                unit.push(head | HAS_SIZE);
                unit.extend(extension);
                push_leb128(size, &mut unit);
                unit.extend(&body);
                if ![TEMPORAL_DELIMITER, TILE_LIST, PADDING].contains(&kind) {
                    expected.push([&[head], extension, &body].concat());
                }
            }
            let (mut bytes, mut ends) = (Vec::new(), Vec::new());
            Av1Packets::new(payload_max, 96).write(&unit, 7, &mut bytes, &mut ends);
            let sizes = std::iter::once(0).chain(ends.iter().copied()).zip(&ends);
            prop_assert!(sizes.clone().all(|(start, end)| end - start <= HEADER_LEN + payload_max));
            let begins = expected.iter().any(|element| obu_type(element[0]) == SEQUENCE_HEADER);
            for (n, (start, _)) in sizes.enumerate() {
                let is_marked = bytes[start + HEADER_LEN] & BEGINS != 0;
                prop_assert_eq!(is_marked, begins && n == 0);
            }
            prop_assert_eq!(received(&bytes, &ends), expected);
        }

        #[test]
        fn any_bytes_are_survived(unit in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut bytes, mut ends) = (Vec::new(), Vec::new());
            Av1Packets::new(100, 96).write(&unit, 7, &mut bytes, &mut ends);
            received(&bytes, &ends);
        }
    }
}

//! RTP packets of whole frames in, access units out, without a library that parses media: for H.264
//! (RFC 6184) and Opus (RFC 7587), whose packets hold the units with little around them.
//!
//! Packets come from a receiver or a bond that knows which frames are whole. Pure: no I/O, no clock.

use selvedge_data_stream::rtp::Packet;
use selvedge_units::Duration;

use crate::picture::Codec;

/// Timestamps begin here, so that a picture shown before the first one has a time too.
const LEAD_TICKS: u64 = 1 << 24;
/// In front of each part of a unit of H.264 (Annex B).
const START_CODE: [u8; 4] = [0, 0, 0, 1];
/// Payloads of H.264 with several parts, and with a piece of one.
const AGGREGATE: u8 = 24;
const FRAGMENT: u8 = 28;

/// Makes access units of one stream's packets.
#[derive(Clone, Debug)]
pub struct Units {
    codec: Codec,
    times: MediaTimes,
}

impl Units {
    /// For a stream of this codec; `None` where its packets take more.
    #[must_use]
    pub fn new(codec: Codec, clock_rate: u32) -> Option<Self> {
        let times = MediaTimes::new(clock_rate);
        matches!(codec, Codec::H264 | Codec::Opus).then_some(Self { codec, times })
    }

    /// The unit of all packets of a frame, and its time of presentation; `None` if they are malformed.
    pub fn push(&mut self, packets: &[Vec<u8>]) -> Option<(Duration, Vec<u8>)> {
        let packets: Result<Vec<_>, _> = packets.iter().map(|bytes| Packet::parse(bytes)).collect();
        let packets = packets.ok()?;
        let at = self.times.of(packets.first()?.header.timestamp);
        let payloads = packets.iter().map(|packet| packet.payload);
        let unit = match self.codec {
            Codec::H264 => h264(payloads)?,
            _ => payloads.flatten().copied().collect(),
        };
        (!unit.is_empty()).then_some((at, unit))
    }
}

/// A byte stream of these payloads; `None` if one is malformed, or of a form that only interleaved
/// streams have.
fn h264<'a>(payloads: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let (mut unit, mut is_begun) = (Vec::new(), false);
    for payload in payloads {
        let (&head, mut rest) = payload.split_first()?;
        match head & 0x1f {
            1..AGGREGATE => {
                unit.extend(START_CODE);
                unit.extend_from_slice(payload);
            }
            AGGREGATE => {
                while let Some((len, after)) = rest.split_first_chunk() {
                    let len = usize::from(u16::from_be_bytes(*len));
                    let (part, after) = after.split_at_checked(len)?;
                    unit.extend(START_CODE);
                    unit.extend_from_slice(part);
                    rest = after;
                }
            }
            FRAGMENT => {
                let (&of, piece) = rest.split_first()?;
                if of & 0x80 != 0 {
                    unit.extend(START_CODE);
                    unit.push(head & 0xe0 | of & 0x1f);
                    is_begun = true;
                }
                if !is_begun {
                    return None;
                }
                unit.extend_from_slice(piece);
                is_begun = of & 0x40 == 0;
            }
            _ => return None,
        }
    }
    Some(unit)
}

/// Converts timestamps to times, across wraps.
#[derive(Clone, Debug)]
pub(crate) struct MediaTimes {
    clock_rate: u32,
    /// The last timestamp, and its extension beyond wraps.
    last: Option<(u32, u64)>,
}

impl MediaTimes {
    pub(crate) fn new(clock_rate: u32) -> Self {
        Self { clock_rate: clock_rate.max(1), last: None }
    }

    /// The time of the next picture; pictures need not be in order.
    pub(crate) fn of(&mut self, stamp: u32) -> Duration {
        let whole = match self.last {
            None => LEAD_TICKS,
            Some((last, whole)) => {
                whole.saturating_add_signed(i64::from(stamp.wrapping_sub(last).cast_signed()))
            }
        };
        self.last = Some((stamp, whole));
        let ns = u128::from(whole) * 1_000_000_000 / u128::from(self.clock_rate);
        Duration(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets(payloads: &[&[u8]], timestamp: u32) -> Vec<Vec<u8>> {
        let packet = |payload: &&[u8]| {
            let mut bytes = vec![0x80, 96, 0, 0];
            bytes.extend(timestamp.to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend_from_slice(payload);
            bytes
        };
        payloads.iter().map(packet).collect()
    }

    #[test]
    fn parts_of_all_forms_make_one_unit() {
        let mut units = Units::new(Codec::H264, 90_000).unwrap();
        let aggregate: &[u8] = &[0x78, 0, 2, 0x67, 1, 0, 3, 0x68, 2, 3];
        let pieces: [&[u8]; 3] = [&[0x7c, 0x85, 7], &[0x7c, 0x05, 8], &[0x7c, 0x45, 9]];
        let all = [aggregate, &[0x06, 5], pieces[0], pieces[1], pieces[2]];
        let (first, unit) = units.push(&packets(&all, u32::MAX)).unwrap();
        let parts: [&[u8]; 4] = [&[0x67, 1], &[0x68, 2, 3], &[0x06, 5], &[0x65, 7, 8, 9]];
        let expected: Vec<u8> =
            parts.iter().flat_map(|part| [&START_CODE, *part].concat()).collect();
        assert_eq!(unit, expected);
        let (second, _) = units.push(&packets(&[&[0x41, 1]], 89_999)).unwrap();
        assert_eq!(second, first + Duration::from_secs(1), "across the wrap");
        for broken in [&[][..], &[0x7c, 0x05, 8], &[0x7c], &[0x78, 0, 9, 1], &[0x7d, 1, 2], &[0]] {
            assert_eq!(units.push(&packets(&[broken], 0)), None, "{broken:?}");
        }
        assert_eq!(units.push(&[]), None);
        assert!(Units::new(Codec::Jpeg, 90_000).is_none());
        let mut sound = Units::new(Codec::Opus, 48_000).unwrap();
        assert_eq!(sound.push(&packets(&[&[0xfc, 1]], 0)).unwrap().1, [0xfc, 1]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut units = Units::new(Codec::H264, 0).unwrap();
            let unit = units.push(&packets(&[&bytes], 7)).map(|(_, unit)| unit.len());
            prop_assert!(unit.unwrap_or(0) <= 2 * bytes.len() + START_CODE.len());
            let _ = units.push(&[bytes]);
        }
    }
}

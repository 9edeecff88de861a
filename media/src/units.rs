//! RTP packets of whole frames in, access units out, without a library that parses media: for codecs whose packets hold
//! the units with little around them, which are those that browsers decode.
//!
//! Packets come from a receiver or a bond that knows which frames are whole. Pure: no I/O, no clock.

mod av1;
mod nal;
mod vpx;

use selvedge_data_stream::rtp::Packet;
use selvedge_units::Duration;

use crate::picture::Codec;

/// Timestamps begin here, so that a picture shown before the first one has a time too.
const LEAD_TICKS: u64 = 1 << 24;
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
        let has_units = match codec {
            Codec::H264 | Codec::H265 | Codec::Vp8 | Codec::Vp9 | Codec::Av1 | Codec::Opus => true,
            Codec::Mpv | Codec::Jpeg | Codec::Aac | Codec::L16 => false,
        };
        has_units.then(|| Self { codec, times: MediaTimes::new(clock_rate) })
    }

    /// The unit of all packets of a frame, and its time of presentation; `None` if they are malformed.
    pub fn push(&mut self, packets: &[Vec<u8>]) -> Option<(Duration, Vec<u8>)> {
        let packets: Result<Vec<_>, _> = packets.iter().map(|bytes| Packet::parse(bytes)).collect();
        let packets = packets.ok()?;
        let at = self.times.of(packets.first()?.header.timestamp);
        let payloads = packets.iter().map(|packet| packet.payload);
        let unit = match self.codec {
            Codec::H264 => nal::unit(&nal::H264, payloads)?,
            Codec::H265 => nal::unit(&nal::H265, payloads)?,
            Codec::Vp8 => vpx::unit(vpx::vp8, payloads)?,
            Codec::Vp9 => vpx::unit(vpx::vp9, payloads)?,
            Codec::Av1 => av1::unit(payloads)?,
            _ => payloads.flatten().copied().collect(),
        };
        (!unit.is_empty()).then_some((at, unit))
    }
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
    fn units_have_the_time_of_their_packets() {
        let mut units = Units::new(Codec::H264, 90_000).unwrap();
        let (first, unit) = units.push(&packets(&[&[0x65, 7]], u32::MAX)).unwrap();
        assert_eq!(unit, [0, 0, 0, 1, 0x65, 7]);
        let (second, _) = units.push(&packets(&[&[0x41, 1]], 89_999)).unwrap();
        assert_eq!(second, first + Duration::from_secs(1), "across the wrap");
        assert_eq!(units.push(&[]), None);
        assert!(Units::new(Codec::Jpeg, 90_000).is_none());
        let mut sound = Units::new(Codec::Opus, 48_000).unwrap();
        assert_eq!(sound.push(&packets(&[&[0xfc, 1]], 0)).unwrap().1, [0xfc, 1]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..4),
        ) {
            let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            let len: usize = payloads.iter().map(|payload| payload.len()).sum();
            for codec in Codec::ALL {
                let Some(mut units) = Units::new(codec, 0) else { continue };
                let unit = units.push(&packets(&payloads, 7)).map(|(_, unit)| unit.len());
                prop_assert!(unit.unwrap_or(0) <= 5 * len + 2, "{codec:?}");
                payloads.iter().for_each(|payload| _ = units.push(&[payload.to_vec()]));
            }
        }
    }
}

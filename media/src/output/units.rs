//! Assembles access units from the transport packets that [`TransportStream`](super::TransportStream)
//! made, when they leave: whole ones only, at once with their last packet.

use selvedge_data_stream::rtp::Packet;
use selvedge_units::Duration;

use super::transport_stream::{PACKET_LEN, PROGRAM, id_of, track_of};

/// An access unit of the picture, 0, or of the sound, 1.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) track: usize,
    /// Its encoding, from the program's list.
    pub(super) kind: u8,
    pub(super) decode: Duration,
    pub(super) present: Duration,
    pub(super) bytes: Vec<u8>,
}

/// Assembles units.
#[derive(Debug, Default)]
pub(super) struct Units {
    kinds: [u8; 2],
    /// Incomplete elementary packets, and the next sequence numbers of RTP.
    begun: [Vec<u8>; 2],
    sequences: [Option<u16>; 2],
    /// The newest time; packets have its lower 33 bits only.
    newest: Option<u64>,
}

impl Units {
    /// Takes a packet; returns a unit if it was its last.
    pub(super) fn take(&mut self, packet: &[u8]) -> Option<Unit> {
        let Packet { header, payload, .. } = Packet::parse(packet).ok()?;
        let track = track_of(payload);
        let next = self.sequences[track].replace(header.sequence.wrapping_add(1));
        let is_cut = !payload.len().is_multiple_of(PACKET_LEN);
        if is_cut || next != Some(header.sequence) {
            self.begun[track].clear();
        }
        for packet in payload.chunks_exact(PACKET_LEN) {
            match id_of(packet) {
                0 => {}
                PROGRAM => self.list(packet),
                _ => {
                    let field = if packet[3] & 0x20 == 0 { 0 } else { 1 + usize::from(packet[4]) };
                    if packet[1] & 0x40 != 0 {
                        self.begun[track].clear();
                    }
                    self.begun[track].extend(packet.get(4 + field..).unwrap_or_default());
                }
            }
        }
        (header.marker && !is_cut).then(|| self.whole(track)).flatten()
    }

    /// Reads the encodings from the program's list.
    fn list(&mut self, packet: &[u8]) {
        let end = 5 + 3 + usize::from(packet[7]) - 4;
        for entry in packet.get(17..end).unwrap_or_default().chunks_exact(5) {
            self.kinds[usize::from(entry[2] & 1)] = entry[0];
        }
    }

    fn whole(&mut self, track: usize) -> Option<Unit> {
        let packet = std::mem::take(&mut self.begun[track]);
        let head = packet.get(..9)?;
        let (has_decode, len) = (head[7] & 0x40 != 0, 9 + usize::from(head[8]));
        let present = self.time(packet.get(9..14)?);
        let decode = if has_decode { self.time(packet.get(14..19)?) } else { present };
        let bytes = packet.get(len..)?.to_vec();
        let kind = self.kinds[track];
        (head[..3] == [0, 0, 1] && kind != 0).then_some(Unit {
            track,
            kind,
            decode,
            present,
            bytes,
        })
    }

    fn time(&mut self, stamp: &[u8]) -> Duration {
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|n| u64::from(stamp[n]));
        let low = (a & 0x0e) << 29 | b << 22 | (c & 0xfe) << 14 | d << 7 | e >> 1;
        // The nearest time to the newest that has these bits.
        let newest = self.newest.unwrap_or(low);
        let ahead = low.wrapping_sub(newest) << 31;
        let at = newest.saturating_add_signed(ahead.cast_signed() >> 31);
        self.newest = Some(newest.max(at));
        Duration((u128::from(at) * 100_000 / 9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Program, TransportStream};
    use super::*;
    use crate::frame::{MediaFrame, StreamInfo};
    use crate::picture::{Codec, Picture};
    use selvedge_data_stream::Kind;

    fn info(codec: Codec) -> StreamInfo {
        StreamInfo {
            codec,
            payload_type: 96,
            clock_rate: 90_000,
            fmtp: Some("config=1190".into()),
            channels: None,
            period: Duration::from_millis(40),
            width: None,
            height: None,
        }
    }

    /// A frame's packets with sequence numbers, starting from one.
    fn packets(of: &mut TransportStream, number: u16, at: Duration, unit: &[u8]) -> Vec<Vec<u8>> {
        let picture = Picture { kind: Kind::Intra, referenced: true, closes: true, refs: None };
        let frame = MediaFrame {
            picture,
            media_time: at + Duration::from_millis(80),
            decode_time: at,
            rtp_timestamp: 0,
            unit,
            packets: &[],
        };
        let packets = of.packets(&frame, Duration::ZERO);
        let numbered = packets.into_iter().zip(number..).map(|(packet, number)| {
            let mut packet = packet.to_vec();
            packet[2..4].copy_from_slice(&number.to_be_bytes());
            packet
        });
        numbered.collect()
    }

    #[test]
    fn units_of_both_come_out_whole_and_in_time() {
        let program = Arc::new(Program::new(Duration::from_secs(1)));
        let mut streams = [Codec::H264, Codec::Aac]
            .map(|codec| TransportStream::new(&info(codec), Arc::clone(&program), 1400));
        let mut units = Units::default();
        // Beyond the 33 bits of the clock.
        let hours = [0, 10, 20, 27].map(|hour| Duration::from_secs(60 + 3600 * hour));
        for (n, at) in hours.into_iter().enumerate() {
            for (track, len) in [(0, 5000), (1, 300)] {
                let unit: Vec<u8> = (0..len).map(|byte| (byte * 7 + n) as u8).collect();
                let all = packets(&mut streams[track], 10 * n as u16, at, &unit);
                let (last, others) = all.split_last().unwrap();
                assert!(others.iter().all(|packet| units.take(packet).is_none()));
                let found = units.take(last).expect("it is whole");
                assert!(found.bytes.ends_with(&unit) && found.track == track);
                assert_eq!(found.kind, [0x1b, 0x0f][track]);
                let lead = Duration::from_secs(1);
                let off = found.decode.0.abs_diff((at + lead).0);
                assert!(off < 20_000, "{} is not {at} and the lead", found.decode);
                assert!(found.present > found.decode);
            }
            // An output that is opened now reads the same time.
            let (unit, mut late) = (vec![0, 0, 0, 1, 9], Units::default());
            let all = packets(&mut streams[0], 5000 + n as u16, at, &unit);
            let low = Duration((1 << 33) * 100_000 / 9);
            let found = late.take(&all[0]).expect("it is whole").decode;
            let expected = (at + Duration::from_secs(1)).0 % low.0;
            assert!(found.0.abs_diff(expected) < 20_000, "{found} at {at}");
        }
    }

    #[test]
    fn what_lacks_a_packet_is_given_up() {
        let program = Arc::new(Program::new(Duration::ZERO));
        let mut stream = TransportStream::new(&info(Codec::H264), program, 1400);
        let all = packets(&mut stream, 0, Duration::from_secs(60), &[9; 5000]);
        for lost in 0..all.len() {
            let mut units = Units::default();
            let left = all.iter().enumerate().filter(|(n, _)| *n != lost);
            assert_eq!(left.filter_map(|(_, packet)| units.take(packet)).count(), 0, "{lost}");
        }
        let mut units = Units::default();
        assert!((0..all.len()).all(|n| units.take(&all[n][..all[n].len() / 2]).is_none()));
    }
}

//! RTP packets: any bytes are a packet or none; written packets are read back.

use selvedge_data_stream::rtp::{
    FrameTag, Packet, extension_element, packet_len, stamp_deadline, write_packet,
};
use selvedge_media::dependency::{DependencyTracker, DescriptorReader};
use selvedge_units::Instant;

const DEADLINE: Instant = Instant(3_900_000);
const NOW: Instant = Instant(5_100_000);

pub fn fuzz(bytes: &[u8]) {
    let mut stamped = bytes.to_vec();
    stamp_deadline(&mut stamped, DEADLINE, NOW);
    assert_eq!(stamped.len(), bytes.len());
    descriptors(bytes);
    let packet = match Packet::parse(bytes) {
        Ok(packet) => packet,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(packet.payload.len() + 12 <= bytes.len());
    assert!(packet.header.payload_type < 128);
    let Some(tag) = packet.tag else { return };
    let mut written = vec![0xff; packet_len(packet.payload.len())];
    write_packet(&mut written, packet.header, tag, packet.payload);
    assert_eq!(Packet::parse(&written), Ok(packet));
    stamp_deadline(&mut written, DEADLINE, NOW);
    let tag = Some(FrameTag { left_ms: -2, deadline_ms: 3, ..tag });
    assert_eq!(Packet::parse(&written), Ok(Packet { tag, ..packet }));
}

/// The bytes as packets of 32 bytes and as descriptors: frames that are referred to have arrived.
fn descriptors(bytes: &[u8]) {
    let (mut reader, mut tracker) = (DescriptorReader::default(), DependencyTracker::default());
    for (number, packet) in (0..).zip([bytes].into_iter().chain(bytes.chunks(32))) {
        let element = extension_element(packet, 3).unwrap_or(packet);
        assert!(element.len() <= packet.len());
        let refs = tracker.push(reader.read(element).as_slice()).unwrap_or_default();
        assert!(!refs.is_known() || refs.distances().all(|back| u32::from(back) <= number));
    }
}

//! RTP packets: any bytes are a packet or none; what is written is read back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_stream::rtp::{FrameTag, Packet, packet_len, stamp_time_left, write_packet};

fuzz_target!(|bytes: &[u8]| {
    let mut stamped = bytes.to_vec();
    stamp_time_left(&mut stamped, -2);
    assert_eq!(stamped.len(), bytes.len());
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
    stamp_time_left(&mut written, -2);
    let tag = Some(FrameTag { left_ms: -2, ..tag });
    assert_eq!(Packet::parse(&written), Ok(Packet { tag, ..packet }));
});

//! The packets in a payload: any bytes are iterated to their end, and the packets found can be written
//! again.

use selvedge_data_stream::{PACKET_HEADER_LEN, PacketCursor, PacketWriter, Packets};

pub fn fuzz(payload: &[u8]) {
    let mut packets = Packets::new(payload);
    let (_, most) = packets.size_hint();
    let walked: Vec<&[u8]> = packets.by_ref().collect();
    let taken: usize = walked.iter().map(|packet| packet.len() + PACKET_HEADER_LEN).sum();
    assert!(most.is_some_and(|most| walked.len() <= most));
    assert_eq!(taken + packets.remainder().len(), payload.len());
    assert_eq!(packets.next(), None, "the end is the end");

    let mut changed = payload.to_vec();
    let (mut cursor, mut in_place) = (PacketCursor::default(), PacketCursor::default());
    for packet in &walked {
        assert_eq!(cursor.next(payload), Some(*packet));
        let bytes = in_place.next_mut(&mut changed).expect("both walk alike");
        bytes.fill(0xee);
        assert_eq!((bytes.len(), in_place), (packet.len(), cursor));
    }
    assert_eq!(cursor.offset(), taken);
    // A cursor may outlive its payload.
    let shorter = &payload[..payload.len() / 2];
    while cursor.next(shorter).is_some() {}

    let mut copy = vec![0; taken];
    let mut writer = PacketWriter::new(&mut copy);
    for packet in &walked {
        if writer.push(packet).is_err() {
            assert_eq!(writer.packets(), u16::MAX, "there is room for all that was walked");
            return;
        }
    }
    assert_eq!((writer.written(), usize::from(writer.packets())), (taken, walked.len()));
    assert!(writer.push(&[]).is_err());
    assert_eq!(copy, payload[..taken]);
}

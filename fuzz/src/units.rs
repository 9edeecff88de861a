//! Packets of a stream from a far end: any bytes as the packets of a frame make one unit, not much longer than they are, or
//! none, whatever came before. The first byte chooses the codec; each packet stands behind its length.

use selvedge_data_stream::rtp::HEADER_LEN;
use selvedge_media::{Codec, Units};

/// What a unit has beyond its packets: a start code for each NAL unit that an aggregate holds in two bytes, or a size for each
/// OBU, and the delimiter of a temporal unit.
const LONGER: usize = 5;
const DELIMITER: usize = 2;

pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((&choice, mut rest)) = bytes.split_first() else { return };
    let codec = Codec::ALL[usize::from(choice) % Codec::ALL.len()];
    let Some(mut units) = Units::new(codec, 90_000) else { return };
    let mut packets: Vec<Vec<u8>> = Vec::new();
    while let Some((&len, behind)) = rest.split_first() {
        let (payload, behind) = behind.split_at(behind.len().min(len.into()));
        let mut packet = vec![0; HEADER_LEN];
        packet[0] = 0x80;
        packet[7] = choice;
        packet.extend_from_slice(payload);
        packets.push(packet);
        rest = behind;
    }
    let len: usize = packets.iter().map(|packet| packet.len() - HEADER_LEN).sum();
    let whole = units.clone().push(&packets);
    assert!(whole.as_ref().is_none_or(|(_, unit)| unit.len() <= LONGER * len + DELIMITER));
    // A part of it leaves nothing behind.
    let half = &packets[..packets.len() / 2];
    units.push(half);
    assert_eq!(units.push(&packets).map(|(_, unit)| unit), whole.map(|(_, unit)| unit));
    // The bytes as they are, without a header.
    units.push(&[bytes.to_vec()]);
}

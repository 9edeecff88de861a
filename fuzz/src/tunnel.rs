//! The packets of a tunnel, from its device or from the bond: any bytes are one whole IP packet of some flow, or none. What
//! routers change on the way, and what a flow's packets carry, does not change the flow.

use selvedge_comm_line::{flow, is_housekeeping};

pub(crate) fn fuzz(bytes: &[u8]) {
    check(bytes);
    // With the length that it has, it comes further.
    let mut packet = bytes.to_vec();
    let len = bytes.len() as u16;
    match bytes.first().map(|first| first >> 4) {
        Some(4) if bytes.len() >= 20 => packet[2..4].copy_from_slice(&len.to_be_bytes()),
        Some(6) if bytes.len() >= 40 => packet[4..6].copy_from_slice(&(len - 40).to_be_bytes()),
        _ => return,
    }
    check(&packet);
}

fn check(packet: &[u8]) {
    let is_other = is_housekeeping(packet);
    let Some(found) = flow(packet) else { return };
    let is_v6 = packet[0] >> 4 == 6;
    assert!(packet.len() >= if is_v6 { 40 } else { 20 });
    assert_eq!(flow(&packet[..packet.len() - 1]), None, "a part is no packet");
    assert_eq!(flow(&[packet, &[0]].concat()), None, "nothing follows");
    let mut passed = packet.to_vec();
    passed[if is_v6 { 7 } else { 8 }] ^= 1;
    let header = if is_v6 { 40 } else { usize::from(packet[0] & 15) * 4 };
    passed.iter_mut().skip(header + 4).for_each(|byte| *byte ^= 0xff);
    assert_eq!(flow(&passed), Some(found));
    assert!(is_v6 || is_housekeeping(&passed) == is_other);
}

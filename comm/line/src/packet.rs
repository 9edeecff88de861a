//! What the line reads and changes of an IP packet: its flow, its mark of congestion, a wrong bit.

use selvedge_data_net_line::Ecn;

const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
const IGMP: u8 = 2;
const HOP_BY_HOP: u8 = 0;
const ICMP_V6: u8 = 58;
const V6_HEADER: usize = 40;

/// An IP packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The same for all packets of a flow: protocol, addresses and ports.
    pub(crate) flow: u64,
    /// The port that it goes to; 0 of a protocol without, and of a fragment.
    pub(crate) port: u16,
    pub(crate) ecn: Ecn,
}

/// FNV-1a.
fn hash(parts: &[&[u8]]) -> u64 {
    parts.iter().copied().flatten().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The ports of a transport that has them in its first four bytes.
fn ports(protocol: u8, transport: &[u8]) -> &[u8] {
    let has_ports = [TCP, UDP, DCCP, SCTP, UDP_LITE].contains(&protocol);
    transport.get(..4).filter(|_| has_ports).unwrap_or_default()
}

/// Reads a header; `None` if it is not IP, or cut.
pub(crate) fn read(packet: &[u8]) -> Option<Header> {
    let (flow, ports, class) = match packet.first()? >> 4 {
        4 => {
            let len = header_len(packet)?;
            // Only the first fragment has ports, so none counts them.
            let is_whole = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff == 0;
            let transport = if is_whole { &packet[len..] } else { &[] };
            let (protocol, ports) = (packet[9], ports(packet[9], transport));
            (hash(&[&[protocol], &packet[12..20], ports]), ports, packet[1])
        }
        6 => {
            let header = packet.get(..V6_HEADER)?;
            let ports = ports(header[6], &packet[V6_HEADER..]);
            (hash(&[&header[6..7], &header[8..], ports]), ports, header[1] >> 4)
        }
        _ => return None,
    };
    let ecn = match class & 3 {
        0 => Ecn::NotCapable,
        1 => Ecn::LowLatency,
        2 => Ecn::Capable,
        _ => Ecn::Marked,
    };
    let port = ports.last_chunk().map_or(0, |port| u16::from_be_bytes(*port));
    Some(Header { flow, port, ecn })
}

/// The number that all packets of a packet's flow have; `None` if the bytes are no whole IP packet.
#[must_use]
pub fn flow(packet: &[u8]) -> Option<u64> {
    let half =
        |at: usize| Some(usize::from(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])));
    let flow = read(packet)?.flow;
    let len = if packet[0] >> 4 == 4 { half(2)? } else { half(4)? + V6_HEADER };
    (len == packet.len()).then_some(flow)
}

/// The length of an IPv4 header that is there as a whole.
fn header_len(packet: &[u8]) -> Option<usize> {
    let len = usize::from(packet.first()? & 15) * 4;
    (len >= 20 && packet.len() >= len).then_some(len)
}

/// Whether the kernel sent it to find neighbours, routers and members of groups. A line has one host at each
/// end, so that such packets would only be counted among the programs' own.
#[must_use]
pub fn is_housekeeping(packet: &[u8]) -> bool {
    let byte = |at: usize| packet.get(at).copied().unwrap_or_default();
    match byte(0) >> 4 {
        4 => byte(9) == IGMP,
        6 => {
            let (next, at) = match byte(6) {
                // A header that says that routers look at it; its length counts in 8 bytes beyond the first.
                HOP_BY_HOP => {
                    (byte(V6_HEADER), V6_HEADER + 8 + usize::from(byte(V6_HEADER + 1)) * 8)
                }
                next => (next, V6_HEADER),
            };
            // Listener queries and reports, solicitations and advertisements.
            next == ICMP_V6 && matches!(byte(at), 130..=137 | 143)
        }
        _ => false,
    }
}

/// Sets the mark of congestion, CE; the checksum of an IPv4 header stays right.
pub(crate) fn mark(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(len) = header_len(packet) else { return };
            packet[1] |= 3;
            packet[10..12].fill(0);
            let words = packet[..len].chunks_exact(2);
            let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Some(6) if packet.len() >= V6_HEADER => packet[1] |= 0x30,
        _ => {}
    }
}

/// Turns one of its bits over, by a random number.
pub(crate) fn flip(packet: &mut [u8], random: u64) {
    if packet.is_empty() {
        return;
    }
    let bit = random % (packet.len() as u64 * 8);
    packet[(bit / 8) as usize] ^= 1 << (bit % 8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An IPv4 header as RFC 1071's examples have it, with a UDP header behind it.
    fn v4(class: u8, port: u8) -> Vec<u8> {
        let mut packet = vec![0x45, class, 0, 28, 0, 1, 0x40, 0, 64, UDP, 0, 0];
        packet.extend([10, 77, 1, 1, 10, 77, 1, 2, 0x30, 0x39, 0, port, 0, 8, 0, 0]);
        mark(&mut packet);
        packet[1] = class;
        packet
    }

    fn v6(class: u8, next: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60 | class >> 4, class << 4, 0, 0, 0, rest.len() as u8, next, 64];
        packet.extend([0xfd; 32]);
        packet.extend(rest);
        packet
    }

    fn sum(header: &[u8]) -> u32 {
        let words = header.chunks_exact(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
        let sum: u32 = words.sum();
        (sum & 0xffff) + (sum >> 16)
    }

    #[test]
    fn flows_are_told_apart_by_ports_and_not_by_marks() {
        let flow = |packet: &[u8]| read(packet).expect("it is IP").flow;
        assert_eq!(flow(&v4(0, 1)), flow(&v4(2, 1)));
        assert_ne!(flow(&v4(0, 1)), flow(&v4(0, 2)));
        let port = |packet: &[u8]| read(packet).expect("it is IP").port;
        assert_eq!((port(&v4(0, 1)), port(&v6(0, UDP, &[0, 9, 1, 2, 0, 8, 0, 0]))), (1, 258));
        let udp = |port| v6(0, UDP, &[0, 9, 0, port, 0, 8, 0, 0]);
        assert_eq!(flow(&udp(1)), flow(&udp(1)));
        assert_ne!(flow(&udp(1)), flow(&udp(2)));
        assert_ne!(flow(&udp(1)), flow(&v6(0, TCP, &[0, 9, 0, 1, 0, 8, 0, 0])));
        // The second fragment has the flow of the first.
        let (mut first, mut second) = (v4(0, 1), v4(0, 2));
        (first[6], second[7]) = (0x20, 9);
        second[6] = 0;
        assert_eq!(flow(&first), flow(&second));
        assert_eq!((port(&first), port(&v6(0, ICMP_V6, &[128, 0, 0, 7]))), (0, 0));
    }

    #[test]
    fn marks_are_read_and_set_and_the_checksum_holds() {
        let all = [Ecn::NotCapable, Ecn::LowLatency, Ecn::Capable, Ecn::Marked];
        for (class, ecn) in (0..).zip(all) {
            assert_eq!(read(&v4(class, 1)).expect("IP").ecn, ecn);
            assert_eq!(read(&v6(class, UDP, &[0; 8])).expect("IP").ecn, ecn);
        }
        for mut packet in [v4(2, 1), v6(2, UDP, &[0; 8])] {
            mark(&mut packet);
            assert_eq!(read(&packet).expect("IP").ecn, Ecn::Marked);
            if packet[0] >> 4 == 4 {
                assert_eq!(sum(&packet[..20]), 0xffff);
            }
        }
    }

    #[test]
    fn a_wrong_bit_is_one_and_another_number_is_another_bit() {
        let right = v4(0, 1);
        let wrong = |random| {
            let mut packet = right.clone();
            flip(&mut packet, random);
            let bits = packet.iter().zip(&right).map(|(a, b)| (a ^ b).count_ones());
            assert_eq!(bits.sum::<u32>(), 1);
            packet
        };
        assert_ne!(wrong(1), wrong(2));
        assert_eq!(wrong(3), wrong(3 + right.len() as u64 * 8));
        flip(&mut [], 7);
    }

    #[test]
    fn what_is_no_whole_packet_has_no_flow() {
        let both = [v4(0, 1), v6(0, UDP, &[0, 1, 0, 2, 0, 8, 0, 0])];
        for packet in both {
            assert!(flow(&packet).is_some());
            for len in 0..packet.len() {
                assert_eq!(flow(&packet[..len]), None, "cut to {len} bytes");
            }
            assert_eq!(flow(&[&packet[..], &[0]].concat()), None, "a byte too many");
            let mut other = packet;
            other[0] = 0x55;
            assert_eq!(flow(&other), None, "IP of no known version");
        }
    }

    #[test]
    fn housekeeping_is_not_carried_and_all_else_is() {
        let hop = [ICMP_V6, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0];
        assert!(is_housekeeping(&v6(0, HOP_BY_HOP, &hop)), "a listener's report");
        assert!(is_housekeeping(&v6(0, ICMP_V6, &[133, 0, 0, 0])), "a router's solicitation");
        assert!(!is_housekeeping(&v6(0, ICMP_V6, &[128, 0, 0, 0])), "an echo request");
        assert!(!is_housekeeping(&v6(0, UDP, &[133, 0, 0, 0])));
        let mut group = v4(0, 1);
        assert!(!is_housekeeping(&group));
        group[9] = IGMP;
        assert!(is_housekeeping(&group));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_their_bounds(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            version in prop_oneof![Just(0x45_u8), Just(0x4f), Just(0x60), any::<u8>()],
            random: u64,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            read(&bytes);
            prop_assert!(flow(&bytes).is_none_or(|_| bytes.len() >= 20));
            let _ = is_housekeeping(&bytes);
            mark(&mut bytes);
            flip(&mut bytes, random);
        }
    }
}

//! Headers of Ethernet, IP (RFC 791, RFC 8200) and UDP (RFC 768), as the kernel writes them.

use std::net::{IpAddr, SocketAddr};

use super::path::Path;
use crate::transmit::Outgoing;

/// The most bytes before the payload: 14 of Ethernet, 40 of IPv6, 8 of UDP.
pub(super) const HEADERS_MAX: usize = 62;
const HOPS: u8 = 64;
const UDP: u8 = 17;

/// Writes the headers of a packet at the beginning of a chunk, which has room for them and for the packet;
/// returns the length of the headers.
pub(super) fn write_headers(
    chunk: &mut [u8],
    path: &Path,
    port: u16,
    packet: &Outgoing<'_>,
    identification: u16,
) -> usize {
    let udp_len = (packet.len() + 8) as u16;
    chunk[..6].copy_from_slice(&path.next_hop);
    chunk[6..12].copy_from_slice(&path.own);
    let (addresses, at) = match (path.source, packet.to) {
        (IpAddr::V4(from), SocketAddr::V4(to)) => {
            chunk[12..14].copy_from_slice(&[0x08, 0x00]);
            let ip = &mut chunk[14..34];
            ip.fill(0);
            ip[0] = 0x45; // version 4, five words
            ip[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ip[6] = 0x40; // do not fragment
            ip[8] = HOPS;
            ip[9] = UDP;
            ip[12..16].copy_from_slice(&from.octets());
            ip[16..20].copy_from_slice(&to.ip().octets());
            let checksum = !fold(sum(0, ip));
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            (sum(0, &chunk[26..34]), 34)
        }
        (from, to) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            chunk[12..14].copy_from_slice(&[0x86, 0xdd]);
            let ip = &mut chunk[14..54];
            ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
            ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
            ip[6] = UDP;
            ip[7] = HOPS;
            ip[8..24].copy_from_slice(&octets(from));
            ip[24..40].copy_from_slice(&octets(to.ip()));
            (sum(0, &chunk[22..54]), 54)
        }
    };
    let udp = &mut chunk[at..at + 8];
    udp[..2].copy_from_slice(&port.to_be_bytes());
    udp[2..4].copy_from_slice(&packet.to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[6..8].fill(0);
    // The pseudo-header: addresses, protocol, length; then header and payload.
    let partial = addresses + u64::from(UDP) + u64::from(udp_len);
    let checksum = !fold(sum(sum(sum(partial, udp), packet.head), packet.bytes));
    // Zero would mean that there is none.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    at + 8
}

/// Adds 16-bit words in network order; an odd byte is the upper half of a last one.
fn sum(mut sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    // Two words at once: their carries meet in the upper half and are folded later.
    for word in words {
        sum += u64::from(u32::from_be_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

/// The sum in 16 bits, with its carries added.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(source: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let path = Path {
            device: 1,
            own: [2, 0, 0, 0, 0, 1],
            next_hop: [2, 0, 0, 0, 0, 2],
            source: source.parse().unwrap(),
            mtu: 1500,
        };
        let mut chunk = vec![0xaa; HEADERS_MAX + payload.len()];
        let (head, bytes) = payload.split_at(payload.len() / 8 * 4);
        let packet = Outgoing { to: to.parse().unwrap(), head, bytes };
        let at = write_headers(&mut chunk, &path, 40_000, &packet, 7);
        chunk[at..at + payload.len()].copy_from_slice(payload);
        chunk.truncate(at + payload.len());
        chunk
    }

    /// The receiver's check: with its checksum, everything adds up to all ones.
    #[test]
    fn checksums_add_up() {
        for payload in [&b""[..], b"x", b"four", b"fives", &[0xff; 1472]] {
            let v4 = written("192.0.2.1", "192.0.2.9:5004", payload);
            assert_eq!(fold(sum(0, &v4[14..34])), 0xffff);
            let pseudo = sum(0, &v4[26..34]) + 17 + v4[34..].len() as u64;
            assert_eq!(fold(sum(pseudo, &v4[34..])), 0xffff, "{payload:?}");
            assert_eq!(usize::from(u16::from_be_bytes([v4[16], v4[17]])), v4.len() - 14);
            let v6 = written("2001:db8::1", "[2001:db8::9]:5004", payload);
            let pseudo = sum(0, &v6[22..54]) + 17 + v6[54..].len() as u64;
            assert_eq!(fold(sum(pseudo, &v6[54..])), 0xffff, "{payload:?}");
            assert_eq!(usize::from(u16::from_be_bytes([v6[18], v6[19]])), v6.len() - 54);
        }
    }

    /// The example of RFC 1071, section 3.
    #[test]
    fn sums_are_those_of_the_rfc() {
        assert_eq!(fold(sum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    }
}

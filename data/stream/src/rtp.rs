//! The RTP fixed header (RFC 3550 section 5.1), and the header extension (RFC 8285, one-byte form)
//! in which each packet identifies its frame.
//!
//! A receiver thereby knows, without parsing any codec, which frames were lost or left out, which
//! frames needed them, when each packet was sent and when its frame is due, both by the sender's
//! clock. Receivers that do not know the extension skip it, as RFC 8285 requires.

use core::net::SocketAddr;

use selvedge_units::{Bytes, Instant};

use crate::{Frame, Kind, References};

/// The identifier of the frame's element in SDP: `a=extmap:1 urn:x-selvedge:frame`.
pub const EXTENSION_URI: &str = "urn:x-selvedge:frame";
/// The local identifier under which it is sent.
pub const EXTENSION_ID: u8 = 1;
/// The identifier of the deadline's element in SDP: `a=extmap:2 urn:x-selvedge:deadline`.
pub const DEADLINE_URI: &str = "urn:x-selvedge:deadline";
/// The local identifier under which it is sent. An element of its own, so that a receiver that
/// knows only the frame's skips it.
pub const DEADLINE_ID: u8 = 2;
/// The IPv4 and UDP headers that each packet takes on the wire.
pub const IPV4_UDP: Bytes = Bytes(20 + 8);
/// The IPv6 and UDP headers that each packet takes on the wire.
pub const IPV6_UDP: Bytes = Bytes(40 + 8);
/// Bytes of a fixed header without contributing sources.
pub const HEADER_LEN: usize = 12;
/// Bytes of the frame's element. One of another length is of another version, and skipped.
const TAG_LEN: usize = 15;
/// Bytes that the extension adds to a packet: its own header, elements of 15 and of 2 bytes, and one
/// that fills the last word.
pub const EXTENSION_LEN: usize = 4 + 1 + TAG_LEN + 1 + 2 + 1;
/// Where in a packet written by [`write_packet`] the time left to the deadline stands.
const LEFT_AT: usize = HEADER_LEN + 4 + 1 + 13;
/// Where in it the deadline stands.
const DEADLINE_AT: usize = LEFT_AT + 2 + 1;
const NANOS_PER_MS: u64 = 1_000_000;

/// The IP and UDP headers that each packet to this address takes on the wire.
#[must_use]
pub const fn ip_udp(to: SocketAddr) -> Bytes {
    if to.is_ipv6() { IPV6_UDP } else { IPV4_UDP }
}

/// The facts that each packet states about its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTag {
    /// The frame's number in its stream.
    pub seq: u32,
    /// Its kind.
    pub kind: Kind,
    /// Whether later frames may refer to it.
    pub referenced: bool,
    /// Whether this is the frame's first packet.
    pub first: bool,
    /// Whether this is the frame's last packet.
    pub last: bool,
    /// The frames that the frame refers to.
    pub refs: References,
    /// Milliseconds from the sending of this packet to the frame's deadline; negative: late.
    /// Saturates at the ends of its range.
    pub left_ms: i16,
    /// The frame's deadline in whole milliseconds of the sender's clock, modulo 2^16.
    pub deadline_ms: u16,
}

impl FrameTag {
    /// The tag of a frame's packet, numbered from 0, before [`stamp_deadline`].
    #[must_use]
    pub const fn of(frame: &Frame, packet: u16) -> Self {
        let Frame { seq, kind, referenced, refs, packets, .. } = *frame;
        let (first, last) = (packet == 0, packets.saturating_sub(packet) == 1);
        Self { seq, kind, referenced, first, last, refs, left_ms: 0, deadline_ms: 0 }
    }

    /// When this packet was sent, in whole milliseconds of the sender's clock, modulo 2^16; `None`
    /// if the deadline was too far off to compute it (32.767 s or more).
    #[must_use]
    pub const fn sent_ms(&self) -> Option<u16> {
        match self.left_ms {
            i16::MIN | i16::MAX => None,
            left => Some(self.deadline_ms.wrapping_sub(left.cast_unsigned())),
        }
    }
}

/// The parts of a fixed header that the sender sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The marker bit.
    pub marker: bool,
    /// Payload type, 0 ..= 127.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Media time in the payload's clock.
    pub timestamp: u32,
    /// Source identifier.
    pub ssrc: u32,
}

/// A parsed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its fixed header.
    pub header: Header,
    /// Our extension, if it carries a valid one.
    pub tag: Option<FrameTag>,
    /// Its payload, padding removed.
    pub payload: &'a [u8],
}

/// Why bytes are not an RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Of fewer bytes than its own headers state, or than any header has.
    #[error("{0} bytes are too few for an RTP packet")]
    Truncated(usize),
    /// Not version 2.
    #[error("RTP version {0} is not 2")]
    Version(u8),
    /// Its padding is longer than the packet.
    #[error("padding of {0} bytes is longer than the packet")]
    Padding(u8),
}

impl<'a> Packet<'a> {
    /// Parses a packet. Unknown extensions are skipped.
    ///
    /// # Errors
    /// [`PacketError`] for bytes that are not an RTP packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let truncated = PacketError::Truncated(bytes.len());
        let (fixed, mut rest) = bytes.split_at_checked(HEADER_LEN).ok_or(truncated)?;
        let version = fixed[0] >> 6;
        if version != 2 {
            return Err(PacketError::Version(version));
        }
        let header = Header {
            marker: fixed[1] & 0x80 != 0,
            payload_type: fixed[1] & 0x7f,
            sequence: u16::from_be_bytes([fixed[2], fixed[3]]),
            timestamp: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            ssrc: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        };
        let sources = usize::from(fixed[0] & 0x0f) * 4;
        rest = rest.get(sources..).ok_or(truncated)?;
        let mut tag = None;
        if fixed[0] & 0x10 != 0 {
            let (head, after) = rest.split_at_checked(4).ok_or(truncated)?;
            let words = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let (body, after) = after.split_at_checked(words * 4).ok_or(truncated)?;
            if head[..2] == [0xbe, 0xde] {
                tag = find_tag(body);
            }
            rest = after;
        }
        if fixed[0] & 0x20 != 0 {
            let padding = *rest.last().ok_or(truncated)?;
            let keep = rest.len().checked_sub(usize::from(padding));
            let keep = keep.filter(|_| padding > 0).ok_or(PacketError::Padding(padding))?;
            rest = &rest[..keep];
        }
        Ok(Self { header, tag, payload: rest })
    }
}

/// The element with this local identifier in a packet's extension, of the one-byte or the two-byte
/// form (RFC 8285 section 4); `None` if there is none, or no valid extension.
#[must_use]
pub fn extension_element(packet: &[u8], id: u8) -> Option<&[u8]> {
    let (fixed, rest) = packet.split_at_checked(HEADER_LEN)?;
    if fixed[0] >> 6 != 2 || fixed[0] & 0x10 == 0 {
        return None;
    }
    let (head, rest) = rest.get(usize::from(fixed[0] & 0x0f) * 4..)?.split_at_checked(4)?;
    let words = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let mut body = rest.get(..words * 4)?;
    let is_long = match u16::from_be_bytes([head[0], head[1]]) {
        0xbede => false,
        form if form & 0xfff0 == 0x1000 => true,
        _ => return None,
    };
    while let Some((&first, rest)) = body.split_first() {
        let (found, len, rest) = match (is_long, first) {
            // Padding.
            (_, 0) => (0, 0, rest),
            (true, found) => {
                let (&len, rest) = rest.split_first()?;
                (found, len, rest)
            }
            (false, 0xf0..) => return None,
            (false, first) => (first >> 4, (first & 0x0f) + 1, rest),
        };
        let (element, after) = rest.split_at_checked(usize::from(len))?;
        if found == id && id != 0 {
            return Some(element);
        }
        body = after;
    }
    None
}

/// Our elements among those of a one-byte-form extension body: both, or none.
fn find_tag(mut body: &[u8]) -> Option<FrameTag> {
    let (mut tag, mut deadline) = (None, None);
    while let Some((&head, rest)) = body.split_first() {
        let id = head >> 4;
        let len = match id {
            0 => 0,
            15 => break,
            _ => usize::from(head & 0x0f) + 1,
        };
        let (element, after) = rest.split_at_checked(len)?;
        match id {
            EXTENSION_ID => tag = read_tag(element),
            DEADLINE_ID => deadline = element.try_into().ok().map(u16::from_be_bytes),
            _ => {}
        }
        body = after;
    }
    Some(FrameTag { deadline_ms: deadline?, ..tag? })
}

/// The frame's element; the deadline stands in another.
fn read_tag(element: &[u8]) -> Option<FrameTag> {
    let e: &[u8; TAG_LEN] = element.try_into().ok()?;
    Some(FrameTag {
        seq: u32::from_be_bytes([e[0], e[1], e[2], e[3]]),
        kind: Kind::from_number(e[4] & 0x0f)?,
        referenced: e[4] & 0x80 != 0,
        first: e[4] & 0x40 != 0,
        last: e[4] & 0x20 != 0,
        refs: References::from_bits(u64::from_be_bytes([
            e[5], e[6], e[7], e[8], e[9], e[10], e[11], e[12],
        ])),
        left_ms: i16::from_be_bytes([e[13], e[14]]),
        deadline_ms: 0,
    })
}

/// Bytes that [`write_packet`] needs for a payload of this length.
#[must_use]
pub const fn packet_len(payload: usize) -> usize {
    HEADER_LEN + EXTENSION_LEN + payload
}

/// Writes a packet with our extension into `out`, which must hold [`packet_len`] bytes.
///
/// # Panics
/// If `out` is of any other length: the caller has reserved it by [`packet_len`].
pub fn write_packet(out: &mut [u8], header: Header, tag: FrameTag, payload: &[u8]) {
    assert_eq!(out.len(), packet_len(payload.len()), "the caller reserves exactly one packet");
    write_headers(out, header, tag).copy_from_slice(payload);
}

/// Writes the same without the payload, and returns the place of that.
///
/// # Panics
/// If `out` is shorter than [`packet_len`] of nothing.
pub fn write_headers(out: &mut [u8], header: Header, tag: FrameTag) -> &mut [u8] {
    out[0] = 0x80 | 0x10;
    out[1] = u8::from(header.marker) << 7 | header.payload_type & 0x7f;
    out[2..4].copy_from_slice(&header.sequence.to_be_bytes());
    out[4..8].copy_from_slice(&header.timestamp.to_be_bytes());
    out[8..12].copy_from_slice(&header.ssrc.to_be_bytes());
    out[12..16].copy_from_slice(&[0xbe, 0xde, 0, 5]);
    let e = &mut out[16..36];
    e[0] = EXTENSION_ID << 4 | (TAG_LEN as u8 - 1);
    e[1..5].copy_from_slice(&tag.seq.to_be_bytes());
    let flags = [(tag.referenced, 0x80), (tag.first, 0x40), (tag.last, 0x20)];
    let flags = flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum::<u8>();
    e[5] = tag.kind as u8 | flags;
    e[6..14].copy_from_slice(&tag.refs.bits().to_be_bytes());
    e[14..16].copy_from_slice(&tag.left_ms.to_be_bytes());
    e[16] = DEADLINE_ID << 4 | 1;
    e[17..19].copy_from_slice(&tag.deadline_ms.to_be_bytes());
    e[19] = 0;
    &mut out[HEADER_LEN + EXTENSION_LEN..]
}

/// Sets the sequence number of a packet, just before it is sent: only then is it known which frames
/// before it were sent at all. Does nothing to a packet that is too short.
pub fn stamp_sequence(packet: &mut [u8], sequence: u16) {
    if let Some(field) = packet.get_mut(SEQUENCE_AT..SEQUENCE_AT + 2) {
        field.copy_from_slice(&sequence.to_be_bytes());
    }
}

/// Where in a packet the sequence number stands.
pub const SEQUENCE_AT: usize = 2;

/// Sets the source identifier of a packet, for one that is sent as another's. Does nothing to a packet that is
/// too short.
pub fn stamp_ssrc(packet: &mut [u8], ssrc: u32) {
    if let Some(field) = packet.get_mut(SSRC_AT..SSRC_AT + 4) {
        field.copy_from_slice(&ssrc.to_be_bytes());
    }
}

/// Where in a packet the source identifier stands.
pub const SSRC_AT: usize = 8;

/// Sets in a packet written by [`write_packet`], just before it is sent, its frame's deadline and
/// the time left until then, both instants cut to whole milliseconds of one clock. Does nothing to
/// a packet that is too short.
pub fn stamp_deadline(packet: &mut [u8], deadline: Instant, now: Instant) {
    if packet.len() >= STAMPED_LEN {
        let (deadline_ms, now_ms) = (deadline.0 / NANOS_PER_MS, now.0 / NANOS_PER_MS);
        // Both are below 2^45.
        let left = deadline_ms.cast_signed() - now_ms.cast_signed();
        let left_ms = left.clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16;
        packet[LEFT_AT..LEFT_AT + 2].copy_from_slice(&left_ms.to_be_bytes());
        packet[DEADLINE_AT..STAMPED_LEN].copy_from_slice(&(deadline_ms as u16).to_be_bytes());
    }
}

/// The shortest packet that [`stamp_deadline`] writes into.
pub const STAMPED_LEN: usize = DEADLINE_AT + 2;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        marker: true,
        payload_type: 96,
        sequence: 65535,
        timestamp: 0xdead_beef,
        ssrc: 0x0102_0304,
    };
    const TAG: FrameTag = FrameTag {
        seq: 70_000,
        kind: Kind::Bidirectional,
        referenced: false,
        first: true,
        last: false,
        refs: References::from_bits(300 << 48 | 0b100),
        left_ms: -5,
        deadline_ms: 65_000,
    };

    fn packet() -> Vec<u8> {
        let mut out = vec![0; packet_len(5)];
        write_packet(&mut out, HEADER, TAG, b"hello");
        out
    }

    #[test]
    fn elements_of_both_forms_are_found() {
        let bytes = packet();
        assert_eq!(extension_element(&bytes, EXTENSION_ID).map(<[u8]>::len), Some(TAG_LEN));
        let two = [65_000_u16.to_be_bytes()[0], 65_000_u16.to_be_bytes()[1]];
        assert_eq!(extension_element(&bytes, DEADLINE_ID), Some(&two[..]));
        assert_eq!((extension_element(&bytes, 3), extension_element(&bytes, 0)), (None, None));
        let long = [&bytes[..12], &[0x10, 0x03, 0, 2, 0, 7, 0, 20, 3, 1, 2, 3, 9]].concat();
        assert_eq!(extension_element(&long, 7), Some(&[][..]));
        assert_eq!(extension_element(&long, 20), Some(&[1, 2, 3][..]));
        assert_eq!(extension_element(&long[..22], 20), None);
        assert_eq!(extension_element(&bytes[..11], 1), None);
    }

    #[test]
    fn reads_back_what_was_written() {
        let bytes = packet();
        let read = Packet::parse(&bytes).unwrap();
        assert_eq!(read, Packet { header: HEADER, tag: Some(TAG), payload: b"hello" });
    }

    #[test]
    fn the_deadline_is_stamped_in_place() {
        let ms = |ms: u64| Instant(ms * NANOS_PER_MS);
        for (deadline, now, left_ms, deadline_ms, sent_ms) in [
            (ms(1000), ms(679), 321, 1000, Some(679)),
            // Both are cut before the difference is taken: the sending time is exact.
            (ms(1000), Instant(678_000_001), 322, 1000, Some(678)),
            (Instant(999_999_999), ms(1000), -1, 999, Some(1000)),
            (ms((3 << 16) + 5), ms((3 << 16) - 5), 10, 5, Some(65_531)),
            (ms(40_000), ms(0), i16::MAX, 40_000, None),
            (ms(0), ms(40_000), i16::MIN, 0, None),
            (Instant::MAX, ms(0), i16::MAX, (u64::MAX / NANOS_PER_MS) as u16, None),
        ] {
            let mut bytes = packet();
            stamp_deadline(&mut bytes, deadline, now);
            let read = Packet::parse(&bytes).unwrap();
            let tag = FrameTag { left_ms, deadline_ms, ..TAG };
            assert_eq!((read.tag, tag.sent_ms()), (Some(tag), sent_ms));
            assert_eq!(read.payload, b"hello");
        }
    }

    #[test]
    fn elements_may_stand_in_any_order_among_others_but_not_alone() {
        let bytes = packet();
        let (frame, deadline) = (&bytes[16..32], &bytes[32..35]);
        let parse = |elements: &[&[u8]]| {
            let body = elements.concat();
            let mut bytes = bytes[..14].to_vec();
            let words = body.len().div_ceil(4);
            bytes.extend([0, words as u8]);
            bytes.extend(&body);
            bytes.resize(16 + words * 4, 0);
            bytes.extend(b"hello");
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!((packet.header, packet.payload), (HEADER, &b"hello"[..]));
            packet.tag
        };
        assert_eq!(parse(&[frame, deadline]), Some(TAG));
        assert_eq!(parse(&[&[0, 0x72, 1, 2, 3], deadline, &[0x50, 7, 0], frame]), Some(TAG));
        assert_eq!(parse(&[frame]), None, "a sender that tells no deadline");
        assert_eq!(parse(&[deadline]), None);
        assert_eq!(parse(&[frame, &[0x2f, 1]]), None, "an element that goes beyond the end");
        assert_eq!(parse(&[frame, &[0xf0], deadline]), None, "15 ends them");
    }

    #[test]
    fn every_truncation_is_refused_or_read_without_its_end() {
        let bytes = packet();
        for len in 0..HEADER_LEN + EXTENSION_LEN {
            assert_eq!(Packet::parse(&bytes[..len]), Err(PacketError::Truncated(len)));
        }
    }

    #[test]
    fn padding_and_sources_are_taken_off() {
        let mut bytes = vec![0xa1, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        bytes.extend([9, 9, 9, 9]);
        bytes.extend([1, 2, 3, 0, 2]);
        assert_eq!(Packet::parse(&bytes).unwrap().payload, [1, 2, 3]);
        *bytes.last_mut().unwrap() = 6;
        assert_eq!(Packet::parse(&bytes), Err(PacketError::Padding(6)));
        bytes[0] = 0x40;
        assert_eq!(Packet::parse(&bytes), Err(PacketError::Version(1)));
    }
}

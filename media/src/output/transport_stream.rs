//! MPEG transport streams (ISO/IEC 13818-1) of one picture or sound: frames in, datagrams out, as RTP packets
//! of payload type 33 (RFC 2250), so that the engine handles them as any.
//!
//! Each frame stands alone: what the engine drops takes nothing of another along. What must go on over
//! dropped frames, the continuity counters, is written by [`Continuity`] when a packet leaves.

use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::{HEADER_LEN, Packet};
use selvedge_units::Duration;

use crate::frame::{MediaFrame, StreamInfo};
use crate::picture::{Codec, h264};

/// The encodings that are carried.
pub(super) const CODECS: [Codec; 4] = [Codec::H264, Codec::H265, Codec::Mpv, Codec::Aac];
/// Bytes of a packet, and how many packets a datagram has, as receivers expect.
const PACKET_LEN: usize = 188;
pub(super) const DATAGRAM_LEN: usize = 7 * PACKET_LEN;
/// The payload type of RTP.
const PAYLOAD_TYPE: u8 = 33;
/// Packet identifiers: the list of programs, the program, its stream.
const PROGRAMS: u16 = 0;
const PROGRAM: u16 = 0x1000;
const STREAM: u16 = 0x100;
/// How often both tables come, at least; and in front of each picture that stands alone.
const TABLES_EVERY: Duration = Duration::from_millis(100);
/// Delimiters that access units begin with, where their encoder wrote none.
const DELIMITER_H264: &[u8] = &[0, 0, 0, 1, 9, 0xf0];
const DELIMITER_H265: &[u8] = &[0, 0, 0, 1, 0x46, 1, 0x50];

/// Makes the packets of one stream.
#[derive(Debug)]
pub struct TransportStream {
    codec: Codec,
    /// What each frame of AAC begins with, its length left out.
    adts: Option<[u8; 4]>,
    /// How far the clock is behind the time for decoding: frames may wait so long for the link.
    lead: Duration,
    per_datagram: usize,
    tables_due: Duration,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl TransportStream {
    /// For frames of this kind that may wait for `lead`, in datagrams of at most so many bytes.
    #[must_use]
    pub fn new(info: &StreamInfo, lead: Duration, datagram_max: usize) -> Self {
        let most = DATAGRAM_LEN.min(datagram_max);
        Self {
            codec: info.codec,
            adts: info.fmtp.as_deref().and_then(adts),
            lead,
            per_datagram: (most / PACKET_LEN).max(1),
            tables_due: Duration::ZERO,
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// The packets of a frame, whose times begin at `since`.
    pub fn packets(&mut self, frame: &MediaFrame<'_>, since: Duration) -> Vec<&[u8]> {
        let (decode, present) = (since + frame.decode_time, since + frame.media_time);
        let mut stream = Vec::new();
        if frame.picture.kind == Kind::Intra || self.tables_due <= decode {
            self.tables_due = decode + TABLES_EVERY;
            tables(self.codec, &mut stream);
        }
        let unit = self.elementary(frame.unit, decode, present);
        split(&unit, ticks(decode), frame.picture.closes, &mut stream);
        self.bytes.clear();
        self.ends.clear();
        let datagrams = stream.chunks(self.per_datagram * PACKET_LEN);
        let last = datagrams.len().saturating_sub(1);
        for (n, datagram) in datagrams.enumerate() {
            let marker = if n == last { 0x80 } else { 0 };
            self.bytes.extend([0x80, marker | PAYLOAD_TYPE, 0, 0]);
            self.bytes.extend(frame.rtp_timestamp.to_be_bytes());
            self.bytes.extend([0; 4]);
            self.bytes.extend(datagram);
            self.ends.push(self.bytes.len());
        }
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end]).collect()
    }

    /// A frame with the header of its elementary stream's packet (section 2.4.3.6).
    fn elementary(&self, unit: &[u8], decode: Duration, present: Duration) -> Vec<u8> {
        let delimiter: Vec<u8> = match self.codec {
            Codec::H264 if h264::delimiter_len(unit) == 0 => DELIMITER_H264.into(),
            Codec::H265 if unit.get(4) != DELIMITER_H265.get(4) => DELIMITER_H265.into(),
            Codec::Aac => self.adts.map_or_else(Vec::new, |head| adts_header(head, unit.len())),
            _ => Vec::new(),
        };
        let [decode, present] = [decode, present].map(|at| ticks(at + self.lead));
        let id = if self.codec.is_audio() { 0xc0 } else { 0xe0 };
        let mut packet = vec![0, 0, 1, id, 0, 0, 0x80];
        if decode == present {
            packet.extend([0x80, 5]);
            packet.extend(stamp(2, present));
        } else {
            packet.extend([0xc0, 10]);
            packet.extend(stamp(3, present).iter().chain(&stamp(1, decode)));
        }
        // Zero means that it ends where the next begins, which only pictures may.
        let len = u16::try_from(packet.len() - 6 + delimiter.len() + unit.len()).unwrap_or(0);
        packet[4..6].copy_from_slice(&len.to_be_bytes());
        packet.extend(delimiter.iter().chain(unit));
        packet
    }
}

/// A time in ticks of 90 kHz.
fn ticks(at: Duration) -> u64 {
    u64::try_from(u128::from(at.0) * 9 / 100_000).unwrap_or(u64::MAX)
}

/// A time in 33 bits, as headers have it.
fn stamp(prefix: u8, ticks: u64) -> [u8; 5] {
    let byte = |shift: u32| (ticks >> shift) as u8;
    [prefix << 4 | byte(29) & 0x0e | 1, byte(22), byte(14) | 1, byte(7), byte(0) << 1 | 1]
}

/// Cuts an elementary stream's packet into transport packets; the first has the clock.
fn split(mut rest: &[u8], clock: u64, stands_alone: bool, out: &mut Vec<u8>) {
    let mut first = true;
    while !rest.is_empty() {
        let mut field = Vec::new();
        if first {
            // The clock has no lead: what is decoded later may arrive later.
            let base = (clock << 7).to_be_bytes();
            let flags = if stands_alone { 0x50 } else { 0x10 };
            field.extend([7, flags, base[3], base[4], base[5], base[6], base[7] & 0x80 | 0x7e, 0]);
        }
        let (now, later) = rest.split_at(rest.len().min(PACKET_LEN - 4 - field.len()));
        let lack = PACKET_LEN - 4 - field.len() - now.len();
        if lack > 0 {
            let begun = field.len();
            field.resize(begun + lack, 0xff);
            field[0] = (field.len() - 1) as u8;
            if begun == 0 && lack > 1 {
                field[1] = 0;
            }
        }
        header(STREAM, first, !field.is_empty(), out);
        out.extend(field.iter().chain(now));
        (first, rest) = (false, later);
    }
}

fn header(id: u16, first: bool, has_field: bool, out: &mut Vec<u8>) {
    let [high, low] = id.to_be_bytes();
    out.extend([0x47, u8::from(first) << 6 | high, low, 0x10 | u8::from(has_field) << 5]);
}

/// Which programs there are, and what is in ours (sections 2.4.4.3 and 2.4.4.8).
fn tables(codec: Codec, out: &mut Vec<u8>) {
    let kind = match codec {
        Codec::H265 => 0x24,
        Codec::Mpv => 0x02,
        Codec::Aac => 0x0f,
        _ => 0x1b,
    };
    let [program, stream] = [PROGRAM | 0xe000, STREAM | 0xe000].map(u16::to_be_bytes);
    let programs = [0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, program[0], program[1]];
    let ours = [
        [2, 0xb0, 18, 0, 1, 0xc1, 0, 0].as_slice(),
        &[stream[0], stream[1], 0xf0, 0, kind, stream[0], stream[1], 0xf0, 0],
    ];
    for (id, table) in [(PROGRAMS, programs.to_vec()), (PROGRAM, ours.concat())] {
        header(id, true, false, out);
        out.push(0);
        out.extend(&table);
        out.extend(checksum(&table).to_be_bytes());
        out.resize(out.len().next_multiple_of(PACKET_LEN), 0xff);
    }
}

/// The CRC of tables (annex A).
fn checksum(table: &[u8]) -> u32 {
    table.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}

/// The fixed part of ADTS headers, from the `config` of a session description (RFC 3640).
fn adts(fmtp: &str) -> Option<[u8; 4]> {
    let config = fmtp.split(';').find_map(|part| part.trim().strip_prefix("config="))?;
    let config = u16::from_str_radix(config.get(..4)?, 16).ok()?;
    let (profile, rate, channels) = (config >> 11, config >> 7 & 15, config >> 3 & 15);
    // Only the four plain profiles have such headers; the others extend one of them.
    let profile = if profile > 4 { 2 } else { profile } as u8;
    let (rate, channels) = (rate as u8, channels as u8);
    Some([0xff, 0xf1, profile.wrapping_sub(1) << 6 | rate << 2 | channels >> 2, channels << 6])
}

fn adts_header(head: [u8; 4], unit: usize) -> Vec<u8> {
    let len = unit + 7;
    let [a, b, c, d] = head;
    vec![a, b, c, d | (len >> 11) as u8 & 3, (len >> 3) as u8, (len << 5) as u8 | 0x1f, 0xfc]
}

/// Numbers transport packets when they leave: a gap says that something of the stream is missing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Continuity {
    /// The next sequence number of RTP.
    sequence: Option<u16>,
    /// Of the list of programs, the program and its stream.
    counters: [u8; 3],
}

impl Continuity {
    /// Sends the transport packets in an RTP packet, numbered. What was not sent is numbered alike again.
    pub(super) fn sent(&mut self, packet: &[u8], send: impl FnOnce(&[u8]) -> bool) -> bool {
        let Ok(Packet { header, payload, .. }) = Packet::parse(packet) else { return false };
        let before = *self;
        if self.sequence.is_some_and(|sequence| sequence != header.sequence) {
            // The end of a frame was not sent, which receivers must see.
            self.counters[2] = self.counters[2].wrapping_add(1);
        }
        self.sequence = Some(header.sequence.wrapping_add(1));
        let mut bytes = payload.to_vec();
        for packet in bytes.chunks_exact_mut(PACKET_LEN) {
            let counter = match u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff {
                PROGRAMS => 0,
                PROGRAM => 1,
                _ => 2,
            };
            packet[3] = packet[3] & 0xf0 | self.counters[counter] & 15;
            self.counters[counter] = self.counters[counter].wrapping_add(1);
        }
        let sent = send(&bytes);
        if !sent {
            *self = before;
        }
        sent
    }
}

/// Bytes in front of a datagram's in the packets that the engine counts: those of RTP and of the frame's tag.
pub(super) const RTP_LEN: usize = HEADER_LEN + selvedge_data_stream::rtp::EXTENSION_LEN;

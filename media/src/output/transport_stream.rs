//! MPEG transport streams (ISO/IEC 13818-1) of a picture, a sound, or both: frames in, datagrams out,
//! as RTP packets of payload type 33 (RFC 2250), so that the engine handles them like any others.
//!
//! A picture and a sound share a [`Program`]: one list of both, one clock. Each frame is independent:
//! if the engine drops one, no other loses anything. [`Continuity`] writes the fields that must
//! continue over dropped frames, the continuity counters and the clock, when a packet leaves.

use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::{HEADER_LEN, Packet};
use selvedge_units::{Bytes, Duration};

use crate::frame::{MediaFrame, StreamInfo};
use crate::picture::{Codec, h264};

/// The encodings that are carried.
pub(super) const CODECS: [Codec; 4] = [Codec::H264, Codec::H265, Codec::Mpv, Codec::Aac];
/// Bytes of a packet, and how many packets a datagram has, as receivers expect.
pub(super) const PACKET_LEN: usize = 188;
pub(super) const DATAGRAM_LEN: usize = 7 * PACKET_LEN;
/// The payload type of RTP.
const PAYLOAD_TYPE: u8 = 33;
/// Packet identifiers: the list of programs, the program, its picture; its sound has the next.
const PROGRAMS: u16 = 0;
pub(super) const PROGRAM: u16 = 0x1000;
const STREAM: u16 = 0x100;
/// How long the clock may be missing where a picture and a sound share it, in its ticks: 100 ms.
const CLOCK_EVERY: u64 = 9000;
/// How often both tables are sent, at least; and in front of each picture that stands alone.
const TABLES_EVERY: Duration = Duration::from_millis(100);
/// Delimiters that begin access units for which their encoder wrote none.
const DELIMITER_H264: &[u8] = &[0, 0, 0, 1, 9, 0xf0];
const DELIMITER_H265: &[u8] = &[0, 0, 0, 1, 0x46, 1, 0x50];

/// The common state of the picture and the sound of one transport stream.
#[derive(Debug)]
pub struct Program {
    /// How far the clock is behind the decoding time: frames may wait this long for the link.
    lead: Duration,
    listed: Mutex<Listed>,
}

/// The contents of the tables.
#[derive(Debug, Default)]
struct Listed {
    /// The kinds of the picture and the sound, as far as they are known.
    kinds: [Option<u8>; 2],
    /// How often that changed.
    version: u8,
    due: Duration,
}

impl Program {
    /// A program whose frames may wait for `lead`.
    #[must_use]
    pub fn new(lead: Duration) -> Self {
        Self { lead, listed: Mutex::default() }
    }

    fn list(&self, codec: Codec) {
        let kind = match codec {
            Codec::H265 => 0x24,
            Codec::Mpv => 0x02,
            Codec::Aac => 0x0f,
            _ => 0x1b,
        };
        let Listed { kinds, version, due } = &mut *self.listed.lock();
        let known = &mut kinds[usize::from(codec.is_audio())];
        if known.replace(kind) != Some(kind) {
            (*version, *due) = (version.wrapping_add(1) & 31, Duration::ZERO);
        }
    }

    /// Both tables, where they are due.
    fn tables(&self, now: Duration, at_once: bool, out: &mut Vec<u8>) {
        let Listed { kinds, version, due } = &mut *self.listed.lock();
        if at_once || *due <= now {
            *due = now + TABLES_EVERY;
            tables(*kinds, *version, out);
        }
    }
}

/// Makes the packets of one stream.
#[derive(Debug)]
pub struct TransportStream {
    codec: Codec,
    /// The beginning of each frame of AAC, without its length.
    adts: Option<[u8; 4]>,
    program: Arc<Program>,
    per_datagram: usize,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl TransportStream {
    /// For frames of this kind in a program, in datagrams of at most `datagram_max` bytes.
    #[must_use]
    pub fn new(info: &StreamInfo, program: Arc<Program>, datagram_max: usize) -> Self {
        let most = DATAGRAM_LEN.min(datagram_max);
        program.list(info.codec);
        Self {
            codec: info.codec,
            adts: info.fmtp.as_deref().and_then(adts),
            program,
            per_datagram: (most / PACKET_LEN).max(1),
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// The packets of a frame, whose times count from `since`.
    pub fn packets(&mut self, frame: &MediaFrame<'_>, since: Duration) -> Vec<&[u8]> {
        let (decode, present) = (since + frame.decode_time, since + frame.media_time);
        let mut stream = Vec::new();
        self.program.tables(decode, frame.picture.kind == Kind::Intra, &mut stream);
        let unit = self.elementary(frame.unit, decode, present);
        let id = STREAM + u16::from(self.codec.is_audio());
        split((&unit, id), ticks(decode), frame.picture.closes, &mut stream);
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
        let [decode, present] = [decode, present].map(|at| ticks(at + self.program.lead));
        let id = if self.codec.is_audio() { 0xc0 } else { 0xe0 };
        let mut packet = vec![0, 0, 1, id, 0, 0, 0x80];
        if decode == present {
            packet.extend([0x80, 5]);
            packet.extend(stamp(2, present));
        } else {
            packet.extend([0xc0, 10]);
            packet.extend(stamp(3, present).iter().chain(&stamp(1, decode)));
        }
        // Zero means that the packet ends where the next begins, which only pictures may do.
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

/// A time in 33 bits, in the form of headers.
fn stamp(prefix: u8, ticks: u64) -> [u8; 5] {
    let byte = |shift: u32| (ticks >> shift) as u8;
    [prefix << 4 | byte(29) & 0x0e | 1, byte(22), byte(14) | 1, byte(7), byte(0) << 1 | 1]
}

/// Splits an elementary stream's packet into transport packets; the first has the clock.
fn split((mut rest, id): (&[u8], u16), clock: u64, stands_alone: bool, out: &mut Vec<u8>) {
    let mut first = true;
    while !rest.is_empty() {
        let mut field = Vec::new();
        if first {
            // The clock has no lead: units that are decoded later may arrive later.
            field.extend([7, if stands_alone { 0x50 } else { 0x10 }]);
            field.extend(clock_field(clock));
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
        header(id, first, !field.is_empty(), out);
        out.extend(field.iter().chain(now));
        (first, rest) = (false, later);
    }
}

/// A clock value in the form of adaptation fields.
fn clock_field(clock: u64) -> [u8; 6] {
    let [.., a, b, c, d, e] = (clock << 7).to_be_bytes();
    [a, b, c, d, e & 0x80 | 0x7e, 0]
}

fn header(id: u16, first: bool, has_field: bool, out: &mut Vec<u8>) {
    let [high, low] = id.to_be_bytes();
    out.extend([0x47, u8::from(first) << 6 | high, low, 0x10 | u8::from(has_field) << 5]);
}

/// The list of programs, and the contents of ours (sections 2.4.4.3 and 2.4.4.8). The clock is the
/// picture's.
fn tables(kinds: [Option<u8>; 2], version: u8, out: &mut Vec<u8>) {
    let known = (STREAM..).zip(kinds).filter_map(|(id, kind)| Some((id | 0xe000, kind?)));
    let clock = known.clone().next().map_or(STREAM, |(id, _)| id).to_be_bytes();
    let program = (PROGRAM | 0xe000).to_be_bytes();
    let version = 0xc1 | version << 1;
    let programs = vec![0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, program[0], program[1]];
    let mut ours = vec![2, 0xb0, 0, 0, 1, version, 0, 0, clock[0], clock[1], 0xf0, 0];
    for (id, kind) in known {
        let [high, low] = id.to_be_bytes();
        ours.extend([kind, high, low, 0xf0, 0]);
    }
    ours[2] = (ours.len() + 1) as u8;
    for (id, table) in [(PROGRAMS, programs), (PROGRAM, ours)] {
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

/// Numbers transport packets when they leave: a gap shows that a part of the stream is missing. A
/// picture and a sound wait for the link separately, so their common clock is kept monotonic here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Continuity {
    /// The next sequence numbers of RTP, of picture and sound.
    sequences: [Option<u16>; 2],
    /// Those of the list of programs, the program, its picture and its sound.
    counters: [u8; 4],
    /// The identifier of the packets with the clock, and the clock's newest value.
    clock: Option<(u16, Option<u64>)>,
}

impl Continuity {
    /// Sends the transport packets in an RTP packet, numbered; returns true, and how many bytes were
    /// added. Packets that were not sent keep their numbers for the next attempt.
    pub(super) fn sent(
        &mut self,
        packet: &[u8],
        send: impl FnOnce(&[u8]) -> bool,
    ) -> (bool, Bytes) {
        let Ok(Packet { header, payload, .. }) = Packet::parse(packet) else {
            return (false, Bytes(0));
        };
        let before = *self;
        let track = track_of(payload);
        let sequence = &mut self.sequences[track];
        if sequence.is_some_and(|sequence| sequence != header.sequence) {
            // The end of a frame was not sent, which receivers must notice.
            self.counters[2 + track] = self.counters[2 + track].wrapping_add(1);
        }
        *sequence = Some(header.sequence.wrapping_add(1));
        let (mut bytes, mut added) = (payload.to_vec(), Bytes(0));
        let mut missed = None;
        for packet in bytes.chunks_exact_mut(PACKET_LEN) {
            let id = id_of(packet);
            if id == PROGRAM {
                let clock = u16::from_be_bytes([packet[13], packet[14]]) & 0x1fff;
                self.clock = Some((clock, self.clock.and_then(|(_, newest)| newest)));
            }
            missed = self.keep_clock(id, packet).or(missed);
            let counter = match id {
                PROGRAMS => 0,
                PROGRAM => 1,
                _ => 2 + track,
            };
            packet[3] = packet[3] & 0xf0 | self.counters[counter] & 15;
            self.counters[counter] = self.counters[counter].wrapping_add(1);
        }
        if let Some((id, at)) = missed.filter(|_| bytes.len() < DATAGRAM_LEN) {
            let counter = self.counters[2 + usize::from(id & 1)].wrapping_sub(1) & 15;
            let [high, low] = id.to_be_bytes();
            bytes.extend([0x47, high, low, 0x20 | counter, 183, 0x10]);
            bytes.extend(clock_field(at));
            bytes.resize(bytes.len() + PACKET_LEN - 12, 0xff);
            (self.clock, added) = (Some((id, Some(at))), Bytes(PACKET_LEN as u64));
        }
        let sent = send(&bytes);
        if !sent {
            *self = before;
        }
        (sent, added)
    }

    /// Removes the clock from a packet where it would go back. If the stream with the clock has sent
    /// none for too long, the other's time is returned, to be sent in its place.
    fn keep_clock(&mut self, id: u16, packet: &mut [u8]) -> Option<(u16, u64)> {
        let (of, newest) = self.clock?;
        let has_field = packet[3] & 0x20 != 0 && packet[4] >= 7 && packet[5] & 0x10 != 0;
        let field = packet.get_mut(5..12).filter(|_| has_field)?;
        let high = u32::from_be_bytes([field[1], field[2], field[3], field[4]]);
        let at = u64::from(high) << 1 | u64::from(field[5] >> 7);
        // In 33 bits; half of them is the most that it can be ahead.
        let ahead = newest.map_or(1 << 31, |newest| at.wrapping_sub(newest) & ((1 << 33) - 1));
        let is_newer = (1..1 << 32).contains(&ahead);
        if of != id {
            return (is_newer && ahead > CLOCK_EVERY).then_some((of, at));
        }
        if is_newer {
            self.clock = Some((of, Some(at)));
        } else {
            field[0] &= !0x10;
            field[1..].fill(0xff);
        }
        None
    }
}

/// The identifier of a transport packet.
pub(super) fn id_of(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff
}

/// Whether a datagram belongs to the picture, 0, or to the sound, 1: tables are in front.
pub(super) fn track_of(payload: &[u8]) -> usize {
    let last = payload.chunks_exact(PACKET_LEN).next_back();
    usize::from(last.is_some_and(|last| id_of(last) == STREAM + 1))
}

/// Bytes in front of a datagram's in the packets that the engine counts: those of RTP and of the
/// frame's tag.
pub(super) const RTP_LEN: usize = HEADER_LEN + selvedge_data_stream::rtp::EXTENSION_LEN;

//! Writes the RTCP of a sender and of a receiver.

use crate::feedback::Reception;

/// What a sender reports of itself (RFC 3550 section 6.4.1).
#[derive(Clone, Copy, Debug)]
pub struct SenderInfo {
    /// The source.
    pub ssrc: u32,
    /// The time as NTP writes it, seconds in the upper half.
    pub ntp: u64,
    /// The same in the stream's clock.
    pub timestamp: u32,
    /// Packets that were sent.
    pub packets: u32,
    /// Bytes of their payload.
    pub octets: u32,
}

impl SenderInfo {
    /// A datagram with this, and the source's name (RFC 7022): the same for streams that are played in step.
    #[must_use]
    pub fn report(&self, of: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        sender_report(&mut bytes, self);
        name(&mut bytes, self.ssrc, of);
        bytes
    }
}

/// Appends the head of a part, whose length [`finish`] states.
pub(crate) fn begin(bytes: &mut Vec<u8>, count: u8, kind: u8) -> usize {
    let at = bytes.len();
    bytes.extend([0x80 | count, kind, 0, 0]);
    at
}

/// States the length of the part that began at `at`; it is of whole words.
pub(crate) fn finish(bytes: &mut [u8], at: usize) {
    let words = (bytes.len() - at) / 4 - 1;
    bytes[at + 2..at + 4].copy_from_slice(&(words as u16).to_be_bytes());
}

fn sender_report(bytes: &mut Vec<u8>, info: &SenderInfo) {
    let at = begin(bytes, 0, 200);
    bytes.extend(info.ssrc.to_be_bytes());
    bytes.extend(info.ntp.to_be_bytes());
    for word in [info.timestamp, info.packets, info.octets] {
        bytes.extend(word.to_be_bytes());
    }
    finish(bytes, at);
}

pub(crate) fn receiver_report(bytes: &mut Vec<u8>, own: u32, reception: Option<&Reception>) {
    let at = begin(bytes, u8::from(reception.is_some()), 201);
    bytes.extend(own.to_be_bytes());
    if let Some(seen) = reception {
        let lost = u32::from(seen.lost) << 24 | seen.all_lost.cast_unsigned() & 0xff_ffff;
        // No receiver of ours states a jitter.
        for word in [seen.ssrc, lost, seen.highest, 0, seen.last_report, seen.since_report] {
            bytes.extend(word.to_be_bytes());
        }
    }
    finish(bytes, at);
}

/// The name of a source, at most 255 bytes (RFC 3550 section 6.5.1).
pub(crate) fn name(bytes: &mut Vec<u8>, ssrc: u32, name: &str) {
    let at = begin(bytes, 1, 202);
    bytes.extend(ssrc.to_be_bytes());
    let name = &name.as_bytes()[..name.len().min(255)];
    bytes.extend([1, name.len() as u8]);
    bytes.extend(name);
    bytes.push(0);
    while !bytes.len().is_multiple_of(4) {
        bytes.push(0);
    }
    finish(bytes, at);
}

pub(crate) fn goodbye(bytes: &mut Vec<u8>, ssrc: u32) {
    let at = begin(bytes, 1, 203);
    bytes.extend(ssrc.to_be_bytes());
    finish(bytes, at);
}

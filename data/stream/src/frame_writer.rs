//! A frame's packets, as a source hands them over and as they are sent: each with the stream's own
//! source identifier and our header extension, which says which frame it belongs to; and their
//! sequence numbers, which are set when they leave.
//!
//! RTP packets come from payloaders; they go into the payload that a pool keeps until the link has
//! sent them. The frame producer of `place/engine` and the simulator's sender write by this code.

use selvedge_units::Bytes;

use crate::rtp::{self, FrameTag, Header, Packet};
use crate::{DropReason, Frame, PACKET_HEADER_LEN, PacketWriter};

/// A packet whose payload is put into its place by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketShape {
    /// The marker bit.
    pub marker: bool,
    /// Payload type, 0 ..= 127.
    pub payload_type: u8,
    /// Bytes of the payload.
    pub payload: Bytes,
}

/// Writes the packets of one stream's frames.
#[derive(Clone, Debug)]
pub struct FrameWriter {
    ssrc: u32,
    overhead: Bytes,
    payload_max: usize,
    sequence: u16,
}

impl FrameWriter {
    /// For a stream of this source identifier, whose packets take `overhead` bytes of headers below
    /// RTP on the wire, and whose RTP payloads have at most `payload_max` bytes.
    #[must_use]
    pub const fn new(ssrc: u32, overhead: Bytes, payload_max: usize) -> Self {
        Self { ssrc, overhead, payload_max, sequence: 0 }
    }

    /// Gives the packets that are written from now on this source identifier; returns the one before.
    pub const fn set_ssrc(&mut self, ssrc: u32) -> u32 {
        core::mem::replace(&mut self.ssrc, ssrc)
    }

    /// Bytes that suffice for a frame's packets in a payload.
    #[must_use]
    pub fn room(packets: &[&[u8]]) -> usize {
        // Each packet's own fixed header is replaced by one of at most this length, so this is enough.
        packets.iter().map(|packet| PACKET_HEADER_LEN + packet.len() + rtp::EXTENSION_LEN).sum()
    }

    /// The size on the wire of a frame of packets with payloads of these lengths; `None` if one is not known.
    #[must_use]
    pub fn size(&self, lens: impl Iterator<Item = Option<usize>>) -> Option<Bytes> {
        lens.map(|len| Some(Bytes(rtp::packet_len(len?) as u64) + self.overhead)).sum()
    }

    /// Writes a frame's RTP packets into `payload`, which has [`Self::room`] for them, and sets the
    /// frame's size on the wire. Their sequence numbers and source identifier are replaced by the
    /// stream's own, their media time by `timestamp`. Returns how many bytes were written.
    ///
    /// # Errors
    /// [`DropReason::Unusable`] if a packet is not RTP or is too large, or the payload too short.
    pub fn write(
        &mut self,
        payload: &mut [u8],
        frame: &mut Frame,
        timestamp: u32,
        packets: &[&[u8]],
    ) -> Result<usize, DropReason> {
        let parsed = packets.iter().map(|packet| {
            let Packet { header, payload, .. } =
                Packet::parse(packet).map_err(|_| DropReason::Unusable)?;
            let Header { marker, payload_type, .. } = header;
            Ok((
                PacketShape { marker, payload_type, payload: Bytes(payload.len() as u64) },
                payload,
            ))
        });
        self.write_each(payload, frame, timestamp, parsed, |place, bytes| {
            place.copy_from_slice(bytes);
        })
    }

    /// Bytes that suffice for packets of these shapes in a payload.
    #[must_use]
    pub fn room_for(packets: &[PacketShape]) -> usize {
        let len = |packet: &PacketShape| rtp::packet_len(packet.payload.0 as usize);
        packets.iter().map(|packet| PACKET_HEADER_LEN + len(packet)).sum()
    }

    /// Writes a frame's packets without their payloads, sets the frame's size on the wire, and calls `place`
    /// with the place of each packet's payload, in order. Returns how many bytes were written.
    ///
    /// # Errors
    /// [`DropReason::Unusable`] if a packet is too large, or the payload shorter than [`Self::room_for`].
    pub fn write_headers<'p>(
        &mut self,
        payload: &'p mut [u8],
        frame: &mut Frame,
        timestamp: u32,
        packets: &[PacketShape],
        mut place: impl FnMut(&'p mut [u8]),
    ) -> Result<usize, DropReason> {
        let packets = packets.iter().map(|shape| Ok((*shape, ())));
        self.write_each(payload, frame, timestamp, packets, |at, ()| place(at))
    }

    /// Writes the headers of each packet, and lets `fill` put into place what comes with its shape.
    fn write_each<'p, T>(
        &mut self,
        payload: &'p mut [u8],
        frame: &mut Frame,
        timestamp: u32,
        packets: impl Iterator<Item = Result<(PacketShape, T), DropReason>>,
        mut fill: impl FnMut(&'p mut [u8], T),
    ) -> Result<usize, DropReason> {
        let mut writer = PacketWriter::new(payload);
        let mut sequence = self.sequence;
        let mut size = Bytes(0);
        for (n, packet) in packets.enumerate() {
            let (PacketShape { marker, payload_type, payload }, bytes) = packet?;
            let payload = payload.0 as usize;
            if payload > self.payload_max {
                return Err(DropReason::Unusable);
            }
            let tag = FrameTag::of(frame, n as u16);
            let header = Header { marker, payload_type, sequence, timestamp, ssrc: self.ssrc };
            let len = rtp::packet_len(payload);
            let out = writer.push_with(len).map_err(|_| DropReason::Unusable)?;
            fill(rtp::write_headers(out, header, tag), bytes);
            size += Bytes(len as u64) + self.overhead;
            sequence = sequence.wrapping_add(1);
        }
        self.sequence = sequence;
        frame.size = size;
        Ok(writer.written())
    }
}

/// The RTP sequence numbers of sent packets, known when they leave. Frames that are not sent at all
/// leave no gap: receivers drop the first packet behind a gap of 3000 (RFC 3550, appendix A.1), and
/// with it a whole group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbering {
    /// The frame being sent, and the number of its first packet.
    frame: Option<u32>,
    first: u16,
    /// The number of its packets that were numbered, and of all its packets.
    numbered: u16,
    packets: u16,
}

impl Numbering {
    /// The number of a frame's packet; the same on a second call.
    pub fn number(&mut self, frame: &Frame, packet: u16) -> u16 {
        if self.frame != Some(frame.seq) {
            // Packets missing at the end of a frame must show as a gap.
            let cut = u16::from(self.numbered < self.packets);
            self.first = self.first.wrapping_add(self.numbered).wrapping_add(cut);
            (self.frame, self.numbered, self.packets) = (Some(frame.seq), 0, frame.packets);
        }
        self.numbered = self.numbered.max(packet.saturating_add(1));
        self.first.wrapping_add(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, References};
    use selvedge_data_memory::PayloadSpan;
    use selvedge_units::Instant;

    fn frame(seq: u32, packets: u16) -> Frame {
        Frame {
            seq,
            kind: Kind::Predicted,
            referenced: true,
            refs: References::NONE,
            packets,
            size: Bytes(0),
            arrival: Instant::ZERO,
            deadline: None,
            payload: PayloadSpan::default(),
        }
    }

    #[test]
    fn frames_that_are_not_sent_leave_no_gap() {
        let mut numbering = Numbering::default();
        let mut numbers = |seq, packets: u16, sent: u16| {
            (0..sent).map(|n| numbering.number(&frame(seq, packets), n)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(0, 2, 2), [0, 1]);
        assert_eq!(numbers(9000, 3, 3), [2, 3, 4], "8999 frames were not sent");
        assert_eq!(numbers(9001, 3, 2), [5, 6]);
        assert_eq!(numbers(9001, 3, 3), [5, 6, 7], "chosen anew");
        assert_eq!(numbers(9002, 4, 1), [8]);
        assert_eq!(numbers(9003, 1, 1), [10], "the end of the frame before is missing");
    }
}

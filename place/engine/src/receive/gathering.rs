//! The packets of a received stream, gathered to whole frames: datagrams and their frames' fates in from a
//! [`PacketTap`](super::PacketTap), frames with all their packets out. What is kept is bounded.

use std::collections::VecDeque;

use selvedge_data_stream::rtp::{FrameTag, Packet};
use selvedge_units::Duration;

/// Frames of a stream that are open and not settled, at most.
const OPEN_MAX: usize = 96;
/// Packets of a frame, at most; larger frames lose the rest.
const PACKETS_MAX: usize = 8192;

/// Frames of which packets have arrived, in the order in which they began.
#[derive(Debug, Default)]
pub struct OpenFrames(VecDeque<GatheredFrame>);

/// A frame, with the packets of it that have arrived.
#[derive(Debug)]
pub struct GatheredFrame {
    /// Its number, or its timestamp in a stream without tags.
    pub seq: u32,
    /// The tag of its first packet that arrived, if packets have tags.
    pub tag: Option<FrameTag>,
    /// Its packets, as they arrived.
    pub packets: Vec<Vec<u8>>,
    /// How long before its deadline its last packet left.
    pub left: Duration,
}

impl OpenFrames {
    /// Takes a datagram. Returns the frame that it ends, in a stream without tags: nothing better is known there
    /// than that a marker ends a whole frame.
    pub fn handle_packet(&mut self, bytes: &[u8]) -> Option<GatheredFrame> {
        let packet = Packet::parse(bytes).ok()?;
        let tag = packet.tag;
        let (seq, left) = match tag {
            Some(tag) => (tag.seq, Duration::from_millis(tag.left_ms.max(0).unsigned_abs().into())),
            None => (packet.header.timestamp, Duration::ZERO),
        };
        let at = self.0.iter().position(|frame| frame.seq == seq).unwrap_or_else(|| {
            if self.0.len() >= OPEN_MAX {
                self.0.pop_front();
            }
            self.0.push_back(GatheredFrame { seq, tag, packets: Vec::new(), left });
            self.0.len() - 1
        });
        let open = &mut self.0[at];
        if open.packets.len() < PACKETS_MAX {
            open.packets.push(bytes.to_vec());
        }
        open.left = left;
        let ends = tag.is_none() && packet.header.marker;
        if ends { self.handle_settled(seq) } else { None }
    }

    /// A frame is settled: returns it, and forgets those before it.
    pub fn handle_settled(&mut self, seq: u32) -> Option<GatheredFrame> {
        let at = self.0.iter().position(|frame| frame.seq == seq)?;
        self.0.drain(..=at).next_back()
    }
}

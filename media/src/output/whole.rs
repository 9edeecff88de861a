//! Whole access units for programs of this host: pieces of them go through the link as packets, and viewers get the unit
//! again, through shared memory, once its last piece may leave.
//!
//! The pieces are bytes of the unit behind RTP headers, in no RTP format, so that each unit comes out as it went in.

use std::net::SocketAddr;
use std::path::Path;

use parking_lot::Mutex;
use selvedge_comm_frames::{FrameInfo, FrameKind, Layout, ViewerPort};
use selvedge_control_config::Destination;
use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::{FrameTag, HEADER_LEN, Packet};
use selvedge_os::clock::Clock;
use selvedge_units::{Bytes, Duration, Instant};

use super::{Opened, Output, OutputError};
use crate::frame::{MediaFrame, StreamInfo};
use crate::picture::Codec;

/// A unit that is longer is given up: the most that the default memory of a viewer takes.
const UNIT_MAX: usize = 4 << 20;

/// Makes pieces of units.
#[derive(Debug)]
pub struct WholeUnits {
    payload_type: u8,
    payload_max: usize,
    bytes: Vec<u8>,
}

impl WholeUnits {
    pub(super) fn new(info: &StreamInfo, payload_max: usize) -> Self {
        let payload_type = info.codec.payload_type();
        Self { payload_type, payload_max: payload_max.max(1), bytes: Vec::new() }
    }

    pub(super) fn packets(&mut self, frame: &MediaFrame<'_>) -> Vec<&[u8]> {
        self.bytes.clear();
        let last = frame.unit.len().div_ceil(self.payload_max).saturating_sub(1);
        for (n, piece) in frame.unit.chunks(self.payload_max).enumerate() {
            let marker = if n == last { 0x80 } else { 0 };
            let mut header = [0; HEADER_LEN];
            (header[0], header[1]) = (0x80, marker | self.payload_type);
            header[4..8].copy_from_slice(&frame.rtp_timestamp.to_be_bytes());
            self.bytes.extend(header);
            self.bytes.extend(piece);
        }
        self.bytes.chunks(HEADER_LEN + self.payload_max).collect()
    }
}

/// Puts units together again, and knows which can be decoded.
#[derive(Debug, Default)]
struct Assembly {
    unit: Vec<u8>,
    /// The number of the frame whose pieces come, and of the next packet.
    open: Option<(u32, u16)>,
    /// The number of the newest frame, counted without end, and which of the 64 up to it can be decoded.
    newest: Option<(u32, u64)>,
    number: u64,
}

impl Assembly {
    /// Takes a packet; its tag if it completes a unit.
    fn push(&mut self, packet: &Packet<'_>) -> Option<FrameTag> {
        let (tag, sequence) = (packet.tag?, packet.header.sequence);
        if tag.first {
            self.unit.clear();
        } else if self.open != Some((tag.seq, sequence)) {
            self.open = None;
            return None;
        }
        self.open = Some((tag.seq, sequence.wrapping_add(1)));
        if self.unit.len() + packet.payload.len() > UNIT_MAX {
            self.open = None;
            return None;
        }
        self.unit.extend(packet.payload);
        tag.last.then_some(tag)
    }

    /// Notes that this frame left; whether all that it refers to left before.
    fn leave(&mut self, tag: &FrameTag) -> bool {
        let (newest, seen) = self.newest.unwrap_or_else(|| (tag.seq.wrapping_sub(1), 0));
        // Frames between the two were given up. One that comes out of order is not counted again.
        let step = tag.seq.wrapping_sub(newest);
        if step == 0 || step > u32::MAX / 2 {
            return false;
        }
        let before = seen.checked_shl(step - 1).unwrap_or(0);
        let is_decodable = tag.refs.are_met(before, |_| false);
        self.newest = Some((tag.seq, before << 1 | u64::from(is_decodable)));
        self.number += u64::from(step);
        is_decodable
    }
}

/// A path at which viewers may connect, and the unit that is on its way to them.
#[derive(Debug)]
struct Viewers {
    state: Mutex<(ViewerPort, Assembly, Option<Codec>)>,
}

pub(super) fn open(to: &Destination, _: SocketAddr, _: usize) -> Opened {
    let path = to.path().unwrap_or_default();
    let port = ViewerPort::listen(Path::new(path), Layout::default())?;
    Ok(Box::new(Viewers { state: Mutex::new((port, Assembly::default(), None)) }))
}

const fn kind(kind: Kind) -> FrameKind {
    match kind {
        Kind::Intra => FrameKind::Key,
        Kind::Predicted => FrameKind::Predicted,
        Kind::Bidirectional => FrameKind::Bidirectional,
        Kind::Still => FrameKind::Still,
        Kind::Audio => FrameKind::Audio,
        Kind::Data => FrameKind::Data,
    }
}

impl Output for Viewers {
    fn send(&self, packet: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(packet) else { return false };
        let (port, assembly, codec) = &mut *self.state.lock();
        if codec.is_none() {
            let of = |codec: &Codec| codec.payload_type() == packet.header.payload_type;
            *codec = Codec::ALL.into_iter().find(of);
        }
        if let Some(tag) = assembly.push(&packet) {
            let at = Clock::shared().now();
            let left = Duration::from_millis(u64::from(tag.left_ms.unsigned_abs()));
            let deadline = match tag.left_ms {
                i16::MAX => Instant::MAX,
                0.. => at + left,
                _ => at - left,
            };
            let is_decodable = assembly.leave(&tag);
            let number = assembly.number;
            let info = FrameInfo { number, at, deadline, kind: kind(tag.kind), is_decodable };
            port.give(&info, &assembly.unit);
        }
        port.viewers() > 0
    }

    fn poll(&self) -> Result<Bytes, OutputError> {
        let (port, _, codec) = &mut *self.state.lock();
        port.poll(codec.map(Codec::encoding));
        Ok(Bytes(0))
    }

    fn waits(&self) -> Option<&'static str> {
        (self.state.lock().0.viewers() == 0).then_some("no viewer is connected")
    }
}

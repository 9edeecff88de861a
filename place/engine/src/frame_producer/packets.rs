//! The packets of a frame as sources give them to a frame producer: ready, or as shapes whose payloads are put where
//! they are sent from. They go into a pool, or into a payload that several receivers share.

use selvedge_data_stream::rtp::Packet;
use selvedge_data_stream::{DropReason, Frame, FrameWriter, PacketShape};

/// A frame's packets, before they are written.
pub(super) trait FramePackets {
    /// How many there are.
    fn count(&self) -> usize;

    /// Bytes that suffice for them in a payload.
    fn room(&self) -> usize;

    /// The length of each one's payload; `None` for one that is not RTP.
    fn lens(&self) -> impl Iterator<Item = Option<usize>>;

    /// Writes them into a payload of this room, as [`FrameWriter::write`] does.
    fn write(
        &mut self,
        writer: &mut FrameWriter,
        payload: &mut [u8],
        frame: &mut Frame,
        timestamp: u32,
    ) -> Result<usize, DropReason>;
}

impl FramePackets for &[&[u8]] {
    fn count(&self) -> usize {
        self.len()
    }

    fn room(&self) -> usize {
        FrameWriter::room(self)
    }

    fn lens(&self) -> impl Iterator<Item = Option<usize>> {
        self.iter().map(|packet| Some(Packet::parse(packet).ok()?.payload.len()))
    }

    fn write(
        &mut self,
        writer: &mut FrameWriter,
        payload: &mut [u8],
        frame: &mut Frame,
        timestamp: u32,
    ) -> Result<usize, DropReason> {
        writer.write(payload, frame, timestamp, self)
    }
}

/// Packets whose payloads `fill` puts into their places; false if it can't.
pub(super) struct Filled<'a, F> {
    pub(super) packets: &'a [PacketShape],
    pub(super) fill: F,
}

impl<F: FnMut(Vec<&mut [u8]>) -> bool> FramePackets for Filled<'_, F> {
    fn count(&self) -> usize {
        self.packets.len()
    }

    fn room(&self) -> usize {
        FrameWriter::room_for(self.packets)
    }

    fn lens(&self) -> impl Iterator<Item = Option<usize>> {
        self.packets.iter().map(|packet| Some(packet.payload.0 as usize))
    }

    fn write(
        &mut self,
        writer: &mut FrameWriter,
        payload: &mut [u8],
        frame: &mut Frame,
        timestamp: u32,
    ) -> Result<usize, DropReason> {
        let mut places = Vec::with_capacity(self.packets.len());
        let mut place = |at| places.push(at);
        let len = writer.write_headers(payload, frame, timestamp, self.packets, &mut place)?;
        if (self.fill)(places) { Ok(len) } else { Err(DropReason::Unusable) }
    }
}

//! Receivers whose output takes packets of its own, of a transport stream or of whole units: `source's thread ->
//! OtherPackets (one for each) -> frame producer`. They share the source with those that take its RTP packets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use selvedge_media::output::{OtherPackets, OutputKind, Program};
use selvedge_media::{MediaFrame, StreamInfo};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::Duration;

/// One of them.
pub(crate) struct PackedReceiver {
    frame_producer: FrameProducer,
    kind: &'static OutputKind,
    program: Arc<Program>,
    payload_max: usize,
    /// Made once the medium is known.
    packets: Option<OtherPackets>,
}

impl PackedReceiver {
    pub(crate) fn new(
        frame_producer: FrameProducer,
        (kind, program): (&'static OutputKind, Arc<Program>),
        payload_max: usize,
    ) -> Self {
        Self { frame_producer, kind, program, payload_max, packets: None }
    }

    /// Whether its stream has left its link.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.frame_producer.is_abandoned()
    }

    /// Ends a wait for room.
    pub(crate) fn set_stop_flag(&mut self, stop: &Arc<AtomicBool>) {
        self.frame_producer.set_stop_flag(Arc::clone(stop));
    }

    /// Enqueues a frame of this medium, whose number at the source is `number` and whose times count from `since`.
    pub(super) fn enqueue(
        &mut self,
        offer: FrameMetadata,
        frame: &MediaFrame<'_>,
        (info, number, since): (&StreamInfo, u32, Duration),
    ) -> Option<u32> {
        // The output itself reports a medium that it does not carry. A source in another process takes a moment to begin sending
        // units.
        if self.kind.check(info.codec).is_err() || frame.unit.is_empty() {
            return None;
        }
        let (program, payload_max) = (&self.program, self.payload_max);
        let packets = match &mut self.packets {
            Some(packets) => packets,
            none => none.insert(self.kind.packets(info, program, payload_max)?),
        };
        self.frame_producer.skip(number.wrapping_sub(self.frame_producer.next_number()));
        // A refused frame is counted by its frame producer, and by the link as a gap.
        self.frame_producer.enqueue(offer, &packets.packets(frame, since)).ok()
    }
}

//! The payloads that several receivers of one source share: the way of each to a receiver's engine, and what the engine reads
//! there. `frame_producer/fan_out.rs` writes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_data_memory::{Consumer, PayloadSpan, Producer, ring};
use selvedge_data_stream::rtp::{
    EXTENSION_LEN, HEADER_LEN, stamp_deadline, stamp_sequence, stamp_ssrc,
};
use selvedge_data_stream::{Frame, Spec};
use selvedge_units::{Bytes, Instant};

/// The memory of one frame's packets. It may be longer than they are.
pub(crate) type Payload = Vec<u8>;

/// The fields of a packet that are known only when it leaves.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Its RTP sequence number.
    pub sequence: u16,
    /// The deadline of its frame.
    pub deadline: Instant,
    /// When it leaves.
    pub now: Instant,
}

/// The beginning of a packet whose rest several receivers share. Empty for other packets.
#[derive(Clone, Copy, Debug)]
pub struct PacketHead {
    bytes: [u8; Self::LEN],
    len: usize,
}

impl PacketHead {
    /// The headers of a packet, which are all that differs from receiver to receiver.
    pub(crate) const LEN: usize = HEADER_LEN + EXTENSION_LEN;

    /// That of a packet which lies in one piece.
    pub const NONE: Self = Self { bytes: [0; Self::LEN], len: 0 };

    pub(crate) const fn of(bytes: [u8; Self::LEN]) -> Self {
        Self { bytes, len: Self::LEN }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The way of payloads to a receiver, beside the ring of its descriptors.
pub(crate) struct ReceiverRoom {
    /// As long as the ring of descriptors, and written before it.
    pub(crate) payloads: Producer<Arc<Payload>>,
    /// Bytes of payloads that the receiver holds, and may hold.
    pub(crate) held: Arc<AtomicU64>,
    pub(crate) most: Bytes,
    pub(crate) overhead: Bytes,
    pub(crate) payload_max: usize,
}

/// Both ends of the way of payloads to a receiver.
pub(crate) fn shared(
    spec: &Spec,
    (overhead, payload_max): (Bytes, usize),
    ssrc: u32,
) -> (ReceiverRoom, SharedPayloads) {
    let (payloads, came) = ring(spec.ring as usize);
    let held = Arc::<AtomicU64>::default();
    let room =
        ReceiverRoom { payloads, held: Arc::clone(&held), most: spec.pool, overhead, payload_max };
    let (payloads, free) = (Vec::new(), Vec::new());
    (room, SharedPayloads { came, payloads, free, count: 0, held, ssrc })
}

/// The engine's end of one receiver: the payloads that it holds.
pub(crate) struct SharedPayloads {
    came: Consumer<Arc<Payload>>,
    /// Those of the frames that the link has, each with the number of its span.
    payloads: Vec<Option<(u64, Arc<Payload>)>>,
    /// Free places of these.
    free: Vec<u32>,
    /// Frames that came.
    count: u64,
    pub(crate) held: Arc<AtomicU64>,
    ssrc: u32,
}

impl SharedPayloads {
    /// Takes the payload of a frame that was dequeued; the frame's span then finds it.
    pub(crate) fn pop(&mut self, frame: Frame) -> Frame {
        // The source pushed the payload before the frame.
        let Some(payload) = self.came.pop() else { return frame };
        let place = self.free.pop().unwrap_or_else(|| {
            self.payloads.push(None);
            self.payloads.len() as u32 - 1
        });
        // No two frames have the same span, so that no cursor is kept from one to the next.
        let start = self.count << 32 | u64::from(place);
        self.count = (self.count + 1) % (1 << 31);
        self.payloads[place as usize] = Some((start, payload));
        Frame { payload: PayloadSpan { start, ..frame.payload }, ..frame }
    }

    fn find(&self, span: PayloadSpan) -> Option<&Arc<Payload>> {
        let (start, payload) = self.payloads.get(span.start as u32 as usize)?.as_ref()?;
        (*start == span.start).then_some(payload)
    }

    pub(crate) fn bytes(&self, span: PayloadSpan) -> Option<&[u8]> {
        self.find(span)?.get(..span.len as usize)
    }

    /// The headers of a packet as this receiver gets them.
    pub(crate) fn head(
        &self,
        span: PayloadSpan,
        (at, len): (usize, usize),
        stamp: Stamp,
    ) -> PacketHead {
        let packet = self.bytes(span).and_then(|bytes| bytes.get(at..at + len));
        let Some(head) = packet.and_then(|packet| packet.first_chunk()) else {
            return PacketHead::NONE;
        };
        let mut head: [u8; PacketHead::LEN] = *head;
        stamp_ssrc(&mut head, self.ssrc);
        stamp_sequence(&mut head, stamp.sequence);
        stamp_deadline(&mut head, stamp.deadline, stamp.now);
        PacketHead::of(head)
    }

    pub(crate) fn release(&mut self, span: PayloadSpan) {
        let Some(payload) = self.find(span) else { return };
        self.held.fetch_sub(payload.len() as u64, Ordering::Relaxed);
        let place = span.start as u32;
        self.payloads[place as usize] = None;
        self.free.push(place);
    }
}

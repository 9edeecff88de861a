//! A poller and its frame consumers, unchanged except that they set behind the ring the values that only a
//! trace states, and record the deadline by which a packet leaves.

use std::vec::IntoIter;

use selvedge_data_memory::PayloadSpan;
use selvedge_data_stream::{Counts, Fate, Frame, PacketCursor};
use selvedge_units::{Bytes, Instant};

use super::record::EngineRecorder;
use crate::engine::{FrameConsumer, NewStream, PacketHead, Poller, Stamp};
use selvedge_os::wake::Woken;

/// A poller whose frame consumers get the trace's values.
pub(super) struct TracePoller<P>(P);

/// A frame consumer that gets the trace's values.
pub(super) struct TraceConsumer<O> {
    frame_consumer: O,
    stream: usize,
    first_deadline: Option<Instant>,
    /// The sizes of future frames.
    sizes: IntoIter<Bytes>,
    seen: EngineRecorder,
}

impl<P> TracePoller<P> {
    pub(super) const fn new(port: P) -> Self {
        Self(port)
    }
}

/// A stream with the stated deadline of its first frame and the sizes of its frames.
pub(super) fn trace_stream<O: FrameConsumer>(
    new: NewStream<O>,
    stream: usize,
    first_deadline: Option<Instant>,
    sizes: Vec<Bytes>,
    seen: EngineRecorder,
) -> NewStream<TraceConsumer<O>> {
    let NewStream { spec, frame_consumer, carried } = new;
    let frame_consumer =
        TraceConsumer { frame_consumer, stream, first_deadline, sizes: sizes.into_iter(), seen };
    NewStream { spec, frame_consumer, carried }
}

impl<O: FrameConsumer> FrameConsumer for TraceConsumer<O> {
    fn pop(&mut self, now: Instant) -> Option<Frame> {
        let frame = self.frame_consumer.pop(now)?;
        let deadline = self.first_deadline.take();
        let size = self.sizes.next().unwrap_or(frame.size);
        Some(Frame { deadline, size, ..frame })
    }

    fn take(&mut self, now: Instant, read: &mut dyn FnMut(&Frame, &[u8])) -> bool {
        self.frame_consumer.take(now, read)
    }

    fn is_empty(&mut self) -> bool {
        self.frame_consumer.is_empty()
    }

    fn packet(&self, payload: PayloadSpan, cursor: &mut PacketCursor) -> Option<(usize, usize)> {
        self.frame_consumer.packet(payload, cursor)
    }

    fn stamp(&mut self, payload: PayloadSpan, packet: (usize, usize), stamp: Stamp) -> PacketHead {
        self.seen.packet_left(self.stream, stamp.deadline);
        self.frame_consumer.stamp(payload, packet, stamp)
    }

    fn bytes(&self, payload: PayloadSpan, packet: (usize, usize)) -> &[u8] {
        self.frame_consumer.bytes(payload, packet)
    }

    fn settled(&mut self, frame: &Frame, fate: Fate) {
        self.frame_consumer.settled(frame, fate);
    }

    const REPORTS_COUNTS: bool = O::REPORTS_COUNTS;

    fn report_counts(&mut self, counts: &Counts) {
        self.frame_consumer.report_counts(counts);
    }
}

impl<P: Poller> Poller for TracePoller<P> {
    type FrameConsumer = TraceConsumer<P::FrameConsumer>;

    fn ready(&mut self, look: &mut dyn FnMut(usize)) {
        self.0.ready(look);
    }

    fn wait_until(&mut self, at: Instant) -> Woken {
        self.0.wait_until(at)
    }

    fn attached(&mut self, number: usize, frame_consumer: &mut Self::FrameConsumer) {
        self.0.attached(number, &mut frame_consumer.frame_consumer);
    }

    fn detached(&mut self, number: usize) {
        self.0.detached(number);
    }
}

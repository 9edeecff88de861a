//! A port and its outlets as they are, but that what a trace alone can state is put in behind the
//! ring, and that the deadline by which a packet leaves is told.

use std::vec::IntoIter;

use selvedge_data_memory::PayloadSpan;
use selvedge_data_stream::{Frame, PacketCursor};
use selvedge_units::{Bytes, Instant};

use super::watch::Seen;
use crate::engine::{NewStream, Outlet, Port};
use selvedge_data_stream::Counts;
use selvedge_os::wake::Woken;

/// A port whose outlets are told what the trace states.
pub(super) struct TracePort<P>(P);

/// A stream's end that is told what the trace states.
pub(super) struct TraceOutlet<O> {
    outlet: O,
    stream: usize,
    first_deadline: Option<Instant>,
    /// Of the frames to come.
    sizes: IntoIter<Bytes>,
    seen: Seen,
}

impl<P> TracePort<P> {
    pub(super) const fn new(port: P) -> Self {
        Self(port)
    }
}

/// A stream, its first frame's deadline and its frames' sizes being these.
pub(super) fn told<O: Outlet>(
    new: NewStream<O>,
    stream: usize,
    first_deadline: Option<Instant>,
    sizes: Vec<Bytes>,
    seen: Seen,
) -> NewStream<TraceOutlet<O>> {
    let NewStream { spec, outlet, carried } = new;
    let outlet = TraceOutlet { outlet, stream, first_deadline, sizes: sizes.into_iter(), seen };
    NewStream { spec, outlet, carried }
}

impl<O: Outlet> Outlet for TraceOutlet<O> {
    fn pop(&mut self, now: Instant) -> Option<Frame> {
        let frame = self.outlet.pop(now)?;
        let deadline = self.first_deadline.take();
        let size = self.sizes.next().unwrap_or(frame.size);
        Some(Frame { deadline, size, ..frame })
    }

    fn is_empty(&mut self) -> bool {
        self.outlet.is_empty()
    }

    fn packet(&self, payload: PayloadSpan, cursor: &mut PacketCursor) -> Option<(usize, usize)> {
        self.outlet.packet(payload, cursor)
    }

    fn stamp(
        &mut self,
        payload: PayloadSpan,
        packet: (usize, usize),
        deadline: Instant,
        now: Instant,
    ) {
        self.seen.leaves(self.stream, deadline);
        self.outlet.stamp(payload, packet, deadline, now);
    }

    fn bytes(&self, payload: PayloadSpan, packet: (usize, usize)) -> &[u8] {
        self.outlet.bytes(payload, packet)
    }

    fn settled(&mut self, frame: &Frame) {
        self.outlet.settled(frame);
    }

    const COUNTS: bool = O::COUNTS;

    fn counted(&mut self, counts: &Counts) {
        self.outlet.counted(counts);
    }
}

impl<P: Port> Port for TracePort<P> {
    type Outlet = TraceOutlet<P::Outlet>;

    fn ready(&mut self, look: &mut dyn FnMut(usize)) {
        self.0.ready(look);
    }

    fn wait_until(&mut self, at: Instant) -> Woken {
        self.0.wait_until(at)
    }

    fn attached(&mut self, number: usize, outlet: &mut Self::Outlet) {
        self.0.attached(number, &mut outlet.outlet);
    }

    fn detached(&mut self, number: usize) {
        self.0.detached(number);
    }
}

//! The coprocessor's way of a frame in the unit-slot model: a trace's arrivals are written by
//! producers into shared segments, come out at the coprocessor's end by the same checks as ever,
//! and are decided by the scheduler, one a slot. The events are compared, byte for byte, with those
//! of every other placement.
//!
//! A frame's payload is its one packet, which holds the size that the trace gives it.

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge_host::engine::Outlet;
use selvedge_host::inlet::Descent;
use selvedge_sched::replay::{Arrivals, Event, FrameRef, Happening, Trace};
use selvedge_sched::{Counters, Discipline, Head, Scheduler, StreamIndex, Verdict};
use selvedge_stream::{
    Descriptor, Frame, Kind, PACKET_HEADER_LEN, PacketCursor, PacketWriter, PoolWriter, Window,
};
use selvedge_units::{Bytes, Instant};

use crate::inlet::SharedDescent;
use crate::outlet::{Limits, SharedOutlet};
use crate::segment::{Doorbell, SegmentError, StreamSegment};

/// What a backlogged queue's frames have for a size.
const SIZE: u64 = 1000;
/// Slots of a ring: what is behind it waits with its producer.
const RING: u32 = 8;

/// The producer's side of a stream.
struct Source {
    ring: SharedDescent,
    pool: PoolWriter,
    /// What waits for room: arrival and size.
    waiting: VecDeque<(Instant, u64)>,
    backlogged: bool,
    pushed: u32,
}

/// The coprocessor's side of it.
struct Lane {
    outlet: SharedOutlet,
    first_deadline: Option<Instant>,
    /// The head, while the scheduler has one.
    head: Option<Frame>,
    seq: u64,
}

/// A replay through shared memory.
pub struct UnitSlots<'a> {
    trace: &'a Trace,
    sched: Scheduler,
    sources: Vec<Source>,
    lanes: Vec<Lane>,
    order: Vec<usize>,
    arrived: usize,
}

impl<'a> UnitSlots<'a> {
    /// A replay at its beginning.
    ///
    /// # Errors
    /// [`SegmentError`] if there is no memory to share.
    pub fn new(trace: &'a Trace) -> Result<Self, SegmentError> {
        let mut sched = match trace.discipline {
            Discipline::Hwfq => Scheduler::with_tree(&trace.tree),
            discipline => Scheduler::new(discipline),
        };
        let bell = Arc::new(Doorbell::create()?);
        let backlogged = trace.arrivals == Arrivals::Backlogged;
        let (mut sources, mut lanes) = (Vec::new(), Vec::new());
        for (bit, stream) in trace.streams.iter().enumerate() {
            sched.add(&stream.contract);
            let segment = StreamSegment::create("unit slots", RING, Bytes(1024))?;
            let limits = Limits { packet: 64, overhead: 0 };
            let bit = bit % crate::segment::BELL_STREAMS;
            let outlet = SharedOutlet::new(&segment, true, limits, (Arc::clone(&bell), bit))?;
            let ring = SharedDescent::new(&segment, Arc::clone(&bell), bit)?;
            let pool = PoolWriter::within(&segment.region, segment.pool_at(), segment.pool())?;
            sources.push(Source { ring, pool, waiting: VecDeque::new(), backlogged, pushed: 0 });
            let first_deadline = stream.first_deadline;
            lanes.push(Lane { outlet, first_deadline, head: None, seq: 0 });
        }
        let listed: &[_] = match &trace.arrivals {
            Arrivals::Backlogged => &[],
            Arrivals::Listed(listed) => listed,
        };
        let mut order: Vec<usize> = (0..listed.len()).collect();
        order.sort_by_key(|&place| listed[place].at);
        let mut new = Self { trace, sched, sources, lanes, order, arrived: 0 };
        for stream in 0..new.lanes.len() {
            new.bring_up(stream, Instant::ZERO);
        }
        Ok(new)
    }

    /// Replays all slots; `tell` gets each event.
    pub fn run(&mut self, mut tell: impl FnMut(&Event)) {
        for slot in 0..self.trace.ticks {
            let t = Instant(slot);
            self.admit(t);
            for happening in self.expire(t) {
                tell(&Event { t, happening });
            }
            let happening = self.decide(t);
            tell(&Event { t, happening });
        }
    }

    /// The streams' counters and current windows, in the order of the trace.
    pub fn totals(&self) -> impl Iterator<Item = (Counters, Window)> {
        (0..)
            .take(self.lanes.len())
            .map(StreamIndex)
            .map(|stream| (self.sched.counters(stream), self.sched.window(stream, Kind::Data)))
    }

    /// How many descriptors were refused, of all streams.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.outlet.refused().read().total()).sum()
    }

    fn admit(&mut self, t: Instant) {
        let Arrivals::Listed(listed) = &self.trace.arrivals else { return };
        while let Some(&place) = self.order.get(self.arrived) {
            let arrival = listed[place];
            if arrival.at > t {
                break;
            }
            self.arrived += 1;
            let stream = arrival.stream.0 as usize;
            self.sources[stream].waiting.push_back((arrival.at, arrival.size.0));
            if self.lanes[stream].head.is_none() {
                self.bring_up(stream, t);
            }
        }
    }

    /// Makes the next frame of a stream its head, if there is one.
    fn bring_up(&mut self, stream: usize, now: Instant) {
        self.sources[stream].fill();
        let lane = &mut self.lanes[stream];
        let Some(frame) = lane.outlet.pop(now) else { return };
        let size = lane.size(&frame);
        lane.head = Some(frame);
        let deadline = lane.first_deadline.take();
        let head = Head { deadline, size: Bytes(size), ..Head::arrived(frame.arrival) };
        self.sched.push_head(StreamIndex(stream as u32), head);
    }

    fn leave(&mut self, stream: usize, now: Instant) {
        let lane = &mut self.lanes[stream];
        if let Some(frame) = lane.head.take() {
            lane.outlet.settled(&frame);
        }
        lane.seq += 1;
        self.bring_up(stream, now);
    }

    /// Expires what is due. The scheduler goes by deadline, a trace by stream.
    fn expire(&mut self, t: Instant) -> Vec<Happening> {
        let mut told: Vec<(u32, Happening)> = Vec::new();
        while let Some(expiry) = self.sched.poll_expired(t) {
            let stream = expiry.stream;
            let at = stream.0 as usize;
            let mut frame = FrameRef { stream, seq: self.lanes[at].seq, deadline: expiry.deadline };
            if expiry.verdict == Verdict::Dropped {
                told.push((stream.0, Happening::Drop(frame)));
                self.leave(at, t);
                continue;
            }
            for _ in 0..expiry.misses {
                told.push((stream.0, Happening::Miss(frame)));
                frame.deadline += self.trace.streams[at].contract.period;
            }
        }
        // Stable, so that those of one stream stay in their order.
        told.sort_by_key(|(stream, _)| *stream);
        told.into_iter().map(|(_, happening)| happening).collect()
    }

    fn decide(&mut self, t: Instant) -> Happening {
        let Some(stream) = self.sched.choose(t) else { return Happening::Idle };
        let served = self.sched.serve(stream);
        let at = stream.0 as usize;
        let seq = self.lanes[at].seq;
        self.leave(at, t);
        let frame = FrameRef { stream, seq, deadline: served.deadline };
        Happening::Send { frame, late: served.late }
    }
}

impl Source {
    /// Writes what waits into the segment, as far as there is room.
    fn fill(&mut self) {
        while self.ring.free() > 0 {
            let next = if self.backlogged {
                Some((Instant::ZERO, SIZE))
            } else {
                self.waiting.front().copied()
            };
            let Some((arrival, size)) = next else { return };
            let Ok(mut room) = self.pool.reserve(PACKET_HEADER_LEN + 8) else { return };
            let mut writer = PacketWriter::new(room.bytes_mut());
            if writer.push(&size.to_ne_bytes()).is_err() {
                return;
            }
            let span = room.commit();
            let descriptor = Descriptor {
                seq: self.pushed,
                packets: 1,
                kind: Kind::Data as u8,
                len: span.len,
                start: span.start,
                arrival: arrival.0,
                ..Descriptor::default()
            };
            // There was room, and nobody else pushes.
            let _ = self.ring.push_descriptor(descriptor);
            self.pushed = self.pushed.wrapping_add(1);
            if !self.backlogged {
                self.waiting.pop_front();
            }
        }
    }
}

impl Lane {
    /// The size that a frame's only packet holds.
    fn size(&self, frame: &Frame) -> u64 {
        let packet = self.outlet.packet(frame.payload, &mut PacketCursor::default());
        let bytes = packet.map(|packet| self.outlet.bytes(frame.payload, packet));
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(SIZE, u64::from_ne_bytes)
    }
}

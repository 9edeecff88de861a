//! The path of a frame into a link: the source writes the packets of one stream once into its pool, puts the
//! frame's descriptor into its ring, and wakes the engine.
//!
//! The source's thread owns a [`FrameProducer`]; the engine's thread owns the [`FrameConsumer`] at the other
//! end. They share only the ring, the pool, one bit that means "look here", and counters. (NI coprocessors,
//! section 2.2.3: with a circular queue for each stream, the producers and the scheduler need no
//! synchronisation.)

pub mod fan_out;
mod packets;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use selvedge_control_config::STREAMLETS_MAX;
use selvedge_data_memory::{PayloadSpan, PoolError, PoolWriter, Producer};
use selvedge_data_stream::rtp;
use selvedge_data_stream::{
    Contract, DropReason, Frame, FrameWriter, GroupTracker, Kind, PacketShape, References, Spec,
    WhenFull,
};
use selvedge_units::{Bytes, Duration, Instant};

use self::fan_out::{FanOut, FanOutWriter, ReceiverEnd};
use self::packets::{Filled, FramePackets};
use crate::extension::Stage;
use crate::link_steps::LinkSteps;
use selvedge_os::clock::Clock;
use selvedge_os::wake::Waker;

/// The largest RTP payload that fits a packet of `mtu` with our headers.
#[must_use]
pub const fn payload_max(mtu: Bytes, overhead: Bytes) -> usize {
    (mtu.0 as usize).saturating_sub(overhead.0 as usize + rtp::packet_len(0))
}

/// The counters of a frame producer.
#[derive(Debug, Default)]
pub struct FrameProducerCounters {
    /// Frames that arrived, whatever their fate.
    pub frames: AtomicU64,
    /// When the last one arrived, in nanoseconds of the run's clock; 0 before the first.
    pub last_arrival: AtomicU64,
    /// Frames that found no room, or whose packets were not RTP.
    pub refused: AtomicU64,
}

impl FrameProducerCounters {
    pub(crate) fn arrived(&self, at: Instant) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.last_arrival.store(at.0.max(1), Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// When the newest frames of a stream arrived, by number: for receivers on this host that judge deadlines by
/// the sender's own clock. Fixed memory; written by the source, read by any thread.
#[derive(Debug)]
pub struct Arrivals(Box<[(AtomicU64, AtomicU64)]>);

impl Default for Arrivals {
    /// Room for the newest 8192 frames.
    fn default() -> Self {
        Self((0..8192).map(|_| Default::default()).collect())
    }
}

impl Arrivals {
    fn record(&self, seq: u32, arrival: Instant) {
        let (tag, at) = &self.0[seq as usize % self.0.len()];
        tag.store(0, Ordering::Release);
        at.store(arrival.0, Ordering::Release);
        tag.store(u64::from(seq) + 1, Ordering::Release);
    }

    /// When the frame with this number arrived, if it is among the newest.
    #[must_use]
    pub fn of(&self, seq: u32) -> Option<Instant> {
        let (tag, at) = &self.0[seq as usize % self.0.len()];
        let before = tag.load(Ordering::Acquire);
        let arrival = Instant(at.load(Ordering::Acquire));
        // A frame more than 8191 numbers newer may be written meanwhile; the tag shows it.
        let same = before == u64::from(seq) + 1 && tag.load(Ordering::Acquire) == before;
        same.then_some(arrival)
    }
}

/// The streams that may have frames in their rings: one bit for each, so that the engine need not look at a
/// thousand rings to find the one with a frame.
#[derive(Debug)]
pub struct Ready(Box<[AtomicU64]>);

impl Ready {
    /// Bits for this many streams.
    #[must_use]
    pub fn new(streams: usize) -> Arc<Self> {
        Arc::new(Self((0..streams.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()))
    }

    fn set(&self, stream: usize) {
        // Release: the thread that takes the bit sees the frames that were enqueued before.
        self.0[stream / 64].fetch_or(1 << (stream % 64), Ordering::Release);
    }

    /// Calls `look` for each stream whose bit was set, and clears the bits.
    pub fn take(&self, mut look: impl FnMut(usize)) {
        for (n, word) in self.0.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                look(n * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

/// The description of a frame that a source gives beside its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameMetadata {
    /// Its meaning for other frames.
    pub kind: Kind,
    /// Whether others may refer to it.
    pub referenced: bool,
    /// Whether nothing after it refers to anything before it.
    pub closes: bool,
    /// The frames to which it refers, if known; otherwise derived from the kinds.
    pub refs: Option<References>,
    /// Media time in the payload's clock.
    pub timestamp: u32,
}

impl FrameMetadata {
    /// The metadata of a frame that refers to no other and that no other refers to.
    #[must_use]
    pub const fn alone(kind: Kind) -> Self {
        Self { kind, referenced: false, closes: true, refs: None, timestamp: 0 }
    }
}

/// The queue for descriptors: a ring, and a wake-up for the engine that empties it.
pub trait FrameQueue: Send {
    /// The number of frames that it takes now.
    fn free(&self) -> usize;
    /// Enqueues a descriptor and wakes the engine; false if there was no room.
    fn push(&mut self, frame: Frame) -> bool;
    /// Wakes the engine that empties the ring.
    fn notify(&self);
    /// Whether no engine will ever empty it again.
    fn is_abandoned(&self) -> bool;
}

/// A ring within this process.
pub(crate) struct LocalFrameQueue {
    pub(crate) ring: Producer<Frame>,
    pub(crate) waker: Waker,
    pub(crate) ready: Arc<Ready>,
    pub(crate) stream: usize,
}

impl FrameQueue for LocalFrameQueue {
    fn free(&self) -> usize {
        self.ring.free()
    }

    fn push(&mut self, frame: Frame) -> bool {
        let pushed = self.ring.push(frame).is_ok();
        self.notify();
        pushed
    }

    fn notify(&self) {
        self.ready.set(self.stream);
        self.waker.wake();
    }

    fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }
}

/// The parts of a frame producer, beside its ring and pool.
#[derive(Clone, Debug)]
pub struct FrameProducerParams {
    /// The clock for arrivals: the engine's.
    pub clock: Clock,
    /// The source's behaviour when there is no room.
    pub full: WhenFull,
    /// Bytes of headers below RTP that each packet takes on the wire.
    pub overhead: Bytes,
    /// The largest RTP payload.
    pub payload_max: usize,
    /// The RTP source identifier.
    pub ssrc: u32,
}

impl FrameProducerParams {
    /// For a stream that no stack carries, on a link of this MTU.
    #[must_use]
    pub const fn new(clock: Clock, spec: &Spec, mtu: Bytes, ssrc: u32) -> Self {
        let overhead = rtp::ip_udp(spec.to);
        Self { clock, full: spec.full, overhead, payload_max: payload_max(mtu, overhead), ssrc }
    }

    /// The same for packets of at most this size, which a carrier transports with this overhead.
    #[must_use]
    pub const fn carried(self, overhead: Bytes, packet_max: Bytes) -> Self {
        Self { overhead, payload_max: payload_max(packet_max, Bytes(0)), ..self }
    }
}

/// Where frames go.
enum Room {
    /// Into a pool and a ring of the stream's own.
    Own { ring: Box<dyn FrameQueue>, pool: PoolWriter },
    /// Into memory that several receivers share, each with its own ring.
    Shared(FanOutWriter),
}

/// The source's end of a stream.
pub struct FrameProducer {
    room: Room,
    clock: Clock,
    full: WhenFull,
    writer: FrameWriter,
    counters: Arc<FrameProducerCounters>,
    arrivals: Option<Arc<Arrivals>>,
    stop: Arc<AtomicBool>,
    source_stops: Option<Arc<AtomicBool>>,
    group: GroupTracker,
    seq: u32,
    /// The next frame's number of each streamlet of a slot, as far as any has sent one.
    streamlets: Vec<u32>,
    /// The steps of the link, and the stream's number there.
    steps: Option<(Arc<LinkSteps>, usize)>,
}

impl FrameProducer {
    /// A frame producer that writes into this pool and ring. Once `stop` is set, it no longer waits for room.
    #[must_use]
    pub fn new(
        params: &FrameProducerParams,
        ring: Box<dyn FrameQueue>,
        pool: PoolWriter,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self::with_room(params, Room::Own { ring, pool }, stop)
    }

    /// A frame producer for this receiver, and those that join it.
    pub(crate) fn fan_out(
        params: &FrameProducerParams,
        end: ReceiverEnd,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self::with_room(params, Room::Shared(FanOutWriter::new(vec![end])), stop)
    }

    /// Another one of the same source, which receivers may join; none has yet.
    #[must_use]
    pub fn without_receivers(&self) -> Self {
        let params = FrameProducerParams {
            clock: self.clock,
            full: WhenFull::Drop,
            overhead: Bytes(0),
            payload_max: 0,
            ssrc: 0,
        };
        Self::with_room(&params, Room::Shared(FanOutWriter::new(Vec::new())), Arc::default())
    }

    fn with_room(params: &FrameProducerParams, room: Room, stop: Arc<AtomicBool>) -> Self {
        Self {
            room,
            clock: params.clock,
            full: params.full,
            writer: FrameWriter::new(params.ssrc, params.overhead, params.payload_max),
            counters: Arc::new(FrameProducerCounters::default()),
            arrivals: None,
            stop,
            source_stops: None,
            group: GroupTracker::default(),
            seq: 0,
            streamlets: Vec::new(),
            steps: None,
        }
    }

    /// The receivers of its frames, which others may join; `None` if its stream shares its frames with none.
    #[must_use]
    pub fn receivers(&self) -> Option<FanOut> {
        match &self.room {
            Room::Own { .. } => None,
            Room::Shared(shared) => Some(shared.receivers()),
        }
    }

    /// Lets the link's steps decide on each frame as it arrives, before its payload is written. A frame that a
    /// step discards counts as one that found no room. `stream` is the stream's number on the link.
    pub fn set_steps(&mut self, steps: Arc<LinkSteps>, stream: usize, contract: Contract) {
        steps.add(stream, contract);
        match &self.room {
            Room::Own { .. } => self.steps = Some((steps, stream)),
            Room::Shared(shared) => shared.receivers().set_steps(&steps, stream),
        }
    }

    /// The counters, for observers.
    #[must_use]
    pub fn counters(&self) -> Arc<FrameProducerCounters> {
        let shared = self.receivers().and_then(|receivers| receivers.first_counters());
        shared.unwrap_or_else(|| Arc::clone(&self.counters))
    }

    /// Adds a second flag that ends the wait for room. A slow link, or one whose other end is gone, then does
    /// not block a source that is to end.
    pub fn set_stop_flag(&mut self, stop: Arc<AtomicBool>) {
        self.source_stops = Some(stop);
    }

    /// Records when each frame arrives, from now on.
    pub fn record_arrivals(&mut self) -> Arc<Arrivals> {
        Arc::clone(self.arrivals.get_or_insert_default())
    }

    /// Whether what took its frames is gone. Never while receivers may join it.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        match &self.room {
            Room::Own { ring, .. } => ring.is_abandoned(),
            Room::Shared(_) => false,
        }
    }

    /// The number of the next frame.
    #[must_use]
    pub const fn next_number(&self) -> u32 {
        self.seq
    }

    /// Leaves out the numbers of frames that never came, so that those behind them refer to the right ones.
    pub const fn skip(&mut self, frames: u32) {
        self.seq = self.seq.wrapping_add(frames);
    }

    /// Takes a frame that arrives now, as RTP packets ready to send. Their sequence numbers and source
    /// identifier are replaced by the stream's own, so that these continue without a gap over restarts.
    /// Returns its number, or why it was dropped; a dropped frame leaves a gap in the numbers.
    ///
    /// # Errors
    /// [`DropReason::Full`] if there was no room (and the stream does not wait for it), or a step discarded it,
    /// [`DropReason::Unusable`] if a packet is not RTP, is too large, or the pool could never hold the frame.
    pub fn enqueue(&mut self, offer: FrameMetadata, packets: &[&[u8]]) -> Result<u32, DropReason> {
        let arrival = self.clock.now();
        self.enqueue_at(arrival, offer, packets)
    }

    /// The same for a frame that arrived at a stated instant.
    ///
    /// # Errors
    /// As [`FrameProducer::enqueue`].
    pub fn enqueue_at(
        &mut self,
        arrival: Instant,
        offer: FrameMetadata,
        packets: &[&[u8]],
    ) -> Result<u32, DropReason> {
        self.enqueue_packets(arrival, offer, packets)
    }

    /// Takes a frame that arrives now, whose packets' payloads `fill` puts into their places: it gets the places, in
    /// order. So what lies in a file is read to where it is sent from.
    ///
    /// # Errors
    /// As [`FrameProducer::enqueue`]; [`DropReason::Unusable`] as well if `fill` returns false.
    pub fn enqueue_filled(
        &mut self,
        offer: FrameMetadata,
        packets: &[PacketShape],
        fill: impl FnMut(Vec<&mut [u8]>) -> bool,
    ) -> Result<u32, DropReason> {
        self.enqueue_packets(self.clock.now(), offer, Filled { packets, fill })
    }

    fn enqueue_packets(
        &mut self,
        arrival: Instant,
        offer: FrameMetadata,
        packets: impl FramePackets,
    ) -> Result<u32, DropReason> {
        let frame = self.frame(arrival, &offer, packets.count());
        self.place(frame, offer.timestamp, packets)
            .map(|()| frame.seq)
            .inspect_err(|_| self.counters.refused())
    }

    /// The next frame, before its packets are written.
    fn frame(&mut self, arrival: Instant, offer: &FrameMetadata, packets: usize) -> Frame {
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        let inferred = self.group.push(offer.kind, offer.referenced, offer.closes);
        let refs = offer.refs.unwrap_or(inferred);
        self.counters.arrived(arrival);
        if let Some(arrivals) = &self.arrivals {
            arrivals.record(seq, arrival);
        }
        Frame {
            seq,
            kind: offer.kind,
            referenced: offer.referenced,
            refs,
            packets: u16::try_from(packets).unwrap_or(u16::MAX),
            size: Bytes(0),
            arrival,
            deadline: None,
            payload: PayloadSpan::default(),
        }
    }

    /// Takes a frame of one streamlet of a slot, at a stated instant; nothing refers to it. Memory: 4 bytes
    /// for each streamlet up to the highest number. Returns its number among the streamlet's frames.
    ///
    /// # Errors
    /// As [`FrameProducer::enqueue`]; [`DropReason::Unusable`] for a number of [`STREAMLETS_MAX`] or more.
    pub fn enqueue_for(
        &mut self,
        streamlet: u32,
        arrival: Instant,
        timestamp: u32,
        packets: &[&[u8]],
    ) -> Result<u32, DropReason> {
        if streamlet >= STREAMLETS_MAX {
            return Err(DropReason::Unusable);
        }
        let at = streamlet as usize;
        if self.streamlets.len() <= at {
            self.streamlets.resize(at + 1, 0);
        }
        std::mem::swap(&mut self.seq, &mut self.streamlets[at]);
        let own = self.writer.set_ssrc(streamlet);
        let offer = FrameMetadata { timestamp, ..FrameMetadata::alone(Kind::Data) };
        let enqueued = self.enqueue_at(arrival, offer, packets);
        self.writer.set_ssrc(own);
        std::mem::swap(&mut self.seq, &mut self.streamlets[at]);
        enqueued
    }

    /// Puts a frame into pool and ring, as soon as there is room if the stream waits for room.
    fn place(
        &mut self,
        frame: Frame,
        timestamp: u32,
        mut packets: impl FramePackets,
    ) -> Result<(), DropReason> {
        if !(1..=usize::from(u16::MAX)).contains(&packets.count()) {
            return Err(DropReason::Unusable);
        }
        if let Room::Shared(shared) = &mut self.room {
            return shared.enqueue(self.clock, frame, timestamp, &mut packets);
        }
        if let Some((steps, stream)) = &self.steps
            && steps.is_used()
            && let Some(size) = self.writer.size(packets.lens())
            && steps.run(Stage::Arrival, self.clock, *stream, &Frame { size, ..frame })
        {
            return Err(DropReason::Full);
        }
        loop {
            match self.try_enqueue(frame, timestamp, &mut packets) {
                Err(DropReason::Full) if self.full == WhenFull::Block => self.wait_for_room()?,
                done => return done,
            }
        }
    }

    fn try_enqueue(
        &mut self,
        mut frame: Frame,
        timestamp: u32,
        packets: &mut impl FramePackets,
    ) -> Result<(), DropReason> {
        let Room::Own { ring, pool } = &mut self.room else { return Err(DropReason::Unusable) };
        let mut reservation = pool.reserve(packets.room()).map_err(|error| match error {
            PoolError::Full { .. } => DropReason::Full,
            PoolError::TooLarge { .. } => DropReason::Unusable,
        })?;
        if ring.free() == 0 {
            return Err(DropReason::Full);
        }
        let payload = reservation.bytes_mut();
        let written = packets.write(&mut self.writer, payload, &mut frame, timestamp)?;
        reservation.truncate(written);
        frame.payload = reservation.commit();
        // There was room before, and only this thread uses it up.
        if ring.push(frame) { Ok(()) } else { Err(DropReason::Full) }
    }

    /// Lets the engine make room, or returns why it will not.
    fn wait_for_room(&self) -> Result<(), DropReason> {
        let Room::Own { ring, .. } = &self.room else { return Err(DropReason::Removed) };
        let is_stopped = |stop: &Arc<AtomicBool>| stop.load(Ordering::Relaxed);
        if is_stopped(&self.stop)
            || self.source_stops.as_ref().is_some_and(is_stopped)
            || ring.is_abandoned()
        {
            return Err(DropReason::Removed);
        }
        ring.notify();
        self.clock.sleep_until(self.clock.now() + Duration::from_millis(1));
        Ok(())
    }
}

//! The engine's end of a stream, and how the engine learns that frames arrived: the two parts in which
//! placements differ. All else is the same code.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use selvedge_control_config::LinkConfig;
use selvedge_data_memory::{Consumer, PayloadSpan, PoolReader, pool, ring};
use selvedge_data_stream::rtp::{stamp_deadline, stamp_sequence};
use selvedge_data_stream::{Counts, Fate, Frame, PACKET_HEADER_LEN, PacketCursor};
use selvedge_units::{Bytes, Instant};

use super::carrier::StreamCarrier;
use super::{NewStream, StreamParams, spin};
use crate::frame_producer::fan_out::ReceiverEnd;
use crate::frame_producer::{FrameProducer, FrameProducerParams, LocalFrameQueue, Ready};
pub use crate::shared_payloads::{PacketHead, Stamp};
use crate::shared_payloads::{SharedPayloads, shared};
use selvedge_os::clock::Clock;
use selvedge_os::wake::{Sleeper, Waker, Woken, sleeper};

/// The engine's end of a stream: it dequeues frames and reads their packets.
pub trait FrameConsumer: Send {
    /// Dequeues the next frame, if there is one.
    fn pop(&mut self, now: Instant) -> Option<Frame>;
    /// Dequeues the next frame, passes it on with its packets, which nobody changes meanwhile, and releases it; false if
    /// there is none.
    fn take(&mut self, now: Instant, read: &mut dyn FnMut(&Frame, &[u8])) -> bool;
    /// Whether there is none.
    fn is_empty(&mut self) -> bool;
    /// The next packet of a frame behind `cursor`, which moves behind it: its position in the payload and its
    /// length.
    fn packet(&self, payload: PayloadSpan, cursor: &mut PacketCursor) -> Option<(usize, usize)>;
    /// Writes the stamp into a packet, or into a head that replaces the packet's beginning, which it returns.
    fn stamp(&mut self, payload: PayloadSpan, packet: (usize, usize), stamp: Stamp) -> PacketHead;
    /// A packet's bytes, for the kernel; none if there is no such packet. They include the beginning that a
    /// head replaces.
    fn bytes(&self, payload: PayloadSpan, packet: (usize, usize)) -> &[u8];
    /// Releases a frame that was dequeued, and had this fate; frames of no bytes were never here.
    fn settled(&mut self, frame: &Frame, fate: Fate);
    /// Whether [`report_counts`](Self::report_counts) must be called.
    const REPORTS_COUNTS: bool = false;
    /// Called after frames were settled, with the present counts of the stream.
    fn report_counts(&mut self, _counts: &Counts) {}
}

/// Where an engine sleeps, and how it finds the streams with frames when it wakes.
pub trait Poller: Send {
    /// The frame consumers of its streams.
    type FrameConsumer: FrameConsumer;
    /// Calls `look` with the number of each stream that may have received a frame.
    fn ready(&mut self, look: &mut dyn FnMut(usize));
    /// Sleeps until `at` ([`Instant::MAX`]: only for a wake-up), or until a stream received a frame or the
    /// engine was woken.
    fn wait_until(&mut self, at: Instant) -> Woken;
    /// Notifies the poller that a stream was given this number.
    fn attached(&mut self, number: usize, frame_consumer: &mut Self::FrameConsumer);
    /// Notifies the poller that the stream of this number is gone.
    fn detached(&mut self, number: usize);
}

/// A stream of the same process.
pub struct LocalConsumer {
    ring: Consumer<Frame>,
    payloads: Payloads,
}

/// Where the payloads of its frames lie.
enum Payloads {
    /// In a pool of its own.
    Pool(PoolReader),
    /// In memory that it shares with other receivers of the same frames.
    Shared(SharedPayloads),
}

impl Payloads {
    fn bytes(&self, payload: PayloadSpan) -> Option<&[u8]> {
        match self {
            Self::Pool(pool) => pool.bytes(payload).ok(),
            Self::Shared(shared) => shared.bytes(payload),
        }
    }

    fn release(&mut self, frame: &Frame) {
        match self {
            _ if frame.payload.len == 0 => {}
            // Refused only for a span that was released before, which cannot happen since a frame is settled
            // once.
            Self::Pool(pool) => drop(pool.release(frame.payload)),
            Self::Shared(shared) => shared.release(frame.payload),
        }
    }
}

impl FrameConsumer for LocalConsumer {
    fn pop(&mut self, _now: Instant) -> Option<Frame> {
        let frame = self.ring.pop()?;
        Some(match &mut self.payloads {
            Payloads::Pool(_) => frame,
            Payloads::Shared(shared) => shared.pop(frame),
        })
    }

    fn take(&mut self, now: Instant, read: &mut dyn FnMut(&Frame, &[u8])) -> bool {
        let Some(frame) = self.pop(now) else { return false };
        read(&frame, self.payloads.bytes(frame.payload).unwrap_or_default());
        self.payloads.release(&frame);
        true
    }

    fn is_empty(&mut self) -> bool {
        self.ring.is_empty()
    }

    fn packet(&self, payload: PayloadSpan, cursor: &mut PacketCursor) -> Option<(usize, usize)> {
        let at = cursor.offset() + PACKET_HEADER_LEN;
        Some((at, cursor.next(self.payloads.bytes(payload)?)?.len()))
    }

    fn stamp(
        &mut self,
        payload: PayloadSpan,
        (at, len): (usize, usize),
        stamp: Stamp,
    ) -> PacketHead {
        match &mut self.payloads {
            Payloads::Shared(shared) => return shared.head(payload, (at, len), stamp),
            Payloads::Pool(pool) => {
                if let Ok(bytes) = pool.bytes_mut(payload)
                    && let Some(packet) = bytes.get_mut(at..at + len)
                {
                    stamp_sequence(packet, stamp.sequence);
                    stamp_deadline(packet, stamp.deadline, stamp.now);
                }
            }
        }
        PacketHead::NONE
    }

    fn bytes(&self, payload: PayloadSpan, (at, len): (usize, usize)) -> &[u8] {
        let bytes = self.payloads.bytes(payload).unwrap_or_default();
        bytes.get(at..at + len).unwrap_or_default()
    }

    fn settled(&mut self, frame: &Frame, _fate: Fate) {
        self.payloads.release(frame);
    }
}

/// Streams of the same process: one bit for each, and one eventfd for all.
pub struct LocalPoller {
    pub(super) ready: Arc<Ready>,
    pub(super) sleeper: Sleeper,
}

/// Creates the streams of an engine in this process.
pub struct Registrar {
    clock: Clock,
    mtu: Bytes,
    ready: Arc<Ready>,
    pub(super) waker: Waker,
}

impl LocalPoller {
    /// A poller for `streams` streams of a link, and the registrar that creates them.
    ///
    /// # Errors
    /// If no more file descriptors may be opened.
    pub fn new(clock: Clock, link: &LinkConfig, streams: usize) -> io::Result<(Self, Registrar)> {
        let (sleeper, waker) = sleeper(clock, spin(link))?;
        let ready = Ready::new(streams);
        let registrar = Registrar { clock, mtu: link.mtu, ready: Arc::clone(&ready), waker };
        Ok((Self { ready, sleeper }, registrar))
    }
}

impl Registrar {
    /// The frame consumer of a stream, with the `carried` carrier if one is given, and a constructor of the
    /// frame producer for when the link has given the stream its number. Once `stop` is set, the source no
    /// longer waits for room.
    pub fn stream(
        &self,
        stream: &StreamParams,
        carried: Option<StreamCarrier>,
        stop: Arc<AtomicBool>,
    ) -> (NewStream<LocalConsumer>, impl FnOnce(usize) -> FrameProducer) {
        let (producer, consumer) = ring(stream.spec.ring as usize);
        let (writer, reader) = pool(stream.spec.pool);
        let payloads = Payloads::Pool(reader);
        let frame_consumer = LocalConsumer { ring: consumer, payloads };
        let params = self.params(stream, carried.as_ref());
        let (waker, ready) = (self.waker.clone(), Arc::clone(&self.ready));
        let source_end = move |number| {
            let ring = Box::new(LocalFrameQueue { ring: producer, waker, ready, stream: number });
            FrameProducer::new(&params, ring, writer, stop)
        };
        (NewStream { spec: stream.spec.clone(), frame_consumer, carried }, source_end)
    }

    /// The same for one of several receivers of the same frames: its frame producer writes into memory that
    /// those which [join](crate::frame_producer::fan_out::FanOut::join) it share.
    pub fn receiver(
        &self,
        stream: &StreamParams,
        carried: Option<StreamCarrier>,
        stop: Arc<AtomicBool>,
    ) -> (NewStream<LocalConsumer>, impl FnOnce(usize) -> FrameProducer) {
        let (producer, consumer) = ring(stream.spec.ring as usize);
        let params = self.params(stream, carried.as_ref());
        let (room, reader) =
            shared(&stream.spec, (params.overhead, params.payload_max), params.ssrc);
        let payloads = Payloads::Shared(reader);
        let frame_consumer = LocalConsumer { ring: consumer, payloads };
        let (waker, ready) = (self.waker.clone(), Arc::clone(&self.ready));
        let source_end = move |number| {
            let ring = LocalFrameQueue { ring: producer, waker, ready, stream: number };
            FrameProducer::fan_out(&params, ReceiverEnd::new(room, Box::new(ring)), stop)
        };
        (NewStream { spec: stream.spec.clone(), frame_consumer, carried }, source_end)
    }

    fn params(
        &self,
        stream: &StreamParams,
        carried: Option<&StreamCarrier>,
    ) -> FrameProducerParams {
        let params = FrameProducerParams::new(self.clock, &stream.spec, self.mtu, stream.ssrc);
        match carried {
            Some(carried) => params.carried(carried.overhead, carried.packet_max),
            None => params,
        }
    }
}

impl Poller for LocalPoller {
    type FrameConsumer = LocalConsumer;

    fn ready(&mut self, look: &mut dyn FnMut(usize)) {
        self.ready.take(look);
    }

    fn wait_until(&mut self, at: Instant) -> Woken {
        self.sleeper.wait_until(at)
    }

    fn attached(&mut self, _number: usize, _outlet: &mut LocalConsumer) {}

    fn detached(&mut self, _number: usize) {}
}

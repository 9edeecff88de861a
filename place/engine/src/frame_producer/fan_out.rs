//! One source, several receivers: the source's thread writes a frame's packets once, into memory that all
//! receivers share, and only the frame's descriptor goes to the ring of each receiver.
//!
//! `FrameProducer -> FanOutWriter -> ReceiverEnd (one for each receiver) -> ring -> SharedPayloads -> engine`. Each
//! receiver is a stream of its own, on any link of this process. A payload is released with its last receiver. A
//! receiver that lags holds at most its own `pool`; what it has no room for is dropped for it alone. What
//! differs from receiver to receiver are a packet's headers: the engine writes them into a [`PacketHead`](crate::engine::PacketHead) when the
//! packet leaves. (Aurora, section 3.9: in one cycle the FLORB reads a word from one port and writes it to many.)

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use selvedge_data_memory::PayloadSpan;
use selvedge_data_stream::rtp;
use selvedge_data_stream::{DropReason, Frame, FrameWriter};
use selvedge_os::clock::Clock;
use selvedge_units::Bytes;

use super::packets::FramePackets;
use super::{FrameProducer, FrameProducerCounters, FrameQueue};
use crate::extension::Stage;
use crate::link_steps::LinkSteps;
use crate::shared_payloads::{Payload, ReceiverRoom};

/// Payloads that are kept to be written again, and their bytes.
const KEPT_MAX: usize = 64;
const KEPT_BYTES_MAX: usize = 4_000_000;
/// How many of them are looked at for one that no receiver holds.
const LOOKED_AT: usize = 8;

/// The receivers of one source's frames; clones are the same receivers.
#[derive(Clone)]
pub struct FanOut(Arc<Mutex<Receivers>>);

impl fmt::Debug for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut").finish_non_exhaustive()
    }
}

struct Receivers {
    ends: Vec<ReceiverEnd>,
    /// Bytes of packets that were written, once for all receivers.
    written: Bytes,
}

impl FanOut {
    /// Adds the receivers of another frame producer, from the next frame on. False if that one shares no memory.
    pub fn join(&self, other: FrameProducer) -> bool {
        let Some(others) = other.receivers() else { return false };
        let ends = std::mem::take(&mut others.0.lock().ends);
        self.0.lock().ends.extend(ends);
        true
    }

    /// Bytes of packets that were written into the shared memory since the start, whatever the number of receivers.
    #[must_use]
    pub fn written(&self) -> Bytes {
        self.0.lock().written
    }

    pub(crate) fn set_steps(&self, steps: &Arc<LinkSteps>, stream: usize) {
        for end in &mut self.0.lock().ends {
            end.steps = Some((Arc::clone(steps), stream));
        }
    }

    pub(crate) fn first_counters(&self) -> Option<Arc<FrameProducerCounters>> {
        self.0.lock().ends.first().map(|end| Arc::clone(&end.counters))
    }
}

/// The source's end of one receiver.
pub(crate) struct ReceiverEnd {
    queue: Box<dyn FrameQueue>,
    room: ReceiverRoom,
    counters: Arc<FrameProducerCounters>,
    /// The steps of its link, and its number there.
    steps: Option<(Arc<LinkSteps>, usize)>,
    /// Whether it takes the frame that is being written.
    takes: bool,
}

impl ReceiverEnd {
    /// For a receiver with this way of payloads, and this ring of descriptors.
    pub(crate) fn new(room: ReceiverRoom, queue: Box<dyn FrameQueue>) -> Self {
        Self { queue, room, counters: Arc::default(), steps: None, takes: false }
    }

    /// The frame's size on the wire to this receiver: headers differ.
    fn frame(&self, frame: &Frame) -> Frame {
        let size = frame.size + Bytes(self.room.overhead.0 * u64::from(frame.packets));
        Frame { size, ..*frame }
    }

    /// Whether it takes a frame of this `room`, of which the longest RTP payload has this length.
    fn admits(&self, clock: Clock, frame: &Frame, room: usize, longest: usize) -> bool {
        let held = self.room.held.load(Ordering::Relaxed);
        let fits = held.saturating_add(room as u64) <= self.room.most.0
            && longest <= self.room.payload_max
            && self.queue.free() > 0
            && self.room.payloads.free() > 0;
        let discarded = || {
            let Some((steps, stream)) = &self.steps else { return false };
            steps.is_used() && steps.run(Stage::Arrival, clock, *stream, &self.frame(frame))
        };
        fits && !discarded()
    }

    fn push(&mut self, frame: &Frame, payload: &Arc<Payload>) {
        self.room.held.fetch_add(payload.len() as u64, Ordering::Relaxed);
        // There was room in both before, and only this thread uses it up. The payload is first, so that it is there
        // when the descriptor is found.
        let _ = self.room.payloads.push(Arc::clone(payload));
        self.queue.push(self.frame(frame));
    }
}

/// The source's end of all receivers.
pub(crate) struct FanOutWriter {
    receivers: FanOut,
    writer: FrameWriter,
    /// Payloads in the order in which they were written, the oldest first. Those that no receiver holds are written
    /// again.
    kept: VecDeque<Arc<Payload>>,
    kept_bytes: usize,
}

impl FanOutWriter {
    pub(crate) fn new(ends: Vec<ReceiverEnd>) -> Self {
        // Identifiers and headers below RTP are each receiver's own.
        let writer = FrameWriter::new(0, Bytes(0), usize::MAX);
        let receivers = Receivers { ends, written: Bytes(0) };
        let receivers = FanOut(Arc::new(Mutex::new(receivers)));
        Self { receivers, writer, kept: VecDeque::new(), kept_bytes: 0 }
    }

    pub(crate) fn receivers(&self) -> FanOut {
        self.receivers.clone()
    }

    /// Writes a frame once, and passes it to every receiver that has room. An error if none has.
    pub(super) fn enqueue(
        &mut self,
        clock: Clock,
        mut frame: Frame,
        timestamp: u32,
        packets: &mut impl FramePackets,
    ) -> Result<(), DropReason> {
        let room = packets.room();
        let receivers = self.receivers();
        let Receivers { ends, written } = &mut *receivers.0.lock();
        ends.retain(|end| !end.queue.is_abandoned());
        let mut longest = Some(0);
        for len in packets.lens() {
            longest = longest.zip(len).map(|(longest, len)| longest.max(len));
            frame.size += Bytes(rtp::packet_len(len.unwrap_or_default()) as u64);
        }
        let mut takers = 0;
        for end in &mut *ends {
            end.counters.arrived(frame.arrival);
            end.takes = longest.is_some_and(|longest| end.admits(clock, &frame, room, longest));
            takers += usize::from(end.takes);
            if !end.takes {
                end.counters.refused();
            }
        }
        if takers == 0 {
            return Err(longest.map_or(DropReason::Unusable, |_| DropReason::Full));
        }
        let mut payload = self.unheld(room);
        let bytes = Arc::get_mut(&mut payload).ok_or(DropReason::Full)?;
        let len = packets.write(&mut self.writer, bytes, &mut frame, timestamp)?;
        *written += Bytes(len as u64);
        frame.payload = PayloadSpan { start: 0, len: len as u32 };
        for end in ends.iter_mut().filter(|end| end.takes) {
            end.push(&frame, &payload);
        }
        self.keep(payload);
        Ok(())
    }

    /// A payload of at least this length that no receiver holds.
    fn unheld(&mut self, len: usize) -> Arc<Payload> {
        for _ in 0..self.kept.len().min(LOOKED_AT) {
            let Some(mut payload) = self.kept.pop_front() else { break };
            self.kept_bytes -= payload.len();
            if let Some(bytes) = Arc::get_mut(&mut payload) {
                if bytes.len() < len {
                    bytes.resize(len, 0);
                }
                return payload;
            }
            self.keep(payload);
        }
        Arc::new(vec![0; len])
    }

    fn keep(&mut self, payload: Arc<Payload>) {
        if self.kept.len() < KEPT_MAX && self.kept_bytes + payload.len() <= KEPT_BYTES_MAX {
            self.kept_bytes += payload.len();
            self.kept.push_back(payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FrameProducerParams;
    use super::*;
    use crate::shared_payloads::{SharedPayloads, shared};
    use selvedge_data_memory::{Consumer, Producer, ring};
    use selvedge_data_stream::{Kind, References, Spec};
    use selvedge_units::Instant;

    struct Ring(Producer<Frame>);

    impl FrameQueue for Ring {
        fn free(&self) -> usize {
            self.0.free()
        }

        fn push(&mut self, frame: Frame) -> bool {
            self.0.push(frame).is_ok()
        }

        fn notify(&self) {}

        fn is_abandoned(&self) -> bool {
            self.0.is_abandoned()
        }
    }

    fn receiver(ssrc: u32) -> (ReceiverEnd, Consumer<Frame>, SharedPayloads) {
        let spec = Spec { ring: 4, ..Spec::new("cam", "192.0.2.1:9".parse().unwrap()) };
        let params = FrameProducerParams::new(Clock::simulated(), &spec, Bytes(1500), ssrc);
        let fit = (params.overhead, params.payload_max);
        let (room, payloads) = shared(&spec, fit, params.ssrc);
        let (frames, came) = ring(4);
        (ReceiverEnd::new(room, Box::new(Ring(frames))), came, payloads)
    }

    fn enqueue(writer: &mut FanOutWriter, seq: u32) -> Result<(), DropReason> {
        let mut packet = [9; 112];
        packet[..2].copy_from_slice(&[0x80, 96]);
        let frame = Frame {
            seq,
            kind: Kind::Still,
            referenced: false,
            refs: References::NONE,
            packets: 1,
            size: Bytes(0),
            arrival: Instant(1),
            deadline: None,
            payload: PayloadSpan::default(),
        };
        writer.enqueue(Clock::simulated(), frame, 0, &mut &[&packet[..]][..])
    }

    #[test]
    fn receivers_read_the_same_bytes_which_are_written_again_once_all_released_them() {
        let (end, mut came, mut first) = receiver(1);
        let mut writer = FanOutWriter::new(vec![end]);
        let (end, mut came_second, mut second) = receiver(2);
        writer.receivers.0.lock().ends.push(end);
        let mut places = Vec::new();
        for seq in 0..20 {
            enqueue(&mut writer, seq).unwrap();
            let frame = first.pop(came.pop().unwrap());
            let other = second.pop(came_second.pop().unwrap());
            let bytes = first.bytes(frame.payload).unwrap().as_ptr();
            assert_eq!(bytes, second.bytes(other.payload).unwrap().as_ptr(), "one copy for both");
            places.push(bytes);
            first.release(frame.payload);
            first.release(frame.payload);
            assert!(first.bytes(frame.payload).is_none() && second.bytes(other.payload).is_some());
            second.release(other.payload);
        }
        assert!(places.iter().all(|&place| place == places[0]), "the memory is written again");
        assert_eq!(first.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_receiver_that_takes_nothing_loses_only_its_own_frames() {
        let (end, mut came, mut first) = receiver(1);
        let mut writer = FanOutWriter::new(vec![end]);
        let (end, came_second, second) = receiver(2);
        let lagging = Arc::clone(&end.counters);
        writer.receivers.0.lock().ends.push(end);
        for seq in 0..10 {
            enqueue(&mut writer, seq).unwrap();
            let frame = first.pop(came.pop().unwrap());
            assert_eq!(frame.seq, seq);
            first.release(frame.payload);
        }
        assert_eq!(lagging.refused.load(Ordering::Relaxed), 6, "its ring has four places");
        // Once it is gone, it holds nothing.
        drop((came_second, second));
        enqueue(&mut writer, 10).unwrap();
        assert_eq!(writer.receivers.0.lock().ends.len(), 1);
        assert!(writer.kept.iter().all(|kept| Arc::strong_count(kept) <= 2));
    }
}

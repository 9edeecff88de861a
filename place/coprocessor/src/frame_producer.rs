//! The source's end of a stream whose ring and pool are shared memory: the frame producer of `place/engine`,
//! with another queue.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use selvedge_data_memory::{PoolWriter, Producer, RegionError};
use selvedge_data_stream::{Descriptor, Frame};
use selvedge_place_engine::frame_producer::{FrameProducer, FrameProducerParams, FrameQueue};

use crate::segment::{Doorbell, StreamSegment};

/// A ring in shared memory, and the doorbell of its producer.
pub struct SharedFrameQueue {
    ring: Producer<Descriptor>,
    bell: Arc<Doorbell>,
    bit: usize,
}

impl SharedFrameQueue {
    /// The producing half of a segment's ring.
    ///
    /// # Errors
    /// [`RegionError`] if the segment's header has changed.
    pub fn new(
        segment: &StreamSegment,
        bell: Arc<Doorbell>,
        bit: usize,
    ) -> Result<Self, RegionError> {
        let ring = Producer::within(&segment.region, segment.ring_at(), segment.ring())?;
        Ok(Self { ring, bell, bit })
    }

    /// Enqueues a descriptor, and wakes the coprocessor.
    ///
    /// # Errors
    /// Returns the descriptor if the ring is full.
    pub fn push_descriptor(&mut self, descriptor: Descriptor) -> Result<(), Descriptor> {
        let pushed = self.ring.push(descriptor);
        self.notify();
        pushed
    }
}

impl FrameQueue for SharedFrameQueue {
    fn free(&self) -> usize {
        self.ring.free()
    }

    fn push(&mut self, frame: Frame) -> bool {
        self.push_descriptor(Descriptor::of(&frame, true)).is_ok()
    }

    fn notify(&self) {
        self.bell.ring(self.bit);
    }

    /// Never: a coprocessor that has died may be started again.
    fn is_abandoned(&self) -> bool {
        false
    }
}

/// A frame producer over a segment.
///
/// # Errors
/// [`RegionError`] if the segment's header has changed.
pub fn frame_producer(
    params: &FrameProducerParams,
    segment: &StreamSegment,
    bell: Arc<Doorbell>,
    bit: usize,
    stop: Arc<AtomicBool>,
) -> Result<FrameProducer, RegionError> {
    let pool = PoolWriter::within(&segment.region, segment.pool_at(), segment.pool())?;
    let ring = Box::new(SharedFrameQueue::new(segment, bell, bit)?);
    Ok(FrameProducer::new(params, ring, pool, stop))
}

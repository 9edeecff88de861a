//! Traces through the coprocessor's path in simulated time. Frame producers write into shared segments and
//! ring their doorbell. The engine's loop takes frames out by the coprocessor's frame consumers, with all
//! their checks, and waits at its poller. The replay is that of the inline placement
//! (`selvedge_place_engine::engine::unit_slot`); its events are compared, byte for byte.
//!
//! All of it runs in one process: time in another process could not be simulated. A process of its own adds
//! only the mapping of the same memory at another address, and the control socket.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use selvedge_data_sched::replay::Trace;
use selvedge_data_stream::{Spec, rtp};
use selvedge_os::clock::Clock;
use selvedge_os::wake::sleeper;
use selvedge_place_engine::engine::unit_slot::{UnitSlotError, UnitSlots, link_of};
use selvedge_place_engine::engine::{NewStream, StreamParams, payload_max};
use selvedge_place_engine::frame_producer::{FrameProducer, FrameProducerParams};
use selvedge_units::{Bytes, Duration};

use crate::frame_consumer::{Limits, RefusalCounters, SharedConsumer};
use crate::frame_producer::frame_producer;
use crate::poller::SharedPoller;
use crate::segment::{BELL_STREAMS, Doorbell, StreamSegment};

/// A replay through shared memory, and the counts of descriptors that each stream's consumer refused.
///
/// # Errors
/// [`UnitSlotError`] if there is no memory to share, or no socket.
pub fn shared(
    trace: &Trace,
) -> Result<(UnitSlots<'_, SharedPoller>, Vec<Arc<RefusalCounters>>), UnitSlotError> {
    let clock = Clock::simulated();
    let (own, _) = sleeper(clock, Duration::ZERO).map_err(|why| system("an event", why))?;
    let port = SharedPoller::new(clock, own, Duration::ZERO, Duration::ZERO)
        .map_err(|why| system("an epoll", why))?;
    let bell = Arc::new(Doorbell::create().map_err(|why| no_memory("a doorbell", why))?);
    let mtu = link_of(trace).mtu;
    let mut refused = Vec::new();
    let slots = UnitSlots::new(trace, clock, port, |n, params| {
        let (new, frame_producer, counters) = stream((n, params), mtu, clock, &bell)?;
        refused.push(counters);
        Ok((new, frame_producer))
    })?;
    Ok((slots, refused))
}

/// Both ends of a stream, as a coprocessor and its producer create them.
fn stream(
    (n, params): (usize, &StreamParams),
    mtu: Bytes,
    clock: Clock,
    bell: &Arc<Doorbell>,
) -> Result<(NewStream<SharedConsumer>, FrameProducer, Arc<RefusalCounters>), UnitSlotError> {
    let bit = n % BELL_STREAMS;
    let segment = StreamSegment::create("unit slots", params.spec.ring, params.spec.pool);
    let segment = segment.map_err(|why| no_memory("a segment", why))?;
    let packet = u16::try_from((mtu - rtp::IPV4_UDP).0).unwrap_or(u16::MAX);
    let limits = Limits { packet, overhead: rtp::IPV4_UDP };
    let frame_consumer = SharedConsumer::new(&segment, true, limits, (Arc::clone(bell), bit))
        .map_err(|why| no_memory("a segment's layout", why))?;
    // The producer has a mapping of its own, as in another process.
    let file = segment.file().try_clone().map_err(|why| system("a segment's file", why))?;
    let theirs = StreamSegment::open(file).map_err(|why| no_memory("a second mapping", why))?;
    let to = FrameProducerParams {
        clock,
        full: params.spec.full,
        overhead: rtp::IPV4_UDP,
        payload_max: payload_max(mtu, rtp::IPV4_UDP),
        ssrc: params.ssrc,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let frame_producer = frame_producer(&to, &theirs, Arc::clone(bell), bit, stop)
        .map_err(|why| no_memory("a segment's layout", why))?;
    let counters = frame_consumer.refused();
    let spec = Spec { ring: segment.ring(), ..params.spec.clone() };
    Ok((NewStream { spec, frame_consumer, carried: None }, frame_producer, counters))
}

const fn system(what: &'static str, why: std::io::Error) -> UnitSlotError {
    UnitSlotError::System { what, why }
}

fn no_memory(
    what: &'static str,
    why: impl std::error::Error + Send + Sync + 'static,
) -> UnitSlotError {
    system(what, std::io::Error::other(why))
}

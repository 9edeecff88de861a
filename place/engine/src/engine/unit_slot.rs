//! Traces through a whole engine in simulated time, a slot a nanosecond. Frame producers put frames into
//! rings and pools. The engine's own loop dequeues them, queries the link, waits at its poller, and sends
//! real datagrams to a socket on loopback. The result is the events of `selvedge_data_sched::replay`, the
//! model in which all placements are compared bit by bit.
//!
//! Generic over the poller, so that the same replay drives rings of this process and shared memory. Two
//! values of a trace that a frame does not carry are set behind the ring: the deadline of a stream's first
//! frame, and the size by which fair disciplines share.

mod poller;
mod record;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use selvedge_control_config::LinkConfig;
use selvedge_data_sched::StreamIndex;
use selvedge_data_sched::replay::{
    Arrivals, Event, FrameRef, Outcome, Replay, ReplayAction, Trace,
};
use selvedge_data_stream::rtp::{self, FrameTag, Header, Packet};
use selvedge_data_stream::{Counters, DropReason, Kind, References, Spec, Window};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use self::poller::TracePoller;
use self::record::TurnComparer;
use super::{
    EngineError, LocalPoller, NewStream, Poller, SteppedEngine, StreamParams, payload_max,
};
use crate::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_os::clock::Clock;

/// The size of a packet on the wire, headers included. A power of two, so that its time is exact at [`RATE`].
const WIRE: Bytes = Bytes(128);
/// One packet in a nanosecond.
const RATE: Bitrate = Bitrate(WIRE.0 * 8_000_000_000);
/// The bytes that a frame takes in its pool, with a reserve.
const POOLED: u64 = 256;
/// The longest time of a datagram over loopback.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a trace can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum UnitSlotError {
    /// The engine did not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There was no socket or memory, or a datagram did not arrive.
    #[error("{what}: {why}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        why: io::Error,
    },
    /// A frame did not get into its ring.
    #[error("a frame of stream {stream} at slot {t} was refused ({why:?}); replay fewer frames")]
    Enqueue {
        /// Its stream.
        stream: u32,
        /// When.
        t: u64,
        /// Why.
        why: DropReason,
    },
    /// The engine's reports contradict each other.
    #[error("slot {t}, stream {stream}: {what}")]
    Inconsistent {
        /// When.
        t: u64,
        /// The stream.
        stream: usize,
        /// The contradiction.
        what: String,
    },
    /// The engine makes turns without end, and time stands still.
    #[error("the engine finds no end in slot {0}")]
    Stuck(u64),
}

/// A replay of a trace through an engine.
pub struct UnitSlots<'a, P: Poller> {
    trace: &'a Trace,
    clock: Clock,
    engine: SteppedEngine<TracePoller<P>>,
    frame_producers: Vec<FrameProducer>,
    /// Future frames: time and stream, in that order.
    coming: std::iter::Peekable<std::vec::IntoIter<(Instant, u32)>>,
    receiver: UdpSocket,
    watch: TurnComparer,
    events: Vec<Event>,
    packet: Vec<u8>,
}

impl<'a> UnitSlots<'a, LocalPoller> {
    /// A replay through rings of this process, as the inline placement has them.
    ///
    /// # Errors
    /// [`UnitSlotError`] if there is no socket.
    pub fn inline(trace: &'a Trace) -> Result<Self, UnitSlotError> {
        let clock = Clock::simulated();
        let (port, registrar) = LocalPoller::new(clock, &link_of(trace), trace.streams.len())
            .map_err(|why| system("an event", why))?;
        let stop = Arc::new(AtomicBool::new(false));
        Self::new(trace, clock, port, |n, params| {
            let (new, producer) = registrar.stream(params, None, Arc::clone(&stop));
            Ok((new, producer(n)))
        })
    }
}

impl<'a, P: Poller> UnitSlots<'a, P> {
    /// A replay by a poller that reads this clock, which is advanced by hand; `make` creates both ends of the
    /// stream with a number.
    ///
    /// # Errors
    /// [`UnitSlotError`] if there is no socket, or a stream can't be created.
    pub fn new(
        trace: &'a Trace,
        clock: Clock,
        port: P,
        mut make: impl FnMut(
            usize,
            &StreamParams,
        )
            -> Result<(NewStream<P::FrameConsumer>, FrameProducer), UnitSlotError>,
    ) -> Result<Self, UnitSlotError> {
        let receiver = receiver().map_err(|why| system("a socket on loopback", why))?;
        let to = receiver.local_addr().map_err(|why| system("a socket's address", why))?;
        let watch = TurnComparer::new(trace.streams.len());
        let port = TracePoller::new(port);
        let (tap, step) = (Box::new(watch.seen()), Box::new(watch.seen()));
        let mut engine = SteppedEngine::new(clock, &link_of(trace), port, Some(tap))?;
        engine.load("watch", super::Stage::Choice, step);
        let arrivals = arrivals(trace);
        let mut frame_producers = Vec::with_capacity(trace.streams.len());
        for (n, stream) in trace.streams.iter().enumerate() {
            let sizes: Vec<Bytes> =
                arrivals.iter().filter(|a| a.1 as usize == n).map(|a| a.2).collect();
            let params = params(stream.contract, to, n, sizes.len());
            let (new, frame_producer) = make(n, &params)?;
            engine.attach(poller::trace_stream(new, n, stream.first_deadline, sizes, watch.seen()));
            frame_producers.push(frame_producer);
        }
        let coming: Vec<_> = arrivals.iter().map(|&(at, stream, _)| (at, stream)).collect();
        let mut packet = vec![0; rtp::packet_len(payload_max(WIRE, rtp::IPV4_UDP))];
        rtp::write_packet(&mut packet, HEADER, TAG, &vec![0; payload_max(WIRE, rtp::IPV4_UDP)]);
        let coming = coming.into_iter().peekable();
        let events = Vec::new();
        Ok(Self { trace, clock, engine, frame_producers, coming, receiver, watch, events, packet })
    }

    /// Replays all slots.
    pub fn run(mut self) -> Result<Outcome, UnitSlotError> {
        let end = Instant(self.trace.ticks);
        let mut turns = 0;
        let most = 64 + 4 * (self.coming.len() as u64 + self.trace.streams.len() as u64);
        let mut now = self.clock.now();
        while now < end {
            self.admit(now)?;
            let until = self.engine.turn();
            self.note(now)?;
            if let Some(until) = until {
                let next = self.coming.peek().map_or(end, |&(at, _)| at.min(end));
                self.engine.wait_until(until.min(next));
            }
            turns = if self.clock.now() == now { turns + 1 } else { 0 };
            if turns > most {
                return Err(UnitSlotError::Stuck(now.0));
            }
            now = self.clock.now();
        }
        let (events, totals) = (self.in_slots(), self.totals());
        Ok(Outcome { events, totals })
    }

    fn totals(&self) -> Vec<(Counters, Window)> {
        let scheduler = self.engine.link().scheduler();
        let streams = (0..self.trace.streams.len()).map(|n| StreamIndex(n as u32));
        streams.map(|s| (scheduler.counters(s), scheduler.window(s, Kind::Data))).collect()
    }

    /// Enqueues the frames that arrive by now.
    fn admit(&mut self, now: Instant) -> Result<(), UnitSlotError> {
        while let Some((at, stream)) = self.coming.next_if(|&(at, _)| at <= now) {
            let frame_producer = &mut self.frame_producers[stream as usize];
            frame_producer
                .enqueue_at(at, OFFER, &[&self.packet])
                .map_err(|why| UnitSlotError::Enqueue { stream, t: now.0, why })?;
        }
        Ok(())
    }

    /// Records the events of a turn, and receives the sent datagrams.
    fn note(&mut self, now: Instant) -> Result<(), UnitSlotError> {
        let from = self.events.len();
        self.watch.read(now, self.trace, self.engine.link(), &mut self.events)?;
        for event in &self.events[from..] {
            let ReplayAction::Send { frame, .. } = event.action else { continue };
            let mut bytes = [0; 256];
            let received = self.receiver.recv(&mut bytes);
            let len = received.map_err(|why| system("a datagram over loopback", why))?;
            let packet = Packet::parse(&bytes[..len]).ok();
            let on_wire = packet.and_then(|packet| Some((packet.header.ssrc, packet.tag?.seq)));
            let decided = (frame.stream.0, frame.seq as u32);
            if on_wire != Some(decided) {
                let stream = frame.stream.0 as usize;
                let what = format!("the datagram is {on_wire:?}, the decision {decided:?}");
                return Err(UnitSlotError::Inconsistent { t: now.0, stream, what });
            }
        }
        Ok(())
    }

    /// The events as traces are printed: in each slot the misses, by stream, then the sent frame, or an idle
    /// slot.
    fn in_slots(&mut self) -> Vec<Event> {
        let mut happened = std::mem::take(&mut self.events);
        let whose = |happening: &ReplayAction| match happening {
            ReplayAction::Drop(FrameRef { stream, .. })
            | ReplayAction::Miss(FrameRef { stream, .. }) => stream.0,
            ReplayAction::Send { .. } | ReplayAction::Idle => u32::MAX,
        };
        // Stable, so that those of one stream stay in their order.
        happened.sort_by_key(|event| (event.t, whose(&event.action)));
        let mut events = Vec::with_capacity(happened.len());
        let mut happened = happened.into_iter().peekable();
        for t in (0..self.trace.ticks).map(Instant) {
            let before = events.len();
            events.extend(std::iter::from_fn(|| happened.next_if(|event| event.t == t)));
            let sent = events[before..].last();
            if !sent.is_some_and(|event| matches!(event.action, ReplayAction::Send { .. })) {
                events.push(Event { t, action: ReplayAction::Idle });
            }
        }
        events
    }
}

/// The link of a replay: one packet in a nanosecond, no burst, no selection, no bound on waiting frames.
#[must_use]
pub fn link_of(trace: &Trace) -> LinkConfig {
    LinkConfig {
        selection: false,
        mtu: WIRE,
        burst: WIRE,
        queue: None,
        tree: trace.tree.clone(),
        ..LinkConfig::new("unit slots", RATE, trace.discipline)
    }
}

const OFFER: FrameMetadata =
    FrameMetadata { kind: Kind::Data, referenced: false, closes: false, refs: None, timestamp: 0 };
const HEADER: Header =
    Header { marker: false, payload_type: 96, sequence: 0, timestamp: 0, ssrc: 0 };
const TAG: FrameTag = FrameTag {
    seq: 0,
    kind: Kind::Data,
    referenced: false,
    first: true,
    last: true,
    refs: References::NONE,
    left_ms: 0,
    deadline_ms: 0,
};

/// A stream that holds all its frames at once, if need be.
fn params(
    contract: selvedge_data_stream::Contract,
    to: SocketAddr,
    n: usize,
    frames: usize,
) -> StreamParams {
    let frames = frames.max(2) as u64;
    let spec = Spec {
        ring: u32::try_from(frames.next_power_of_two()).unwrap_or(u32::MAX),
        pool: Bytes(frames * POOLED),
        ..Spec::new("", to).with_contract(contract)
    };
    StreamParams { spec, ssrc: n as u32 }
}

/// Arrivals in the order of time, each with its stream and size. Queues that never run dry hold from the
/// beginning all frames that the trace will take, and two more.
fn arrivals(trace: &Trace) -> Vec<(Instant, u32, Bytes)> {
    match &trace.arrivals {
        Arrivals::Listed(listed) => {
            let mut listed: Vec<_> = listed.iter().map(|a| (a.at, a.stream.0, a.size)).collect();
            listed.sort_by_key(|&(at, ..)| at);
            listed
        }
        Arrivals::Backlogged => {
            let mut replay = Replay::new(trace);
            replay.by_ref().for_each(drop);
            let totals = replay.totals().map(|(_, counters, _)| counters);
            let need = (0..).zip(totals.map(|c| c.sent + c.dropped + 2));
            need.flat_map(|(stream, need)| (0..need).map(move |_| (Instant::ZERO, stream, SIZE)))
                .collect()
        }
    }
}

/// The size of a frame for which a trace states none.
const SIZE: Bytes = Bytes(1000);

fn receiver() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(TIMEOUT.into()))?;
    Ok(socket)
}

const fn system(what: &'static str, why: io::Error) -> UnitSlotError {
    UnitSlotError::System { what, why }
}

//! What the coprocessor placement costs on this machine: the hand-over through shared memory, the
//! wake-up from idle, packets a second beside the inline engine's, and the paper's three paths from
//! the disk to the network (NI coprocessors, section 3.3, Table 4).

mod path;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_control_config::LinkConfig;
use selvedge_data_memory::{PoolWriter, RegionError};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{
    Contract, Descriptor, Fate, Kind, PACKET_HEADER_LEN, PacketWriter, Spec, Window, rtp,
};
use selvedge_os::clock::{Clock, pin_to_core};
use selvedge_os::eventfd::EventFd;
use selvedge_place_engine::engine::{
    Action, Engine, EngineError, Extension, FrameConsumer, Stage, StepContext, StreamParams,
};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::ordinary::make_ordinary;
use crate::pacing::beside_loops;

pub use path::{Path, PathBench, PathOptions, paths};

use selvedge_place_coprocessor::client::{Attachment, ClientError, producer_params};
use selvedge_place_coprocessor::frame_consumer::{Limits, SharedConsumer};
use selvedge_place_coprocessor::frame_producer::SharedFrameQueue;
use selvedge_place_coprocessor::realtime::{self, RealtimeRequest, SchedClass};
use selvedge_place_coprocessor::segment::{Doorbell, SegmentError, StreamSegment};
use selvedge_place_coprocessor::server::{
    Coprocessor, LocalCoprocessor, MEMORY, Options, StartError, default_socket,
};

/// Why something can't be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// No memory to share.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The same.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// No coprocessor.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No attachment.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No socket, file or thread.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A frame did not come through within ten seconds.
    #[error("a frame did not come through within 10 s; is the machine overloaded?")]
    Stuck,
}

/// Percentiles of some spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// How many there were.
    pub samples: usize,
    /// The middle one.
    pub median: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Percentiles {
    fn of(mut spans: Vec<Duration>) -> Self {
        spans.sort();
        let at = |share: f64| {
            let rank = (share * spans.len() as f64) as usize;
            spans.get(rank.min(spans.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        Self { samples: spans.len(), median: at(0.5), p99: at(0.99), longest: at(1.0) }
    }
}

/// How long a frame may take before it is given up.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a thread that measures runs with, so that other work on the machine disturbs little.
const FIRM: RealtimeRequest = RealtimeRequest { core: None, lock: false, class: SchedClass::Fifo };

/// The hand-over of a frame of one packet, one way, both sides awake on cores of their own: from
/// before its room is reserved to when its checked descriptor is in the coprocessor's hands, the
/// copy of the payload included. Two threads, each with a mapping of its own.
pub fn measure_hand_over(samples: usize, payload: usize) -> Result<Percentiles, BenchError> {
    apart(|| hand_over_here(samples, payload))
}

/// Does it on a thread of its own, whose core and class go with it.
fn apart<T: Send>(work: impl FnOnce() -> Result<T, BenchError> + Send) -> Result<T, BenchError> {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or(Err(BenchError::Stuck)))
}

fn hand_over_here(samples: usize, payload: usize) -> Result<Percentiles, BenchError> {
    let segment = StreamSegment::create("bench", 64, Bytes(1 << 20))?;
    let bell = Arc::new(Doorbell::create()?);
    let limits = Limits { packet: u16::MAX, overhead: rtp::IPV4_UDP };
    let mut frame_consumer = SharedConsumer::new(&segment, true, limits, (Arc::clone(&bell), 0))?;
    let file = segment.file().try_clone()?;
    let clock = Clock::shared();
    let taken = AtomicU64::new(0);
    let payload = payload.clamp(8, 60_000);
    let stuck = || clock.now() + TIMEOUT;
    thread::scope(|scope| {
        let producer = scope.spawn(|| -> Result<Vec<u64>, BenchError> {
            let _ = (pin_to_core(0), realtime::ask(FIRM));
            let segment = StreamSegment::open(file)?;
            let mut pool = PoolWriter::within(&segment.region, segment.pool_at(), segment.pool())?;
            let mut ring = SharedFrameQueue::new(&segment, Arc::clone(&bell), 0)?;
            let packet = vec![7; payload];
            let mut begun = Vec::with_capacity(samples);
            for seq in 0..samples as u32 {
                let end = stuck();
                while taken.load(Ordering::Acquire) < u64::from(seq) {
                    if clock.now() > end {
                        return Err(BenchError::Stuck);
                    }
                    std::hint::spin_loop();
                }
                let start = clock.now();
                let room = pool.reserve(PACKET_HEADER_LEN + payload);
                let mut room = room.map_err(|_| BenchError::Stuck)?;
                // One packet of at most 60,000 bytes, into room for just that.
                let _ = PacketWriter::new(room.bytes_mut()).push(&packet);
                let span = room.commit();
                let descriptor = Descriptor {
                    seq,
                    packets: 1,
                    kind: Kind::Data as u8,
                    len: span.len,
                    start: span.start,
                    arrival: start.0,
                    ..Descriptor::default()
                };
                ring.push_descriptor(descriptor).map_err(|_| BenchError::Stuck)?;
                begun.push(start.0);
            }
            Ok(begun)
        });
        let _ = (pin_to_core(1), realtime::ask(FIRM));
        let mut ended = Vec::with_capacity(samples);
        let mut end = stuck();
        let sent = Fate::Sent { on_time: true, queueing: Duration::ZERO };
        while ended.len() < samples {
            let now = clock.now();
            if let Some(frame) = frame_consumer.pop(now) {
                ended.push(clock.now());
                frame_consumer.settled(&frame, sent);
                taken.fetch_add(1, Ordering::Release);
                end = stuck();
            } else if now > end {
                return Err(BenchError::Stuck);
            }
        }
        let begun = producer.join().map_err(|_| BenchError::Stuck)??;
        let spans = begun.iter().zip(&ended).skip(samples / 10);
        Ok(Percentiles::of(spans.map(|(&start, end)| end.since(Instant(start))).collect()))
    })
}

/// Notes when the engine took a frame.
struct ArrivalNote(Arc<AtomicU64>);

impl Extension for ArrivalNote {
    fn step(&mut self, moment: &StepContext<'_>) -> Action {
        self.0.store(moment.now.0, Ordering::Release);
        Action::Go
    }
}

/// A stream due in a second, to a socket that nobody reads.
fn stream(to: std::net::SocketAddr, ring: u32, pool: Bytes) -> StreamParams {
    let window = Window { lose: 1, of: 2 };
    let contract = Contract {
        delay: Some(Duration::from_secs(1)),
        ..Contract::new(Duration::from_millis(20), window)
    };
    let spec = Spec { ring, pool, ..Spec::new("bench", to).with_contract(contract) };
    StreamParams { spec, ssrc: 1 }
}

fn options(link: LinkConfig, watch: Duration, core: Option<usize>) -> Options {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let socket = default_socket(&format!("bench-{}-{n}", std::process::id()));
    let realtime_request = RealtimeRequest { core, lock: false, class: SchedClass::Fifo };
    Options { link, socket, realtime_request, watch, memory: MEMORY, alone: None }
}

/// Adds a stream to a coprocessor in the way of the node.
fn add(attachment: &Attachment, stream: &StreamParams) -> Result<FrameProducer, ClientError> {
    let StreamParams { spec, ssrc } = stream;
    let params = producer_params(spec, Bytes(1500), *ssrc);
    Ok(attachment.add(spec.clone(), &params, None)?.1)
}

fn rtp(payload: usize) -> Vec<u8> {
    let mut packet = vec![0; 12 + payload];
    packet[..2].copy_from_slice(&[0x80, 0x80 | 96]);
    packet
}

const OFFER: FrameMetadata = FrameMetadata::alone(Kind::Still);

/// The wake-up of an idle coprocessor: from before a frame's room is reserved to when the engine,
/// which slept, takes it out of its ring. The producer hesitates for `lag` meanwhile.
pub fn wake(samples: usize, how: Wake, lag: Duration) -> Result<Percentiles, BenchError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    match how {
        Wake::Realtime => apart(|| wake_here(samples, SchedClass::Fifo, lag)),
        Wake::OrdinaryBesideLoops => {
            beside_loops(4 * cores, || apart(|| wake_here(samples, SchedClass::Fair, lag)))
        }
    }
}

/// The wake-up of a real-time thread on the same core that waits for an event and does nothing else: from before the
/// event is rung to when the thread runs.
pub fn bare_wake(samples: usize) -> Result<Percentiles, BenchError> {
    apart(|| bare_wake_here(samples))
}

fn bare_wake_here(samples: usize) -> Result<Percentiles, BenchError> {
    let event = EventFd::new()?;
    let woken = AtomicU64::new(0);
    let clock = Clock::shared();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = (pin_to_core(1), realtime::ask(FIRM));
            while !is_over.load(Ordering::Acquire) {
                let mut fds = [PollFd::new(&event, PollFlags::IN)];
                if poll(&mut fds, None).is_ok() {
                    woken.store(clock.now().0, Ordering::Release);
                    event.clear();
                }
            }
        });
        let _ = pin_to_core(0);
        let mut spans = Vec::with_capacity(samples);
        for _ in 0..samples {
            clock.sleep_until(clock.now() + Duration::from_millis(2));
            woken.store(0, Ordering::Release);
            let start = clock.now();
            event.ring();
            let at = loop {
                match woken.load(Ordering::Acquire) {
                    0 => std::hint::spin_loop(),
                    at => break at,
                }
            };
            spans.push(Instant(at).since(start));
        }
        is_over.store(true, Ordering::Release);
        event.ring();
        Ok(Percentiles::of(spans))
    })
}

/// How the coprocessor runs that is to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// As a real-time process.
    Realtime,
    /// As an ordinary one without any request, beside four endless loops on each core.
    OrdinaryBesideLoops,
}

fn wake_here(samples: usize, class: SchedClass, lag: Duration) -> Result<Percentiles, BenchError> {
    let sink = UdpSocket::bind("127.0.0.1:0")?;
    let link = LinkConfig::new("bench", Bitrate::from_mbps(10), Discipline::Dwcs);
    let taken = Arc::new(AtomicU64::new(0));
    let mut options = options(link, Duration::ZERO, Some(1));
    options.realtime_request.class = class;
    let coprocessor = Coprocessor::start(options)?;
    if class == SchedClass::Fair {
        make_ordinary(std::process::id(), Some("link bench"))?;
    }
    let socket = coprocessor.socket().to_owned();
    let noted = Arc::clone(&taken);
    coprocessor.load("note", Stage::Arrival, Box::new(ArrivalNote(noted)));
    let _coprocessor = LocalCoprocessor::serve(coprocessor)?;
    let attachment = Attachment::new("bench", socket, None)?;
    let mut frame_producer = add(&attachment, &stream(sink.local_addr()?, 64, Bytes(1 << 20)))?;
    let (clock, packet) = (Clock::shared(), rtp(1000));
    let mut spans = Vec::with_capacity(samples);
    let _ = pin_to_core(0);
    for _ in 0..samples {
        // Long enough that it sleeps again, which takes it some tens of microseconds.
        clock.sleep_until(clock.now() + Duration::from_millis(2));
        taken.store(0, Ordering::Release);
        let start = clock.now();
        clock.sleep_until_exact(start + lag, lag);
        frame_producer.enqueue(OFFER, &[&packet]).map_err(|_| BenchError::Stuck)?;
        let end = start + TIMEOUT;
        let at = loop {
            match taken.load(Ordering::Acquire) {
                0 if clock.now() > end => return Err(BenchError::Stuck),
                0 => std::hint::spin_loop(),
                at => break at,
            }
        };
        spans.push(Instant(at).since(start));
    }
    Ok(Percentiles::of(spans))
}

/// Packets a second of 1200 bytes: through shared memory, and inline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// The inline engine's.
    pub inline_pps: f64,
    /// The coprocessor's.
    pub coprocessor_pps: f64,
    /// Median over neighbouring samples of the second by the first.
    pub ratio: f64,
}

/// Packets of a sample, and of a frame.
const SAMPLE: u64 = 20_000;

/// Measures inline and coprocessor in turns. Both have a producer's thread and an engine's thread,
/// both send by GSO over a link without a limit.
pub fn throughput(samples: usize) -> Result<Throughput, BenchError> {
    let sink = UdpSocket::bind("127.0.0.1:0")?;
    let mut link = LinkConfig::new("bench", Bitrate::from_mbps(1_000_000), Discipline::Dwcs);
    link.burst = Bytes(64_000);
    let to = sink.local_addr()?;
    let stream = |ring| stream(to, ring, Bytes(8_000_000));
    // Inline a frame leaves its slot when the link takes it, and the link takes 1024: for as many
    // to wait in all, the coprocessor's ring needs twice the slots.
    let (inline, through) = (stream(1024), stream(2048));
    let (engine, mut frame_producers) =
        Engine::start(Clock::shared(), &link, std::slice::from_ref(&inline), None)?;
    let local = options(link, Duration::ZERO, None);
    let socket = local.socket.clone();
    // The same class for both: what is compared is the way of the frames.
    let realtime_request = RealtimeRequest { class: SchedClass::Fair, ..local.realtime_request };
    let _coprocessor = LocalCoprocessor::start(Options { realtime_request, ..local })?;
    let attachment = Attachment::new("bench", socket, None)?;
    let mut shared = add(&attachment, &through)?;
    let mut pairs = Vec::with_capacity(samples);
    for sample in 0..=samples {
        let inline =
            burst(&mut frame_producers[0], || engine.report().streams[0].counts.totals.clone())?;
        let coprocessor = burst(&mut shared, || {
            attachment.report().streams.first().map(|s| s.counts.totals.clone()).unwrap_or_default()
        })?;
        // The first pair warms up.
        if sample > 0 {
            pairs.push((inline, coprocessor));
        }
    }
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    Ok(Throughput {
        inline_pps: median(|pair| pair.0),
        coprocessor_pps: median(|pair| pair.1),
        ratio: median(|pair| pair.1 / pair.0),
    })
}

/// Offers a sample's packets as fast as they go; packets a second until the ring was empty again.
fn burst(
    frame_producer: &mut FrameProducer,
    totals: impl Fn() -> selvedge_data_stream::Totals,
) -> Result<f64, BenchError> {
    let (clock, packet) = (Clock::shared(), rtp(1200 - 12 - 20));
    let settled = |t: &selvedge_data_stream::Totals| t.sent + t.dropped.iter().sum::<u64>();
    let before = totals();
    let start = clock.now();
    let end = start + TIMEOUT;
    let mut offered = 0;
    while offered < SAMPLE {
        if frame_producer.enqueue(OFFER, &[&packet]).is_ok() {
            offered += 1;
        } else if clock.now() > end {
            return Err(BenchError::Stuck);
        } else {
            // To yield would lose whole slices to others on a busy machine, on one side more
            // often than on the other.
            std::hint::spin_loop();
        }
    }
    // What still waits is a ring at most, a twentieth of all; both sides alike.
    let took = clock.now().since(start);
    while settled(&totals()) < settled(&before) + SAMPLE {
        if clock.now() > end {
            return Err(BenchError::Stuck);
        }
        clock.sleep_until(clock.now() + Duration::from_millis(5));
    }
    Ok(SAMPLE as f64 / took.as_secs_f64())
}

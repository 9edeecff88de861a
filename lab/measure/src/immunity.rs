//! Whether load on a machine's processors reaches its streams, by where a link is scheduled: two clips and a bulk
//! stream through nodes of this process, beside endless loops (NI coprocessors, section 3.4).
//!
//! Each node has one link, which carries the same frames at the same times; all nodes of a trial run side by side, so
//! that what else the machine does meets all of them. Frames come from `clip` when they are due; packets go over the
//! loopback to the product's own receiver. The threads that offer frames and those that judge are real-time ones, as
//! the paper's streams came from other cards: what differs is where the link is scheduled, and by what.

mod clip;
mod rounds;

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{fs, io, thread};

use selvedge_control_config::{
    LinkConfig, NodeConfig, PageConfig, Placement, SourceUri, StreamConfig,
};
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::rtp::{self, Packet};
use selvedge_data_stream::{Contract, Histogram, Kind, Spec, Window};
use selvedge_node::{Node, NodeOptions, StartError};
use selvedge_os::clock::Clock;
use selvedge_os::socket::SocketError;
use selvedge_place_coprocessor::realtime::{self, RealtimeRequest, SchedClass};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer, payload_max};
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

pub use self::clip::{Clip, ClipError, ClipFrame};
pub use self::rounds::{Campaign, CampaignFigures, NOISE, PERCENTILE_FROM, StreamRow, campaign};
use crate::ordinary::make_ordinary;
use crate::pacing::beside_loops;

/// What the link of each node carries.
pub const LINK: Bitrate = Bitrate::from_kbps(12_000);
/// The largest IP packet.
pub const MTU: Bytes = Bytes(576);
/// A frame's deadline, from when it is due. An intra picture of the larger clip takes half of it on the link.
pub const DELAY: Duration = Duration::from_millis(60);
/// The clips, files of `clips/`, and how much faster than recorded they are played: 400 and 750 packets a second.
pub const CLIPS: [(&str, u64); 2] =
    [("one-by-one-person-detection.mp4", 8), ("car-detection.mp4", 4)];
/// From when all is ready until the first frame is due.
const LEAD: Duration = Duration::from_millis(300);
/// Packets that the bulk stream is ahead, and how often its producer looks for room.
const BULK_AHEAD: u32 = 256;
const BULK_EVERY: Duration = Duration::from_millis(4);
/// How often a bare real-time thread wakes up beside the streams.
const BARE_EVERY: Duration = Duration::from_millis(1);

/// What the threads that offer frames and those that judge run with.
const FIRST: RealtimeRequest = RealtimeRequest { core: None, lock: false, class: SchedClass::Fifo };

/// Where a link is scheduled and sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A thread of the node with the kernel's defaults, as on a kernel that grants nothing: what the thread
    /// requested is taken from it.
    Plain,
    /// A thread of the node, with the short slice and the nice value that the kernel grants.
    Inline,
    /// A process of its own, on the last core.
    Coprocessor,
    /// The same, whose threads are then put into the ordinary class.
    OrdinaryCoprocessor,
    /// A qdisc of the loopback device.
    Kernel,
}

impl Place {
    /// What rows of tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "inline, plain thread",
            Self::Inline => "inline",
            Self::Coprocessor => "coprocessor",
            Self::OrdinaryCoprocessor => "coprocessor, plain thread",
            Self::Kernel => "kernel",
        }
    }

    const fn placement(self) -> Placement {
        match self {
            Self::Plain | Self::Inline => Placement::Inline,
            Self::Coprocessor | Self::OrdinaryCoprocessor => Placement::Coprocessor,
            Self::Kernel => Placement::Kernel,
        }
    }
}

/// One measurement: nodes side by side, each with the same streams.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// Where each node's link is.
    pub places: &'a [Place],
    /// The order in which streams are served.
    pub discipline: Discipline,
    /// Endless loops beside them.
    pub loops: usize,
    /// How long frames come.
    pub lasts: Duration,
}

/// What became of a stream.
#[derive(Clone, Debug)]
pub struct StreamFigures {
    /// The clip.
    pub clip: String,
    /// Frames that were due.
    pub frames: u64,
    /// The share of them that arrived whole by their deadline.
    pub on_time: f64,
    /// The share of them that is decodable: on time, and all that they refer to, too.
    pub decodable: f64,
    /// What arrived, in kbit/s of IP packets.
    pub kbps: f64,
    /// From when a packet's frame was due to the packet's arrival.
    pub waited: Histogram,
}

/// What a trial gave.
#[derive(Clone, Debug)]
pub struct TrialFigures {
    /// The streams of each node, in the order of the places.
    pub streams: Vec<Vec<StreamFigures>>,
    /// How late a real-time thread that does nothing else woke up, each millisecond: what the machine itself gave.
    pub bare: Histogram,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum ImmunityError {
    /// A clip.
    #[error(transparent)]
    Clip(#[from] ClipError),
    /// A node.
    #[error("a node whose link is scheduled by {place}: {why}", place = .0.name(), why = .1)]
    Node(Place, Box<StartError>),
    /// A receiver.
    #[error(transparent)]
    Receiver(#[from] SocketError),
    /// A socket, or a thread's attributes.
    #[error("can't measure: {0}")]
    System(#[from] io::Error),
    /// A thread of the measurement panicked, which it printed.
    #[error("a thread of the measurement broke off")]
    Broken,
}

/// Reads the clips from the folder, or from the one that the sources have.
///
/// # Errors
/// [`ClipError`].
pub fn clips(folder: Option<PathBuf>) -> Result<Vec<Clip>, ClipError> {
    let shipped = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips"));
    let folder = folder.unwrap_or_else(shipped);
    let payload = payload_max(MTU, rtp::IPV4_UDP);
    CLIPS.iter().map(|(file, speed)| Clip::read(&folder.join(file), payload, *speed)).collect()
}

/// Runs a trial.
///
/// # Errors
/// [`ImmunityError`]; nothing runs then.
pub fn measure(trial: &Trial<'_>, clips: &[Clip]) -> Result<TrialFigures, ImmunityError> {
    // Two at once would load each other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let clock = Clock::shared();
    let start = |&place: &Place| Lane::start(place, trial.discipline, clips, clock);
    let lanes: Vec<_> = trial.places.iter().map(start).collect::<Result<_, _>>()?;
    let begins = clock.now() + LEAD;
    let ends = begins + trial.lasts;
    let (streams, bare) = beside_loops(trial.loops, || {
        thread::scope(|scope| {
            let bare = scope.spawn(|| bare(clock, ends));
            let play = |lane: Lane| scope.spawn(move || lane.play(clips, clock, (begins, ends)));
            let played: Vec<_> = lanes.into_iter().map(play).collect();
            let played: Option<Vec<_>> = played.into_iter().map(|lane| lane.join().ok()).collect();
            played.zip(bare.join().ok())
        })
    })
    .ok_or(ImmunityError::Broken)?;
    Ok(TrialFigures { streams, bare })
}

/// When the frame of this number is due, from the beginning: clips are played again and again.
fn due(clip: &Clip, number: u64) -> Duration {
    let frames = clip.frames.len() as u64;
    clip.lasts * (number / frames) + clip.frames[(number % frames) as usize].at
}

/// What arrived of a stream.
#[derive(Clone, Debug, Default)]
struct Arrived {
    bytes: Bytes,
    waited: Histogram,
}

/// Notes each packet's wait.
struct Waits {
    clips: Arc<[Clip]>,
    begins: Arc<OnceLock<Instant>>,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl PacketTap for Waits {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        let tag = Packet::parse(bytes).ok().and_then(|packet| packet.tag);
        let Some((tag, &begins)) = tag.zip(self.begins.get()) else { return };
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let of = &mut arrived[stream];
        of.waited.record(now.since(begins + due(&self.clips[stream], tag.seq.into())));
        of.bytes += Bytes(bytes.len() as u64) + rtp::IPV4_UDP;
    }
}

/// A node with its receivers.
struct Lane {
    node: Node,
    producers: Vec<FrameProducer>,
    bulk: FrameProducer,
    receiver: Receiver,
    begins: Arc<OnceLock<Instant>>,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    /// Takes the bulk stream's packets; nobody reads them.
    _sink: UdpSocket,
}

impl Lane {
    fn start(
        place: Place,
        discipline: Discipline,
        clips: &[Clip],
        clock: Clock,
    ) -> Result<Self, ImmunityError> {
        let sink = UdpSocket::bind("127.0.0.1:0")?;
        let begins = Arc::<OnceLock<Instant>>::default();
        let arrived = Arc::new(Mutex::new(vec![Arrived::default(); clips.len()]));
        let receiver = {
            let waits = Waits {
                clips: clips.into(),
                begins: Arc::clone(&begins),
                arrived: Arc::clone(&arrived),
            };
            thread::scope(|scope| scope.spawn(|| receiver(waits, clock)).join())
                .map_err(|_| ImmunityError::Broken)??
        };
        let link = LinkConfig {
            selection: discipline != Discipline::Fifo,
            mtu: MTU,
            burst: MTU,
            catch_up: Some(Bytes(0)),
            placement: place.placement(),
            core: thread::available_parallelism().ok().map(|cores| cores.get() as u32 - 1),
            ..LinkConfig::new(place.link(), LINK, discipline)
        };
        let mut streams: Vec<_> = receiver.addresses().iter().zip(clips).map(stream).collect();
        streams.push(bulk(sink.local_addr()?));
        let config = NodeConfig {
            name: "immunity".to_owned(),
            page: PageConfig::default(),
            links: vec![link],
            bonds: Vec::new(),
            tunnels: Vec::new(),
            streams,
        };
        let failed = |why| ImmunityError::Node(place, Box::new(why));
        let node = Node::prepare(&config, NodeOptions { clock, ..NodeOptions::default() })
            .map_err(failed)?;
        node.start_sources().map_err(|why| failed(why.into()))?;
        place.take_requests_back()?;
        let names = config.streams.iter().map(|stream| &*stream.spec.name);
        let mut producers: Vec<_> = names
            .map(|name| node.frame_producer(name))
            .collect::<Option<_>>()
            .ok_or(ImmunityError::Broken)?;
        let bulk = producers.pop().ok_or(ImmunityError::Broken)?;
        Ok(Self { node, producers, bulk, receiver, begins, arrived, _sink: sink })
    }

    /// Offers the frames that are due until the end, waits for the last, and judges.
    fn play(
        mut self,
        clips: &[Clip],
        clock: Clock,
        (begins, ends): (Instant, Instant),
    ) -> Vec<StreamFigures> {
        let _ = (self.begins.set(begins), realtime::ask(FIRST));
        let mut offered = vec![0_u64; clips.len()];
        let bulk = [&[0x80, 0x80 | 127][..], &[0; MTU.0 as usize - 100]].concat();
        let mut bulk_at = begins;
        loop {
            let nexts = offered.iter().zip(clips).map(|(&number, clip)| begins + due(clip, number));
            let (stream, at) =
                nexts.enumerate().min_by_key(|&(_, at)| at).expect("there are clips");
            if at.min(bulk_at) >= ends {
                break;
            }
            clock.sleep_until(at.min(bulk_at));
            if bulk_at <= at {
                // Until there is no room.
                while self.bulk.enqueue(FrameMetadata::alone(Kind::Data), &[&bulk]).is_ok() {}
                bulk_at = clock.now() + BULK_EVERY;
                continue;
            }
            let frames = &clips[stream].frames;
            let frame = &frames[(offered[stream] % frames.len() as u64) as usize];
            let packets: Vec<_> = frame.packets.iter().map(Vec::as_slice).collect();
            // What finds no room is a frame lost.
            let _ = self.producers[stream].enqueue_at(at, frame.metadata(), &packets);
            offered[stream] += 1;
        }
        clock.sleep_until(ends + DELAY + LEAD);
        drop(self.node);
        let (snapshots, _) = self.receiver.stop();
        let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let lasted = ends.since(begins).as_secs_f64();
        let judge = |(n, clip): (usize, &Clip)| {
            let share = |frames: Option<u64>| frames.unwrap_or(0) as f64 / offered[n].max(1) as f64;
            StreamFigures {
                clip: clip.name.clone(),
                frames: offered[n],
                on_time: share(snapshots[n].on_time),
                decodable: share(snapshots[n].decodable),
                kbps: arrived[n].bytes.0 as f64 * 8.0 / 1e3 / lasted,
                waited: arrived[n].waited.clone(),
            }
        };
        clips.iter().enumerate().map(judge).collect()
    }
}

/// A receiver whose thread is a real-time one, as the thread is that calls this.
fn receiver(waits: Waits, clock: Clock) -> Result<Receiver, ImmunityError> {
    let _ = realtime::ask(FIRST);
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let reception = |stream| {
        let (clips, begins) = (Arc::clone(&waits.clips), Arc::clone(&waits.begins));
        let deadline = move |seq: u32| {
            let clip: &Clip = &clips[stream];
            Some(*begins.get()? + due(clip, seq.into()) + DELAY)
        };
        let meter = StreamMeter::with_shared_clock(ClockRate::VIDEO, deadline);
        StreamReception { listen, meter }
    };
    let receptions = (0..waits.clips.len()).map(reception).collect();
    let options = ReceiveOptions { tap: Some(Box::new(waits)), ..ReceiveOptions::default() };
    Ok(Receiver::start(clock, receptions, options)?)
}

fn stream((&to, clip): (&SocketAddr, &Clip)) -> StreamConfig {
    let period = Duration(clip.lasts.0 / clip.frames.len() as u64);
    let contract =
        Contract { delay: Some(DELAY), ..Contract::new(period, Window { lose: 1, of: 5 }) };
    let spec = Spec::new(&clip.name, to).with_contract(contract);
    StreamConfig { spec, ..StreamConfig::new(&clip.name, SourceUri::Program, to) }
}

/// The stream that takes what the clips leave, each of its packets due in two seconds.
fn bulk(to: SocketAddr) -> StreamConfig {
    let contract = Contract {
        delay: Some(Duration::from_secs(2)),
        // Where it and the clips are too much for the link, its frames are given up.
        priority: -1,
        ..Contract::new(MTU / LINK, Window { lose: 1, of: 1 })
    };
    let spec = Spec { ring: BULK_AHEAD, ..Spec::new("bulk", to).with_contract(contract) };
    StreamConfig { spec, ..StreamConfig::new("bulk", SourceUri::Program, to) }
}

/// How late a real-time thread wakes up.
fn bare(clock: Clock, ends: Instant) -> Histogram {
    let _ = realtime::ask(FIRST);
    let mut late = Histogram::default();
    loop {
        let at = clock.now() + BARE_EVERY;
        if at >= ends {
            return late;
        }
        clock.sleep_until(at);
        late.record(clock.now().since(at));
    }
}

impl Place {
    const fn link(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Inline => "inline",
            Self::Coprocessor => "coproc",
            Self::OrdinaryCoprocessor => "ordinary",
            Self::Kernel => "kernel",
        }
    }

    /// Takes from the threads that schedule what they requested of the kernel, where the place has it so.
    fn take_requests_back(self) -> io::Result<()> {
        match self {
            Self::Plain => {
                make_ordinary(std::process::id(), Some(&format!("link {}", self.link())))
            }
            Self::OrdinaryCoprocessor => make_ordinary(coprocessor(self.link())?, None),
            Self::Inline | Self::Coprocessor | Self::Kernel => Ok(()),
        }
    }
}

/// The process of the coprocessor that this process started for a link.
fn coprocessor(link: &str) -> io::Result<u32> {
    let parent = format!("PPid:\t{}\n", std::process::id());
    for process in fs::read_dir("/proc")? {
        let process = process?.path();
        let of = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
        let is_of_link = of("cmdline").split('\0').any(|argument| argument == link);
        let number = process.file_name().and_then(|name| name.to_str()?.parse().ok());
        if let (true, Some(number)) = (is_of_link && of("status").contains(&parent), number) {
            return Ok(number);
        }
    }
    Err(io::Error::other(format!(
        "the coprocessor of link {link} is not among this program's processes"
    )))
}

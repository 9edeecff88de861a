//! The paper's three paths of a frame from the disk to the network (Table 4): A, the host's process reads, schedules
//! and sends; B, a reader hands frames to the coprocessor; C, the coprocessor itself reads and sends, from a recording
//! by its own feeder (`read` on its control socket).
//!
//! All three run side by side, a frame each 4 ms on each. A frame's time begins when it is due, and ends with the
//! kernel's stamp at a socket of this machine. It has the paper's three terms: access, until the frame lies in the
//! link's ring; transfer, as long as a bare thread's send of the same packet takes in the same run; sched, the rest:
//! the engine's wake-up and its decision. The files lie in the
//! page cache, as the paper's fast host file system had them. A's threads are ordinary ones, whatever they requested;
//! B's reader stands for the paper's other card, and is a real-time one.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use selvedge_control_config::LinkConfig;
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::rtp::{FrameTag, Header, Packet, packet_len, write_packet};
use selvedge_data_stream::{Kind, References, Spec};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::client::{Attachment, Connection, Program};
use selvedge_place_coprocessor::message::Request;
use selvedge_place_coprocessor::realtime;
use selvedge_place_coprocessor::segment::StreamSegment;
use selvedge_place_engine::engine::{Engine, StreamParams};
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::{BenchError, FIRM, OFFER, Percentiles, add, options, rtp, stream};
use crate::ordinary::make_ordinary;
use crate::pacing::beside_loops;

/// A frame's payload, as in the paper.
const FRAME: usize = 1000;
/// Between frames of a path.
const EVERY: Duration = Duration::from_millis(4);
/// Frames at the beginning that are not counted.
const WARM: usize = 20;
/// From when all is ready to the first frame, and from the last to the end.
const LEAD: Duration = Duration::from_millis(100);
/// Where a descriptor's arrival lies in its slot, and where the slots of a ring begin (docs/coprocessor.md).
const ARRIVAL_AT: u64 = 24;
const SLOTS_AT: u64 = 384;
const SLOT: u64 = 64;

/// One of the paper's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The host's process reads, schedules and sends.
    Inline,
    /// A process that reads feeds the coprocessor's.
    Fed,
    /// The coprocessor's process reads and sends.
    Reads,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Fed, Self::Reads];

    /// The paper's letter.
    #[must_use]
    pub const fn paper_letter(self) -> char {
        match self {
            Self::Inline => 'A',
            Self::Fed => 'B',
            Self::Reads => 'C',
        }
    }
}

/// How paths are measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathOptions {
    /// Frames of each path that count.
    pub frames: usize,
    /// The core that the coprocessor runs on.
    pub core: Option<usize>,
    /// Endless loops beside all paths.
    pub loops: usize,
    /// How much later than it could B's reader hands frames over.
    pub lag: Duration,
    /// Whether C's recording says of all frames but its first that they come a millisecond later.
    pub is_recorded_late: bool,
    /// Whether the coprocessor's threads are put into the ordinary class.
    pub is_ordinary: bool,
}

/// What a path takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathBench {
    /// Which.
    pub path: Path,
    /// A frame's time.
    pub time: Percentiles,
    /// Of that, until the frame lies in the link's ring.
    pub access: Percentiles,
    /// From there on without the transfer, at the median: the wake-up of the engine, and its decision.
    pub sched: Duration,
    /// From before a bare send of the same packet to the receiver's stamp, at the median.
    pub transfer: Duration,
}

/// When the packets of each path came, and behind them those of the bare sends, by their frames' numbers.
type Arrivals = Arc<Mutex<[Vec<(u32, Instant)>; 4]>>;

struct Tap(Arrivals);

impl PacketTap for Tap {
    fn packet(&mut self, path: usize, now: Instant, bytes: &[u8]) {
        if let Some(tag) = Packet::parse(bytes).ok().and_then(|packet| packet.tag) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)[path].push((tag.seq, now));
        }
    }
}

/// Times frames on each path.
///
/// # Errors
/// [`BenchError`].
pub fn paths(options: &PathOptions) -> Result<Vec<PathBench>, BenchError> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arrivals = Arrivals::default();
    let tap = Tap(Arc::clone(&arrivals));
    let receiver = super::apart(|| receiver(tap))?;
    let frames = options.frames + WARM;
    let files = Files::write(frames, u32::from(options.is_recorded_late))?;
    let found = beside_loops(options.loops, || run(options, frames, &files, &receiver))?;
    let _ = receiver.stop();
    let arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    let transfer = found[Path::ALL.len()].since_enqueued(&arrivals[Path::ALL.len()]).median;
    Path::ALL
        .iter()
        .map(|&path| found[path as usize].bench(path, &arrivals[path as usize], transfer))
        .collect()
}

fn receiver(tap: Tap) -> Result<Receiver, BenchError> {
    let _ = realtime::ask(FIRM);
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let reception = |_| StreamReception { listen, meter: StreamMeter::new(ClockRate::VIDEO) };
    let receive = ReceiveOptions { tap: Some(Box::new(tap)), ..ReceiveOptions::default() };
    let started =
        Receiver::start(Clock::shared(), (0..=Path::ALL.len()).map(reception).collect(), receive);
    started.map_err(|error| BenchError::System(std::io::Error::other(error.to_string())))
}

/// When frames of a path were due and when they lay in the link's ring, by number.
struct Sent {
    due: Vec<Instant>,
    enqueued: Vec<Instant>,
}

impl Sent {
    fn bench(
        &self,
        path: Path,
        arrived: &[(u32, Instant)],
        transfer: Duration,
    ) -> Result<PathBench, BenchError> {
        let spans = self.due.iter().zip(&self.enqueued).skip(WARM);
        let access = Percentiles::of(spans.map(|(&due, at)| at.since(due)).collect());
        let time = spans_of(&self.due, arrived);
        if time.samples == 0 {
            return Err(BenchError::Stuck);
        }
        let behind = self.since_enqueued(arrived).median;
        let sched = Duration(behind.0.saturating_sub(transfer.0));
        Ok(PathBench { path, time, access, sched, transfer })
    }

    fn since_enqueued(&self, arrived: &[(u32, Instant)]) -> Percentiles {
        spans_of(&self.enqueued, arrived)
    }
}

/// From these instants to the arrivals of the packets with their numbers.
fn spans_of(from: &[Instant], arrived: &[(u32, Instant)]) -> Percentiles {
    let counted = arrived.iter().filter(|(seq, _)| *seq as usize >= WARM);
    let span = |&(seq, at): &(u32, Instant)| Some(at.since(*from.get(seq as usize)?));
    Percentiles::of(counted.filter_map(span).collect())
}

/// The frames as bytes, and as a recording; removed when dropped.
struct Files {
    bytes: File,
    recording: PathBuf,
}

impl Files {
    fn write(frames: usize, late_ms: u32) -> Result<Self, BenchError> {
        let name = |what: &str| {
            std::env::temp_dir().join(format!("selvedge-bench-{}.{what}", std::process::id()))
        };
        let (plain, recording) = (name("frames"), name("rtpdump"));
        std::fs::write(&plain, vec![9; FRAME * frames])?;
        let bytes = File::open(&plain);
        std::fs::remove_file(&plain)?;
        let files = Self { bytes: bytes?, recording };
        std::fs::write(&files.recording, self::recording(frames, late_ms))?;
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.recording);
    }
}

/// A recording of frames of one packet each, as `selvedge play --record` writes it.
fn recording(frames: usize, late_ms: u32) -> Vec<u8> {
    let mut file = b"#!rtpplay1.0 127.0.0.1/5004\n".to_vec();
    file.extend([0; 16]);
    for n in 0..frames as u32 {
        let packet = packet(n);
        file.extend((packet.len() as u16 + 8).to_be_bytes());
        file.extend((packet.len() as u16).to_be_bytes());
        let late = if n == 0 { 0 } else { late_ms };
        file.extend((n * (EVERY.0 / 1_000_000) as u32 + late).to_be_bytes());
        file.extend(packet);
    }
    file
}

/// The only packet of the frame with this number.
fn packet(n: u32) -> Vec<u8> {
    let tag = FrameTag {
        seq: n,
        kind: Kind::Still,
        referenced: false,
        first: true,
        last: true,
        refs: References::NONE,
        left_ms: 0,
        deadline_ms: 0,
    };
    let header =
        Header { marker: true, payload_type: 96, sequence: n as u16, timestamp: n, ssrc: 1 };
    let mut packet = vec![0; packet_len(FRAME)];
    write_packet(&mut packet, header, tag, &[9; FRAME]);
    packet
}

/// Sends packets from a real-time thread without a link: what a transfer takes.
fn bare(clock: Clock, to: SocketAddr, begins: Instant, frames: usize) -> Result<Sent, BenchError> {
    let _ = realtime::ask(FIRM);
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let mut sent = Sent { due: Vec::new(), enqueued: Vec::new() };
    for n in 0..frames as u32 {
        let (at, packet) = (begins + EVERY * u64::from(n), packet(n));
        clock.sleep_until(at);
        sent.due.push(at);
        sent.enqueued.push(clock.now());
        socket.send_to(&packet, to)?;
    }
    Ok(sent)
}

/// Runs the three paths to their end.
fn run(
    asked: &PathOptions,
    frames: usize,
    files: &Files,
    receiver: &Receiver,
) -> Result<[Sent; 4], BenchError> {
    let clock = Clock::shared();
    // A frame's time on the link is not counted, as a first packet waits for none.
    let named = |name| LinkConfig::new(name, Bitrate::from_mbps(1000), Discipline::Dwcs);
    let params = |path: Path, name: &str| {
        let StreamParams { spec, ssrc } = stream(
            receiver.addresses()[path as usize],
            65_536.min(frames as u32 + 1),
            Bytes(16 << 20),
        );
        StreamParams { spec: Spec { name: name.to_owned(), ..spec }, ssrc }
    };
    let host = params(Path::Inline, "a");
    let (_engine, mut inline) =
        Engine::start(clock, &named("host"), std::slice::from_ref(&host), None)?;
    make_ordinary(std::process::id(), Some("link host"))?;
    let link = named("card");
    let socket = options(link.clone(), Duration::ZERO, None).socket;
    let core = asked.core.map(|core| core.to_string());
    let mut more = vec!["--no-lock"];
    more.extend(core.iter().flat_map(|core| ["--core", core]));
    let attachment =
        Attachment::new("bench", socket.clone(), Some(Program::new(&link, socket.clone(), &more)))?;
    let fed = add(&attachment, &params(Path::Fed, "b"))?;
    let mut card = Connection::open(&socket)?;
    card.ask(Request::Attach { name: "reads".to_owned() }, &[])?;
    if asked.is_ordinary {
        make_ordinary(attachment.link().pid, None)?;
    }
    let begins = clock.now() + LEAD;
    let ends = begins + EVERY * frames as u64 + LEAD;
    let (host, fed, bare, ring) = thread::scope(|scope| -> Result<_, BenchError> {
        let host =
            scope.spawn(|| feed(clock, inline.remove(0), files, begins, frames, Duration::ZERO));
        let fed = scope.spawn(|| {
            let _ = realtime::ask(FIRM);
            feed(clock, fed, files, begins + EVERY * 1 / 3, frames, asked.lag)
        });
        let to = receiver.addresses()[Path::ALL.len()];
        let bare = scope.spawn(move || bare(clock, to, begins + EVERY * 2 / 3, frames));
        clock.sleep_until(begins);
        let spec = params(Path::Reads, "c").spec;
        let file = files.recording.display().to_string();
        let request = Request::Read { stream: spec, file, repeat: false, ssrc: 1, stack: None };
        let (_, memory) = card.ask(request, &[])?;
        if asked.is_ordinary {
            // The reader's thread, too.
            make_ordinary(attachment.link().pid, None)?;
        }
        let ring = memory.into_iter().next().ok_or(BenchError::Stuck)?;
        let joined = |thread: thread::ScopedJoinHandle<'_, Result<_, BenchError>>| {
            thread.join().unwrap_or(Err(BenchError::Stuck))
        };
        let (host, fed, bare) = (joined(host)?, joined(fed)?, joined(bare)?);
        clock.sleep_until(ends + LEAD);
        Ok((host, fed, bare, ring))
    })?;
    let arrivals = arrivals(StreamSegment::open(ring)?, frames)?;
    let first = *arrivals.first().ok_or(BenchError::Stuck)?;
    // The feeder counts from its first frame, which is due when it is read.
    let due = (0..frames as u64).map(|n| first + EVERY * n).collect();
    Ok([host, fed, Sent { due, enqueued: arrivals }, bare])
}

/// Reads each frame when it is due and hands it over: when each was due, and when it lay in the ring.
fn feed(
    clock: Clock,
    mut producer: FrameProducer,
    files: &Files,
    begins: Instant,
    frames: usize,
    lag: Duration,
) -> Result<Sent, BenchError> {
    let mut packet = rtp(FRAME);
    let mut sent = Sent { due: Vec::new(), enqueued: Vec::new() };
    for n in 0..frames as u64 {
        let at = begins + EVERY * n;
        clock.sleep_until(at);
        clock.sleep_until_exact(clock.now() + lag, lag);
        files.bytes.read_exact_at(&mut packet[12..], n * FRAME as u64)?;
        let arrival = clock.now();
        producer.enqueue_at(arrival, OFFER, &[&packet]).map_err(|_| BenchError::Stuck)?;
        sent.due.push(at);
        sent.enqueued.push(arrival);
    }
    Ok(sent)
}

/// When each frame of a stream lay in its ring, by the descriptors that are still in the slots.
fn arrivals(segment: StreamSegment, frames: usize) -> Result<Vec<Instant>, BenchError> {
    let memory = File::from(segment.file().try_clone()?);
    let at = |n: usize| -> Result<Instant, BenchError> {
        let mut bytes = [0; 8];
        let slot = SLOTS_AT + n as u64 % u64::from(segment.ring()) * SLOT;
        memory.read_exact_at(&mut bytes, segment.ring_at() as u64 + slot + ARRIVAL_AT)?;
        Ok(Instant(u64::from_ne_bytes(bytes)))
    };
    (0..frames).map(at).collect()
}

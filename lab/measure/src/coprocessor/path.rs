//! The paper's three paths of a frame from the disk to the network: A, the producer's process
//! schedules and sends; B, a process that reads the disk feeds the coprocessor; C, the coprocessor
//! itself reads and sends.
//!
//! One frame at a time, from before it is read to its arrival at a socket of this machine by the
//! kernel's stamp, so that only its own way counts. The file lies in the page cache, as the paper's
//! fast host file system had it.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use selvedge_control_config::LinkConfig;
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_os::clock::{Clock, pin_to_core};
use selvedge_place_engine::engine::Engine;
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::one_read::SingleRead;
use super::{BenchError, LocalCoprocessor, OFFER, Percentiles, TIMEOUT, add, options, rtp, stream};
use selvedge_place_coprocessor::client::{Attachment, Program};

/// A frame's payload, as in the paper.
const FRAME: usize = 1000;
/// Frames of the file, read round and round.
const FRAMES: u64 = 256;

/// One of the paper's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The producer's process schedules and sends.
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

/// What a path takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathBench {
    /// Which.
    pub path: Path,
    /// A frame's time.
    pub time: Percentiles,
}

/// Notes when the newest packet came, by the kernel's stamp.
struct Arrivals(Arc<AtomicU64>);

impl PacketTap for Arrivals {
    fn packet(&mut self, _stream: usize, now: Instant, _bytes: &[u8]) {
        self.0.store(now.0, Ordering::Release);
    }
}

/// A path at work; what runs for it stops when it is dropped.
struct RunningPath {
    frame_producer: FrameProducer,
    arrival: Arc<AtomicU64>,
    spans: Vec<Duration>,
    _receiver: Receiver,
    _engine: Option<Engine>,
    _attachment: Option<Attachment>,
    _local: Option<LocalCoprocessor>,
}

impl RunningPath {
    fn new(path: Path, core: Option<usize>) -> Result<Self, BenchError> {
        let arrival = Arc::new(AtomicU64::new(0));
        let clock = Clock::shared();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let receptions =
            vec![StreamReception { listen, meter: StreamMeter::new(ClockRate::VIDEO) }];
        let tap: Option<Box<dyn PacketTap>> = Some(Box::new(Arrivals(Arc::clone(&arrival))));
        let receive = ReceiveOptions { tap, ..ReceiveOptions::default() };
        let receiver = Receiver::start(clock, receptions, receive)
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        let to = receiver.addresses()[0];
        // 15 Mbit/s: a frame's time on it is not counted, since a first packet waits for none.
        let link = LinkConfig::new("bench", Bitrate::from_mbps(15), Discipline::Dwcs);
        let stream = stream(to, 64, Bytes(1 << 20));
        let lane = |frame_producer, engine, attachment, local| Self {
            frame_producer,
            arrival: Arc::clone(&arrival),
            spans: Vec::new(),
            _receiver: receiver,
            _engine: engine,
            _attachment: attachment,
            _local: local,
        };
        let options = options(link.clone(), Duration::ZERO, core);
        let socket = options.socket.clone();
        Ok(match path {
            Path::Inline => {
                let streams = std::slice::from_ref(&stream);
                let (engine, mut frame_producers) = Engine::start(clock, &link, streams, None)?;
                lane(frame_producers.remove(0), Some(engine), None, None)
            }
            Path::Fed => {
                let core = core.map(|core| core.to_string());
                let mut more = vec!["--watch", "0 us", "--no-lock"];
                more.extend(core.iter().flat_map(|core| ["--core", core]));
                let program = Program::new(&link, socket.clone(), &more);
                let attachment = Attachment::new("bench", socket, Some(program))?;
                lane(add(&attachment, &stream)?, None, Some(attachment), None)
            }
            Path::Reads => {
                let local = LocalCoprocessor::start(options)?;
                let attachment = Attachment::new("bench", socket, None)?;
                lane(add(&attachment, &stream)?, None, Some(attachment), Some(local))
            }
        })
    }

    /// One frame, from the file to the receiver.
    fn frame(
        &mut self,
        clock: Clock,
        mut read: impl FnMut(&mut [u8]) -> std::io::Result<()>,
    ) -> Result<(), BenchError> {
        // Long enough that everybody sleeps again.
        clock.sleep_until(clock.now() + Duration::from_millis(1));
        let mut packet = rtp(FRAME);
        self.arrival.store(0, Ordering::Release);
        let start = clock.now();
        read(&mut packet[12..])?;
        self.frame_producer.enqueue(OFFER, &[&packet]).map_err(|_| BenchError::Stuck)?;
        let end = start + TIMEOUT;
        let at = loop {
            match self.arrival.load(Ordering::Acquire) {
                0 if clock.now() > end => return Err(BenchError::Stuck),
                0 => clock.sleep_until(clock.now() + Duration::from_micros(50)),
                at => break at,
            }
        };
        self.spans.push(Instant(at).since(start));
        Ok(())
    }
}

/// Times so many frames on each path, in turns. The coprocessor runs on `core`, if one is given.
pub fn paths(samples: usize, core: Option<usize>) -> Result<Vec<PathBench>, BenchError> {
    super::apart(|| paths_here(samples, core))
}

fn paths_here(samples: usize, core: Option<usize>) -> Result<Vec<PathBench>, BenchError> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let name = std::env::temp_dir().join(format!("selvedge-bench-{}.frames", std::process::id()));
    std::fs::write(&name, vec![9; FRAME * FRAMES as usize])?;
    let file = File::open(&name)?;
    std::fs::remove_file(&name)?;
    let _ = core.map(|core| pin_to_core(1 - core.min(1)));
    let clock = Clock::shared();
    let mut ring = SingleRead::new(FRAME)?;
    let mut lanes = Path::ALL
        .into_iter()
        .map(|path| RunningPath::new(path, core).map(|lane| (path, lane)))
        .collect::<Result<Vec<_>, _>>()?;
    for n in 0..samples as u64 + 20 {
        let at = n % FRAMES * FRAME as u64;
        for (path, lane) in &mut lanes {
            match path {
                Path::Reads => lane.frame(clock, |bytes| ring.read(&file, at, bytes))?,
                _ => lane.frame(clock, |bytes| file.read_exact_at(bytes, at))?,
            }
        }
    }
    let warm = |(path, lane): (Path, RunningPath)| PathBench {
        path,
        time: Percentiles::of(lane.spans.into_iter().skip(20).collect()),
    };
    Ok(lanes.into_iter().map(warm).collect())
}

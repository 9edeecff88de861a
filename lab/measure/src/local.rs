//! What rings inside one host cost, beside the bare calls of the kernel that they are built on, in one run:
//! two processes; a ring and its bare call in turn, event by event. How soon a processor that sleeps is
//! awake changes from one tenth of a second to the next; so it is the same for both. For
//! `selvedge-lab bench events` and the experiments.
//!
//! This process is the source; the other, which the caller starts, runs [`peer`]. Both share an arena of a few
//! words, by which they agree on what is measured, and by which bare calls are measured.

mod arena;
mod channel;
mod child;

use std::path::Path;
use std::process::{Child, Command};

use selvedge_comm_local::{JoinError, SinkOptions, Source, SourceOptions, WakeMethod};
use selvedge_control_event::{Overflow, Wake};
use selvedge_os::clock::{Clock, pin_to_core};
use selvedge_os::seqpacket;
use selvedge_units::{Bytes, Duration};

use self::arena::Arena;

use crate::median;

pub use self::channel::{ChannelCosts, channel};
pub use self::child::peer;

/// Events of this many bytes are sent where nothing else is said.
pub const EVENT: usize = 100;
/// How many events make a batch.
pub const BATCH: usize = 64;
/// Between two events, so that who waits sleeps.
const GAP: Duration = Duration::from_micros(50);
/// The most events of a round, for each way.
pub const EVENTS_MAX: usize = 5000;
/// How long the other process may take for anything.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The other process can't be started.
    #[error("can't start the other process: {0}")]
    Start(#[source] std::io::Error),
    /// It ended, or does not answer.
    #[error("the other process is gone, or does not answer")]
    Gone,
    /// The channel can't be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Memory or sockets.
    #[error("{0}")]
    System(String),
}

/// A way of one event from this process to the other, which sleeps or watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchPath {
    /// `futex(2)` on a shared word, and nothing else.
    BareFutex,
    /// A ring whose sink sleeps on its futex.
    RingFutex,
    /// `eventfd(2)`, written and read.
    BareEvent,
    /// A ring whose sink waits for its eventfd.
    RingEvent,
    /// A queued real-time signal, waited for.
    BareSignal,
    /// A ring whose sink waits for a real-time signal.
    RingSignal,
    /// A shared word that the other process watches.
    BareWatched,
    /// A ring whose sink watches it.
    RingWatched,
    /// A ring, 64 events at once, whose sink sleeps on its futex.
    RingBatch,
    /// A ring, 64 events at once, whose sink watches it.
    RingBatchWatched,
    /// A ring, 64 events at once and the next at once, whose sink sleeps on its futex when it has all.
    RingBatches,
    /// A ring, as many events as go through; nothing is lost.
    RingFlood,
}

impl BenchPath {
    /// All of them: each ring behind what it is built on.
    pub const ALL: [Self; 12] = [
        Self::BareFutex,
        Self::RingFutex,
        Self::BareEvent,
        Self::RingEvent,
        Self::BareSignal,
        Self::RingSignal,
        Self::BareWatched,
        Self::RingWatched,
        Self::RingBatch,
        Self::RingBatchWatched,
        Self::RingBatches,
        Self::RingFlood,
    ];

    /// For tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BareFutex => "futex, bare",
            Self::RingFutex => "ring, futex",
            Self::BareEvent => "eventfd, bare",
            Self::RingEvent => "ring, eventfd",
            Self::BareSignal => "signal, bare",
            Self::RingSignal => "ring, signal",
            Self::BareWatched => "word, watched",
            Self::RingWatched => "ring, watched",
            Self::RingBatch => "ring, 64 at once",
            Self::RingBatchWatched => "ring, 64, watched",
            Self::RingBatches => "ring, 64 after 64",
            Self::RingFlood => "ring, flood",
        }
    }

    /// What a ring is to be compared with.
    #[must_use]
    pub const fn floor(self) -> Option<Self> {
        match self {
            Self::RingFutex | Self::RingBatch => Some(Self::BareFutex),
            Self::RingEvent => Some(Self::BareEvent),
            Self::RingSignal => Some(Self::BareSignal),
            Self::RingWatched | Self::RingBatchWatched => Some(Self::BareWatched),
            _ => None,
        }
    }

    /// Whether events come 64 at once.
    #[must_use]
    pub const fn is_batch(self) -> bool {
        matches!(self, Self::RingBatch | Self::RingBatchWatched)
    }

    /// Whether events come without a pause, and the whole is what counts.
    #[must_use]
    pub const fn is_flood(self) -> bool {
        matches!(self, Self::RingBatches | Self::RingFlood)
    }

    /// Ways that are measured in turn: each bare call with what is built on it.
    fn measured_groups(ways: &[Self]) -> Vec<Vec<Self>> {
        let mut all: Vec<Vec<Self>> = Vec::new();
        for &way in ways {
            let ground = |way: Self| way.floor().unwrap_or(way);
            match all.iter_mut().find(|turn| ground(turn[0]) == ground(way)) {
                Some(turn) => turn.push(way),
                None => all.push(vec![way]),
            }
        }
        // The other process gets the list without its order.
        all.iter_mut().for_each(|turn| turn.sort_unstable_by_key(|way| *way as u32));
        all
    }

    /// How the other process wants its events, if it takes them from a ring.
    fn sink(self) -> Option<SinkOptions> {
        let options = SinkOptions { full: Overflow::Block, bound: 8192, ..SinkOptions::default() };
        let number = signal();
        match self {
            Self::RingFutex | Self::RingBatch => Some(options),
            Self::RingEvent => Some(SinkOptions { wake_method: WakeMethod::Event, ..options }),
            Self::RingSignal => Some(SinkOptions {
                wake_method: WakeMethod::Signal { number, every: false },
                ..options
            }),
            Self::RingWatched | Self::RingBatchWatched => {
                Some(SinkOptions { spin: TIMEOUT, ..options })
            }
            Self::RingBatches => Some(SinkOptions { room: Bytes(512 * 1024), ..options }),
            Self::RingFlood => Some(SinkOptions {
                spin: Duration::from_millis(1),
                room: Bytes(512 * 1024),
                ..options
            }),
            _ => None,
        }
    }
}

/// The signal that is sent.
fn signal() -> i32 {
    libc::SIGRTMIN() + 5
}

/// What was found for one way.
#[derive(Clone, Debug, PartialEq)]
pub struct PathResult {
    /// Which way.
    pub path: BenchPath,
    /// From before it was sent to when the other process had it, in microseconds: the median of the rounds'
    /// medians. For batches, a whole batch; none for floods.
    pub median_us: Option<f64>,
    /// What 99 of 100 took at most.
    pub p99_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
    /// The median beside that of the floor, which had its turn with it: the median of the rounds.
    pub over_floor: Option<f64>,
    /// Nanoseconds an event, for batches and floods.
    pub event_ns: Option<f64>,
}

/// The other process, ended when this is dropped.
struct ChildProcess(Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures ways, `rounds` times `events` each, at most [`EVENTS_MAX`]; the floods are `flood` events
/// long. `start` gives the command that runs [`peer`] with the text that it is handed. Members meet in
/// `directory`, which must be this user's and exist. Calls `tell` before each round.
pub fn measure(
    directory: &Path,
    start: &dyn Fn(&str) -> Command,
    ways: &[BenchPath],
    (rounds, events, flood): (usize, usize, usize),
    report_round: &mut dyn FnMut(usize),
) -> Result<Vec<PathResult>, BenchError> {
    let _ = pin_to_core(0);
    let clock = Clock::shared();
    let path = directory.join("peer");
    let system = |error: std::io::Error| BenchError::System(error.to_string());
    let listener = seqpacket::listen_at(&path).map_err(system)?;
    let spec = directory.display().to_string();
    let other = ChildProcess(start(&spec).spawn().map_err(BenchError::Start)?);
    let arena = Arena::create().map_err(|error| BenchError::System(error.to_string()))?;
    if !seqpacket::wait_readable(&listener, TIMEOUT) {
        return Err(BenchError::Gone);
    }
    let socket = seqpacket::accept(&listener).map_err(system)?.ok_or(BenchError::Gone)?;
    arena.send_fds(&socket).map_err(system)?;
    let mut near = ThisSide { arena, clock, directory, pid: other.0.id(), phase: 0 };
    let mut all: Vec<Vec<Vec<u32>>> = vec![Vec::new(); ways.len()];
    let turns = BenchPath::measured_groups(ways);
    for round in 0..rounds {
        report_round(round);
        for turn in &turns {
            let is_flood = turn[0].is_flood();
            let took = near.run(turn, if is_flood { flood } else { events.min(EVENTS_MAX) })?;
            for (n, way) in turn.iter().enumerate() {
                let place = ways.iter().position(|one| one == way).unwrap_or(0);
                all[place].push(took.iter().skip(n).step_by(turn.len()).copied().collect());
            }
        }
    }
    near.arena.phase(u32::MAX, &[], 0);
    drop(other);
    Ok(ways.iter().map(|&way| found(way, ways, &all, flood)).collect())
}

/// This side of the measurements.
struct ThisSide<'d> {
    arena: Arena,
    clock: Clock,
    directory: &'d Path,
    pid: u32,
    phase: u32,
}

impl ThisSide<'_> {
    /// Sends so many events each way, in turn; how long they took, in nanoseconds.
    fn run(&mut self, turn: &[BenchPath], count: usize) -> Result<Vec<u32>, BenchError> {
        self.phase += 1;
        self.arena.phase(self.phase, turn, count);
        let mut source = None;
        if turn.iter().any(|way| way.sink().is_some()) {
            let options = SourceOptions { wake: Wake::All, patience: TIMEOUT };
            let mut joined = Source::join(self.directory, "bench", options)?;
            self.until(|_| joined.sinks().count() == 1)?;
            source = Some(joined);
        }
        let phase = self.phase;
        self.until(|near| near.arena.is_ready(phase))?;
        match &mut source {
            Some(source) if turn[0].is_flood() => {
                self.flood(source, count)?;
                Ok(self.arena.found(1))
            }
            source => {
                for n in 0..count * turn.len() {
                    self.send(turn[n % turn.len()], source.as_mut())?;
                    self.until(|near| near.arena.seen() == n as u64 + 1)?;
                }
                Ok(self.arena.found(count * turn.len()))
            }
        }
    }

    /// Sends one event, or a batch, after a pause.
    fn send(&self, way: BenchPath, source: Option<&mut Source>) -> Result<(), BenchError> {
        self.clock.sleep_until(self.clock.now() + GAP);
        match source {
            Some(source) if way.sink().is_some() => {
                let most = if way.is_batch() { BATCH } else { 1 };
                let mut bytes = [0; EVENT];
                bytes[..8].copy_from_slice(&self.clock.now().0.to_ne_bytes());
                for _ in 0..most {
                    source.enqueue(&bytes, None).map_err(|_| BenchError::Gone)?;
                }
                source.flush();
            }
            _ => self.arena.call(way, self.clock, self.pid),
        }
        Ok(())
    }

    /// Sends numbered events without a pause, until all have come.
    fn flood(&self, source: &mut Source, count: usize) -> Result<(), BenchError> {
        let mut bytes = [0; EVENT];
        for n in 0..count {
            bytes[..8].copy_from_slice(&(n as u64).to_ne_bytes());
            source.enqueue(&bytes, None).map_err(|_| BenchError::Gone)?;
            if n % BATCH == BATCH - 1 {
                source.flush();
            }
        }
        source.flush();
        self.until(|near| near.arena.seen() == count as u64)
    }

    fn until(&self, mut is_so: impl FnMut(&Self) -> bool) -> Result<(), BenchError> {
        let end = self.clock.now() + TIMEOUT;
        let mut looks = 0_u32;
        while !is_so(self) {
            looks += 1;
            if looks.is_multiple_of(256) {
                // Both may have one processor.
                std::thread::yield_now();
                if self.clock.now() > end {
                    return Err(BenchError::Gone);
                }
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

fn found(way: BenchPath, ways: &[BenchPath], all: &[Vec<Vec<u32>>], flood: usize) -> PathResult {
    let of = |way: BenchPath| ways.iter().position(|one| *one == way).map(|place| &all[place]);
    let rounds = of(way).map_or(&[][..], |rounds| &rounds[..]);
    if way.is_flood() {
        // The other process noted the whole, in microseconds.
        let took = |round: &Vec<u32>| f64::from(round[0]) * 1e3 / flood as f64;
        let event_ns = Some(median(rounds.iter().map(took)));
        let none = None;
        let (median_us, p99_us, max_us, over_floor) = (none, none, none, none);
        return PathResult { path: way, median_us, p99_us, max_us, over_floor, event_ns };
    }
    let middle = |round: &Vec<u32>| median(round.iter().map(|ns| f64::from(*ns)));
    let median_ns = median(rounds.iter().map(middle));
    let mut sorted: Vec<u32> = rounds.iter().flatten().copied().collect();
    sorted.sort_unstable();
    let at = |per_mille: usize| {
        let place = (sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1));
        sorted.get(place).map(|ns| f64::from(*ns) / 1e3)
    };
    let over_floor = way.floor().and_then(of).map(|floor| {
        let beside = rounds.iter().zip(floor);
        median(beside.map(|(ours, floor)| middle(ours) / middle(floor)))
    });
    let event_ns = way.is_batch().then_some(median_ns / BATCH as f64);
    let median_us = Some(median_ns / 1e3);
    PathResult { path: way, median_us, p99_us: at(990), max_us: at(1000), over_floor, event_ns }
}

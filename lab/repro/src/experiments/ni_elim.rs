//! `ni-elim`: traffic elimination. A step discards frames before they are copied to the kernel; the engine's
//! processor time and the bandwidth of a program that only moves memory (STREAM's triad) show what is spared.
//!
//! All shares of a round run one after the other on the same engine, and are compared within the round.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use selvedge_control_config::LinkConfig;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Kind as FrameKind, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::extensions::TABLE;
use selvedge_place_coprocessor::message::Request;
use selvedge_place_engine::engine::{Stage, StreamParams};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bitrate, Bytes, Duration};

use super::placed::{Placement, Sender, sender};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::{median, pause};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-elim",
    title: "What is spared by discarding frames before they are copied",
    paper: super::NI,
    section: "sections 1.4 and 2.2.5",
    kind: Kind::Real,
    claim: "processor time and bytes copied to the kernel fall with what is discarded",
    edits: &[Edit {
        name: "no-step",
        what: "no step discards: all frames are copied, and the kernel discards them behind the copy",
    }],
    run,
};

/// Of ten frames, those that are discarded.
const SHARES: [u32; 3] = [0, 3, 6];
const ROUNDS: usize = 5;
/// Packets of a frame, and bytes of each with its RTP header.
const PACKETS: usize = 25;
const PACKET: usize = 1180;
/// Ten frames come together this often: 2.4 Gbit/s.
const EVERY: Duration = Duration::from_millis(1);
/// Longer than from one report to the next.
const REPORTED: Duration = Duration::from_millis(260);
/// Numbers of each of the three arrays of the triad: 32 MiB, far beyond a core's own cache.
const NUMBERS: usize = 4 << 20;

/// What was measured at one share, by frame that came.
#[derive(Clone, Copy)]
struct Measured {
    /// The part of the offered bytes that the kernel got.
    copied: f64,
    cpu_us: f64,
    /// The product's estimate of the processor time spared.
    estimate_us: f64,
    /// GB/s of the triad.
    triad: f64,
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let long = params.amount(Duration::from_secs(1), Duration::from_millis(230));
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        "By placement and share discarded: medians of five rounds, ratios within a round",
        &[
            "placement",
            "discarded",
            "copied of offered",
            "CPU us/frame",
            "of none discarded",
            "spared us/frame",
            "by estimate",
            "triad GB/s",
            "of none discarded",
        ],
    );
    for (placement, name) in
        [(Placement::Inline, "inline"), (Placement::Coprocessor, "coprocessor")]
    {
        let bench = Bench::start(placement, !params.is_edited("no-step"))?;
        let rounds = bench.rounds(long, &mut |what| watch.go_on(&format!("{name}, {what}")))?;
        let of = |n: usize, value: &dyn Fn(&[Measured; 3], Measured) -> f64| {
            median(rounds.iter().map(|round| value(round, round[n])))
        };
        let cpu = |n| of(n, &|round, one| one.cpu_us / round[0].cpu_us);
        let spared = |n| of(n, &|round, one| round[0].cpu_us - one.cpu_us);
        let estimate = |n| of(n, &|_, one| one.estimate_us);
        for (n, share) in SHARES.into_iter().enumerate() {
            table.row([
                Cell::from(name),
                Cell::from(format!("{} %", share * 10).as_str()),
                Cell::rounded(of(n, &|_, one| one.copied), 3),
                Cell::rounded(of(n, &|_, one| one.cpu_us), 1),
                Cell::rounded(cpu(n), 2),
                Cell::rounded(spared(n), 1),
                Cell::rounded(estimate(n), 1),
                Cell::rounded(of(n, &|_, one| one.triad), 2),
                Cell::rounded(of(n, &|round, one| one.triad / round[0].triad), 2),
            ]);
        }
        let copied = [1, 2].map(|n| of(n, &|_, one| one.copied));
        outcome.claim(
            format!("{name}: the kernel gets only what is not discarded"),
            (copied[0] - 0.7).abs() < 0.01 && (copied[1] - 0.4).abs() < 0.01,
            format!("{:.1} and {:.1} % of the bytes", copied[0] * 100.0, copied[1] * 100.0),
        );
        outcome.claim(
            format!("{name}: processor time falls with what is discarded"),
            cpu(2) < 0.8 && cpu(2) < cpu(1) && cpu(1) < 0.95,
            format!("{:.2} at 30 %, {:.2} at 60 % of that at none", cpu(1), cpu(2)),
        );
        let ratio = estimate(2) / spared(2);
        outcome.claim(
            format!("{name}: the estimate of processor time spared is right by a factor of two"),
            (0.5..2.0).contains(&ratio),
            format!("{:.1} us by estimate, {:.1} us measured", estimate(2), spared(2)),
        );
    }
    outcome.tables.push(table);
    outcome.note(
        "CPU is the time of the engine's thread, or of the coprocessor's process; the producer's, \
         which writes each frame into the pool, is not spared. The triad shares two processors with \
         both, so its bandwidth follows their processor time as well as their copies.",
    );
    Ok(outcome)
}

/// An engine that sends to a socket which nobody reads, and the triad beside it.
struct Bench {
    clock: Clock,
    frame_producer: FrameProducer,
    sender: Sender,
    /// Of the process that sends.
    pid: u32,
    /// Its threads that send.
    threads: BTreeSet<String>,
    triad: Triad,
    _sink: UdpSocket,
}

impl Bench {
    fn start(placement: Placement, discards: bool) -> Result<Self, RunError> {
        let needs = |error: std::io::Error| RunError::Needs(format!("a socket: {error}"));
        let sink = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).map_err(needs)?;
        let to = sink.local_addr().map_err(needs)?;
        let mut link = LinkConfig::new("elim", Bitrate::from_mbps(1_000_000), Discipline::Dwcs);
        link.burst = Bytes(64_000);
        let contract = Contract {
            delay: Some(Duration::from_secs(1)),
            ..Contract::new(Duration::from_micros(100), Window { lose: 1, of: 5 })
        };
        let spec = Spec { ring: 1024, pool: Bytes(16 << 20), ..Spec::new("s", to) };
        let stream = StreamParams { spec: spec.with_contract(contract), ssrc: 1 };
        let clock = Clock::shared();
        let own = std::process::id();
        let before = threads(own);
        // The same class for both, and no waiting for frames awake: only work counts.
        let arguments = ["--watch", "0 us", "--class", "fair", "--no-lock"];
        let (sender, producers) = sender(placement, clock, &link, &[stream], &arguments)?;
        let discard = TABLE.iter().find(|entry| entry.name == "discard" && discards);
        let arguments = serde_json::json!({ "kind": FrameKind::Data.name() });
        let pid = match (&sender, discard) {
            (Sender::Inline { engine }, Some(discard)) => {
                let step = (discard.make)(&arguments);
                engine.load(
                    "thin",
                    Stage::Arrival,
                    step.map_err(|e| RunError::Needs(e.to_string()))?,
                );
                own
            }
            (Sender::Coprocessor { attachment }, Some(discard)) => {
                let [name, extension, point] = ["thin", discard.name, "arrival"].map(String::from);
                let answer = attachment.ask(Request::Load { name, extension, point, arguments });
                answer.map_err(|error| RunError::Needs(error.to_string()))?;
                attachment.link().pid
            }
            (Sender::Inline { .. }, None) => own,
            (Sender::Coprocessor { attachment }, None) => attachment.link().pid,
        };
        let mut threads = threads(pid);
        if pid == own {
            threads.retain(|thread| !before.contains(thread));
        }
        let producer = producers.into_iter().next();
        let frame_producer = producer.ok_or_else(|| RunError::Needs("a stream".into()))?;
        Ok(Self { clock, frame_producer, sender, pid, threads, triad: Triad::start(), _sink: sink })
    }

    /// Each share in turn, round by round; the first round warms up.
    fn rounds(
        mut self,
        long: Duration,
        say: &mut dyn FnMut(&str) -> Result<(), RunError>,
    ) -> Result<Vec<[Measured; 3]>, RunError> {
        let mut rounds = Vec::new();
        self.measure(SHARES[0], EVERY * 50);
        for round in 1..=ROUNDS {
            say(&format!("round {round} of {ROUNDS}"))?;
            rounds.push(SHARES.map(|share| self.measure(share, long)));
        }
        Ok(rounds)
    }

    fn measure(&mut self, share: u32, long: Duration) -> Measured {
        let before = (self.sender.report(), self.cpu());
        let (start, moved) = (self.clock.now(), self.triad.moved());
        let (mut turn, mut packet) = (start, vec![0; PACKET]);
        packet[..2].copy_from_slice(&[0x80, 0x80 | 96]);
        let packets = [&*packet; PACKETS];
        while turn.since(start) < long {
            for n in 0..10 {
                let kind = if n < share { FrameKind::Data } else { FrameKind::Still };
                // A frame that finds no room is no frame that came.
                let _ = self.frame_producer.enqueue(FrameMetadata::alone(kind), &packets);
            }
            turn += EVERY;
            self.clock.sleep_until(turn);
        }
        let moved = self.triad.moved() - moved;
        let triad = moved as f64 / 1e9 / self.clock.now().since(start).as_secs_f64();
        pause(REPORTED);
        let after = (self.sender.report(), self.cpu());
        let bytes = |report: &LinkReport| {
            let counts = report.streams.first().map(|stream| stream.counts.clone());
            let counts = counts.unwrap_or_default();
            let settled = counts.totals.sent + counts.totals.dropped.iter().sum::<u64>();
            (counts.sent_bytes, counts.totals.dropped_bytes, settled as f64)
        };
        let (first, last) = (bytes(&before.0), bytes(&after.0));
        let (sent, dropped) = (last.0 - first.0, last.1 - first.1);
        let frames = (last.2 - first.2).max(1.0);
        let estimate = after.0.send_cost.of(dropped).unwrap_or_default();
        Measured {
            copied: sent.0 as f64 / ((sent + dropped).0 as f64).max(1.0),
            cpu_us: after.1.since(before.1).as_secs_f64() * 1e6 / frames,
            estimate_us: estimate.as_secs_f64() * 1e6 / frames,
            triad,
        }
    }

    /// Processor time of the threads that send, as an instant of theirs.
    fn cpu(&self) -> selvedge_units::Instant {
        let of = |thread: &String| {
            let path = format!("/proc/{}/task/{thread}/schedstat", self.pid);
            fs::read_to_string(path).ok()?.split(' ').next()?.parse::<u64>().ok()
        };
        selvedge_units::Instant(self.threads.iter().filter_map(of).sum())
    }
}

/// The threads of a process, by number.
fn threads(pid: u32) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.flatten().filter_map(|task| task.file_name().into_string().ok()).collect()
}

/// STREAM's triad on a thread of its own, until it is dropped.
struct Triad {
    moved: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Triad {
    fn start() -> Self {
        let (moved, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (Arc::clone(&moved), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let [mut a, b, c] = [0.0, 1.0, 2.0].map(|n| vec![n; NUMBERS]);
            let (piece, mut at) = (NUMBERS / 64, 0);
            while !stopped.load(Ordering::Relaxed) {
                let sources = b[at..at + piece].iter().zip(&c[at..at + piece]);
                for (to, (b, c)) in a[at..at + piece].iter_mut().zip(sources) {
                    *to = b + 3.0 * c;
                }
                std::hint::black_box(&mut a);
                count.fetch_add(3 * size_of::<f64>() as u64 * piece as u64, Ordering::Relaxed);
                at = (at + piece) % NUMBERS;
            }
        });
        Self { moved, stop, thread: Some(thread) }
    }

    /// Bytes read and written so far.
    fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}

impl Drop for Triad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic there has been printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

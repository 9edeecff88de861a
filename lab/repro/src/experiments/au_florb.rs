//! `au-florb`: one source to many receivers, with a null interface: what a further receiver costs, over packet size and
//! fan-out.
//!
//! The FLORB reads a word once and writes it to several ports in the same cycle. Here the source writes a frame once, and
//! the engine sends it to each receiver from there. Packets go nowhere (`send = "null"`), as with the paper's null
//! interface, so that what is measured is the engine's own work.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use selvedge_control_config::{LinkConfig, Sending};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Kind as FrameKind, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{LocalPoller, SteppedEngine, StreamParams};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Bitrate, Bytes, Duration};

use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::median;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "au-florb",
    title: "One source, many receivers: cost of each over packet size and fan-out",
    paper: "Aurora at MIT",
    section: "section 2, 3.9 FLORB",
    kind: Kind::Real,
    claim: "a payload is written once, and a further receiver costs at most 1.1 times the bare send of it",
    edits: &[
        Edit {
            name: "own-pools",
            what: "each receiver is a stream with a pool of its own, into which the source writes every frame",
        },
        Edit {
            name: "kernel",
            what: "the packets of all receivers go through the kernel, those of the bare send don't",
        },
    ],
    run,
};

/// Payload bytes of each packet.
const SIZES: [usize; 4] = [64, 256, 700, 1400];
/// Receivers.
const FANS: [usize; 4] = [1, 4, 16, 64];
/// Packets of a frame.
const PACKETS: usize = 10;
const ROUNDS: usize = 7;

/// An engine needs sockets and events.
fn needs(why: impl ToString) -> RunError {
    RunError::Needs(why.to_string())
}

/// One way to many receivers.
struct FlorbBench {
    clock: Clock,
    engine: SteppedEngine<LocalPoller>,
    sources: Vec<FrameProducer>,
}

/// What a way took for its frames.
#[derive(Clone, Copy, Default)]
struct Took {
    /// In the source, and in the engine.
    source: Duration,
    engine: Duration,
    /// Bytes of packets that the source wrote.
    written: Bytes,
}

impl FlorbBench {
    /// To so many receivers, from one source if `shares`, else each from its own.
    fn new(receivers: usize, shares: bool, sending: Sending) -> Result<Self, RunError> {
        let clock = Clock::new();
        let mut link = LinkConfig::new("florb", Bitrate::from_mbps(1_000_000), Discipline::Dwcs);
        (link.sending, link.burst, link.catch_up) =
            (sending, Bytes(64_000_000), Some(Bytes(64_000_000)));
        let (poller, registrar) = LocalPoller::new(clock, &link, receivers).map_err(needs)?;
        let mut engine = SteppedEngine::new(clock, &link, poller, None).map_err(needs)?;
        let mut sources: Vec<FrameProducer> = Vec::new();
        for n in 0..receivers {
            let contract = Contract {
                delay: Some(Duration::from_secs(10)),
                ..Contract::new(Duration::from_millis(20), Window { lose: 1, of: 5 })
            };
            // The discard port, for the packets that go through the kernel.
            let spec = Spec { ring: 16, ..Spec::new("s", ([127, 0, 0, 1], 9).into()) };
            let params = StreamParams { spec: spec.with_contract(contract), ssrc: n as u32 };
            let stop = Arc::new(AtomicBool::new(false));
            if !shares {
                let (new, producer) = registrar.stream(&params, None, stop);
                sources.push(producer(engine.attach(new)));
                continue;
            }
            let (new, producer) = registrar.receiver(&params, None, stop);
            let producer = producer(engine.attach(new));
            match sources.first().and_then(FrameProducer::receivers) {
                Some(others) => drop(others.join(producer)),
                None => sources.push(producer),
            }
        }
        Ok(Self { clock, engine, sources })
    }

    /// Sends frames to all receivers.
    fn send(&mut self, payload: usize, frames: usize) -> Took {
        let mut packet = vec![7; 12 + payload];
        packet[..2].copy_from_slice(&[0x80, 96]);
        let packets = [&packet[..]; PACKETS];
        let mut took = Took::default();
        let frame_len =
            Bytes((PACKETS * (2 + selvedge_data_stream::rtp::packet_len(payload))) as u64);
        let receivers = self.sources.first().and_then(FrameProducer::receivers);
        let before = receivers.as_ref().map(|receivers| receivers.written());
        for _ in 0..frames {
            let begun = self.clock.now();
            for source in &mut self.sources {
                // Its room is never short: each frame is sent before the next.
                if source.enqueue(FrameMetadata::alone(FrameKind::Still), &packets).is_ok() {
                    took.written += frame_len;
                }
            }
            let offered = self.clock.now();
            took.source += offered.since(begun);
            while self.engine.turn().is_none() || self.engine.link().backlog() > Bytes(0) {}
            took.engine += self.clock.now().since(offered);
        }
        if let (Some(receivers), Some(before)) = (receivers, before) {
            took.written = receivers.written() - before;
        }
        took
    }
}

/// One size and fan-out.
struct Point {
    size: usize,
    fan: usize,
    /// ns of the engine for a packet: to a receiver that shares, and the bare send.
    shared: f64,
    bare: f64,
    /// The median of their ratios within a round.
    ratio: f64,
    /// ns of source and engine for a packet to a receiver, shared and bare.
    whole: [f64; 2],
    /// Bytes that the source wrote for each byte of the frames, and bytes that the engine copied.
    written: f64,
    copied: Bytes,
}

fn point(params: &Params, (size, fan): (usize, usize)) -> Result<Point, RunError> {
    let frames = params.amount(6400, 640) / fan;
    let shares = !params.is_edited("own-pools");
    let sending = params.edited("kernel", Sending::Null, Sending::Gso);
    let mut shared = FlorbBench::new(fan, shares, sending)?;
    let mut bare = FlorbBench::new(fan, false, Sending::Null)?;
    let mut rounds = Vec::new();
    let mut written = Bytes(0);
    for round in 0..=ROUNDS {
        let both = (shared.send(size, frames), bare.send(size, frames));
        // The first warms up.
        if round > 0 {
            written += both.0.written;
            rounds.push(both);
        }
    }
    let packets = (frames * fan * PACKETS) as f64;
    let each = |time: Duration| time.0 as f64 / packets;
    let engine = |took: &Took| each(took.engine);
    let whole = |took: &Took| each(took.engine + took.source);
    let frame = PACKETS * (2 + selvedge_data_stream::rtp::packet_len(size));
    Ok(Point {
        size,
        fan,
        shared: median(rounds.iter().map(|(shared, _)| engine(shared))),
        bare: median(rounds.iter().map(|(_, bare)| engine(bare))),
        ratio: median(rounds.iter().map(|(shared, bare)| engine(shared) / engine(bare))),
        whole: [
            median(rounds.iter().map(|(shared, _)| whole(shared))),
            median(rounds.iter().map(|(_, bare)| whole(bare))),
        ],
        written: written.0 as f64 / (frame * frames * ROUNDS) as f64,
        copied: shared.engine.copied(),
    })
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        "By payload of a packet and receivers: medians of seven rounds, ratios within a round",
        &[
            "payload B",
            "receivers",
            "engine ns/packet",
            "bare ns/packet",
            "ratio",
            "with source ns/packet",
            "of own streams",
            "Gbit/s",
            "written of offered",
        ],
    );
    let mut points = Vec::new();
    for size in SIZES {
        for fan in FANS {
            watch.go_on(&format!("{size} B, {fan} receivers"))?;
            points.push(point(params, (size, fan))?);
        }
    }
    for point in &points {
        table.row([
            Cell::from(point.size as u64),
            Cell::from(point.fan as u64),
            Cell::rounded(point.shared, 0),
            Cell::rounded(point.bare, 0),
            Cell::rounded(point.ratio, 2),
            Cell::rounded(point.whole[0], 0),
            Cell::rounded(point.whole[1], 0),
            Cell::rounded(point.size as f64 * 8.0 / point.whole[0], 2),
            Cell::rounded(point.written, 3),
        ]);
    }
    outcome.tables.push(table);
    let most = points.iter().map(|point| point.written).fold(0.0, f64::max);
    let copied: Bytes = points.iter().map(|point| point.copied).sum();
    outcome.claim(
        "the source writes each payload once for all receivers, and none is copied for any",
        most <= 1.0 && copied == Bytes(0),
        format!("at most {most:.3} bytes written for each byte of the frames, {copied} copied"),
    );
    let further = points.iter().filter(|point| point.fan > 1);
    let ratio = median(further.map(|point| point.ratio));
    outcome.claim(
        "a further receiver costs the engine at most 1.1 times the bare send of it",
        ratio <= 1.1,
        format!("{ratio:.2} times, the median over sizes and fan-outs"),
    );
    outcome.note(
        "The bare send is that of as many ordinary streams, each with a pool of its own and the same contract. Both go to \
         a null interface, so that the kernel's own copy of each packet is in neither.",
    );
    Ok(outcome)
}

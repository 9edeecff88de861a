//! `ss-real`: Figures 8 and 9 in real time: four streams with frames of mixed sizes share a link of
//! the engine, and of a coprocessor, 1:1:2:4. Producers that are ahead show the shares, producers that
//! send bursts every 15 ms the delays, beside the same bursts in virtual time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use selvedge_control_config::LinkConfig;
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::replay::{Arrival, Arrivals, Trace, TraceStream};
use selvedge_data_sched::{Discipline, StreamIndex, Tree};
use selvedge_data_stream::{Contract, Kind as Picture, Late, Spec, WhenFull};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::StreamParams;
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::four_queues::{BY_PERIODS, BY_WINDOWS, EIGHTHS, EQUAL, SHARES, promised, sent};
use super::placed::{self, Placement};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::{median, pause};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ss-real",
    title: "Bandwidth and delay of four streams, 1:1:2:4, in real time",
    paper: super::SS,
    section: "Figures 8 and 9, section 5.1",
    kind: Kind::Real,
    claim: "dwcs shares frames and wfq bytes within 2 % in the middle second; bursts wait as in virtual time",
    edits: &[EQUAL, FIFO],
    run,
};

const FIFO: Edit = Edit { name: "fifo", what: "frames leave in the order of their arrival" };

const LINK: Bitrate = Bitrate::from_mbps(48);
/// A frame is one packet with a payload of so many bytes, evenly spread.
const PAYLOAD: (usize, usize) = (100, 1300);
/// Of a frame on the wire at the mean: the payload, our headers, RTP, UDP and IP.
const MEAN: Bytes = Bytes(700 + 20 + 12 + 28);
/// Frames that a producer is ahead.
const AHEAD: u32 = 256;
/// Frames of each stream in a burst, and slots from burst to burst: two thirds of the link.
const BURST: u64 = 20;
const EVERY_SLOTS: u64 = 120;

/// How a link is given the shares.
#[derive(Clone, Copy)]
struct SharingRule {
    name: &'static str,
    discipline: Discipline,
    contract: fn(u64) -> Contract,
    /// Whether it shares bytes, not frames.
    by_bytes: bool,
}

/// The time of a mean frame on the link, which is a slot of the virtual one.
fn slot() -> Duration {
    MEAN / LINK
}

/// Periods half as long again, in slots: where the promises take the whole link, each time that the machine
/// keeps from it makes all frames late for ever.
fn relaxed(contract: Contract) -> Contract {
    Contract { period: contract.period * 3 / 2, late: Late::Send, ..contract }
}

fn in_real_time(contract: Contract) -> Contract {
    let contract = relaxed(contract);
    Contract { period: slot() * contract.period.0, ..contract }
}

const PERIODS: SharingRule = SharingRule {
    name: BY_PERIODS.name,
    discipline: BY_PERIODS.discipline,
    contract: |share| in_real_time(BY_PERIODS.contract(share)),
    by_bytes: false,
};

/// Not by windows, which decide between equal deadlines: in real time hardly any two are.
const WAYS: [SharingRule; 2] = [
    PERIODS,
    SharingRule {
        name: "wfq, weights 1, 1, 2, 4",
        discipline: Discipline::Wfq,
        contract: |share| Contract {
            weight: share as u32,
            ..in_real_time(BY_WINDOWS.contract(share))
        },
        by_bytes: true,
    },
];

/// A packet that came: its stream, its burst, how long it was on the way.
#[derive(Clone, Copy)]
struct Arrived {
    stream: usize,
    burst: u64,
    waited: Duration,
}

type Seen = Arc<Mutex<Vec<Arrived>>>;

struct Tap(Seen);

impl PacketTap for Tap {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        let long = |from_end: usize| {
            let at = bytes.len().checked_sub(from_end)?;
            Some(u64::from_be_bytes(bytes[at..at + 8].try_into().ok()?))
        };
        if let (Some(burst), Some(offered)) = (long(16), long(8)) {
            let waited = now.since(Instant(offered));
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(Arrived { stream, burst, waited });
        }
    }
}

/// Frames of sizes that look random and are the same in each run.
struct FrameSource {
    producer: FrameProducer,
    packet: Vec<u8>,
    random: u64,
}

impl FrameSource {
    fn new(producer: FrameProducer, seed: u64) -> Self {
        let mut packet = vec![0; 12 + PAYLOAD.1];
        packet[..2].copy_from_slice(&[0x80, 0x80 | 96]);
        Self { producer, packet, random: seed | 1 }
    }

    /// Whether there was room for the next frame.
    fn offer(&mut self, now: Instant, burst: u64) -> bool {
        let random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (least, most) = PAYLOAD;
        let end = 12 + least + ((random >> 33) as usize) % (most - least + 1);
        for (n, long) in [burst, now.0].into_iter().enumerate() {
            let at = end - 16 + n * 8;
            self.packet[at..at + 8].copy_from_slice(&long.to_be_bytes());
        }
        let metadata = FrameMetadata::alone(Picture::Data);
        let is_taken = self.producer.enqueue_at(now, metadata, &[&self.packet[..end]]).is_ok();
        if is_taken {
            self.random = random;
        }
        is_taken
    }
}

/// What receives, what sends, and the streams' producers.
struct Bench {
    receiver: Receiver,
    seen: Seen,
    sender: placed::Sender,
    sources: Vec<FrameSource>,
}

impl Bench {
    fn start(placement: Placement, rule: SharingRule, params: &Params) -> Result<Self, RunError> {
        let clock = Clock::shared();
        let seen = Seen::default();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let reception = |_| StreamReception { listen, meter: StreamMeter::new(ClockRate::VIDEO) };
        let tap: Option<Box<dyn PacketTap>> = Some(Box::new(Tap(Arc::clone(&seen))));
        let options = ReceiveOptions { tap, ..ReceiveOptions::default() };
        let receiver = Receiver::start(clock, SHARES.map(reception).into(), options)?;
        let discipline = params.edited(FIFO.name, rule.discipline, Discipline::Fifo);
        let queue = Some(Bytes(4 << 20));
        let link =
            LinkConfig { selection: false, queue, ..LinkConfig::new("uplink", LINK, discipline) };
        let streams = receiver.addresses().iter().zip(promised(params)).map(|(&to, share)| {
            let full = WhenFull::Block;
            let spec = Spec { ring: AHEAD, pool: Bytes(1 << 20), full, ..Spec::new("s", to) };
            StreamParams { spec: spec.with_contract((rule.contract)(share)), ssrc: 1 }
        });
        let (sender, producers) =
            placed::sender(placement, clock, &link, &streams.collect::<Vec<_>>(), &[])?;
        let source = |(n, producer)| FrameSource::new(producer, params.seed ^ n);
        Ok(Self { receiver, seen, sender, sources: (1..).zip(producers).map(source).collect() })
    }
}

/// Each stream's part of what left in each second, while all producers are ahead.
fn shares(
    placement: Placement,
    rule: SharingRule,
    seconds: u64,
    params: &Params,
) -> Result<Vec<[f64; 4]>, RunError> {
    let Bench { receiver, sender, sources, .. } = Bench::start(placement, rule, params)?;
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = sources
        .into_iter()
        .map(|mut source| {
            let (stop, clock) = (Arc::clone(&stop), Clock::shared());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let now = clock.now();
                    if !source.offer(now, 0) {
                        clock.sleep_until(now + Duration::from_millis(1));
                    }
                }
            })
        })
        .collect();
    let counts = || {
        let report = sender.report();
        [0, 1, 2, 3].map(|n| {
            let counts = report.of_stream(n).map(|stream| &stream.counts);
            counts.map_or(0, |all| if rule.by_bytes { all.sent_bytes.0 } else { all.totals.sent })
        })
    };
    pause(Duration::from_millis(700));
    let mut before = counts();
    let mut all = Vec::new();
    for _ in 0..seconds {
        pause(Duration::from_secs(1));
        let now = counts();
        let sent = [0, 1, 2, 3].map(|n| (now[n] - before[n]) as f64);
        let sum = sent.iter().sum::<f64>().max(1.0);
        all.push(sent.map(|one| one / sum));
        before = now;
    }
    stop.store(true, Ordering::Relaxed);
    for producer in producers {
        // A panic there has been printed already; what left was counted.
        let _ = producer.join();
    }
    drop(sender);
    let _ = receiver.stop();
    Ok(all)
}

/// What arrived of so many bursts.
fn bursts(placement: Placement, bursts: u64, params: &Params) -> Result<Vec<Arrived>, RunError> {
    let Bench { receiver, seen, sender, mut sources } = Bench::start(placement, PERIODS, params)?;
    let clock = Clock::shared();
    let began = clock.now() + Duration::from_millis(100);
    for burst in 0..bursts {
        clock.sleep_until(began + slot() * (EVERY_SLOTS * burst));
        let now = clock.now();
        for _ in 0..BURST {
            sources.iter_mut().for_each(|source| {
                source.offer(now, burst);
            });
        }
    }
    pause(slot() * (EVERY_SLOTS * 10));
    drop(sender);
    let _ = receiver.stop();
    Ok(std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// How long each stream's frames of the same bursts wait at the mean in virtual time, where each frame takes
/// as long.
fn in_virtual_time(bursts: u64) -> [f64; 4] {
    let streams = SHARES.map(|share| TraceStream {
        id: format!("share {share}"),
        contract: relaxed(BY_PERIODS.contract(share)),
        first_deadline: None,
    });
    let arrivals = |burst| {
        let at = Instant(EVERY_SLOTS * burst);
        let arrival = move |n: u32| Arrival { at, stream: StreamIndex(n), size: MEAN };
        (0..BURST).flat_map(move |_| (0..4).map(arrival))
    };
    let trace = Trace {
        discipline: BY_PERIODS.discipline,
        ticks: EVERY_SLOTS * bursts,
        streams: streams.into(),
        tree: Tree::default(),
        arrivals: Arrivals::Listed((0..bursts).flat_map(arrivals).collect()),
    };
    let mut waits = [0; 4];
    // A frame has arrived when its slot is over.
    sent(&trace).for_each(|(t, stream, _)| waits[stream] += t % EVERY_SLOTS + 1);
    waits.map(|sum| sum as f64 / (BURST * bursts) as f64 * slot().as_secs_f64() * 1e3)
}

/// The middle burst's mean wait of a stream, in milliseconds.
fn middle_wait(arrived: &[Arrived], stream: usize, bursts: u64) -> f64 {
    let mut of_bursts = vec![(0.0, 0.0); bursts as usize];
    for one in arrived.iter().filter(|one| one.stream == stream) {
        if let Some((sum, count)) = of_bursts.get_mut(one.burst as usize) {
            *sum += one.waited.as_secs_f64() * 1e3;
            *count += 1.0;
        }
    }
    median(of_bursts.iter().filter(|burst| burst.1 > 0.0).map(|(sum, count)| sum / count))
}

fn show_shares(
    seconds: u64,
    outcome: &mut Outcome,
    params: &Params,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let mut table = Table::new(
        "Parts of the link by stream, the middle of all seconds",
        &["", "placement", "stream 1", "stream 2", "stream 3", "stream 4", "off, %"],
    );
    let due = SHARES.map(|share| share as f64 / EIGHTHS as f64);
    let promised = [Cell::from("promised"), Cell::None].into_iter();
    table.row(promised.chain(due.map(Cell::from)).chain([Cell::None]));
    for rule in WAYS {
        for (name, placement) in PLACEMENTS {
            watch.go_on(&format!("{seconds} s, {}, {name}", rule.name))?;
            let all = shares(placement, rule, seconds, params)?;
            let middle = [0, 1, 2, 3].map(|n| median(all.iter().map(|second| second[n])));
            let off = middle.iter().zip(due).map(|(is, due)| (is / due - 1.0).abs());
            let off = off.fold(0.0, f64::max) * 100.0;
            let cells = middle.map(|part| Cell::rounded(part, 4));
            let names = [Cell::from(rule.name), Cell::from(name)];
            table.row(names.into_iter().chain(cells).chain([Cell::rounded(off, 2)]));
            outcome.claim(
                format!("{}, {name}: shares within 2 % in the middle second", rule.name),
                off <= 2.0,
                format!("off by {off:.2} %"),
            );
        }
    }
    outcome.tables.push(table);
    Ok(())
}

const PLACEMENTS: [(&str, Placement); 2] =
    [("engine", Placement::Inline), ("coprocessor", Placement::Coprocessor)];

fn show_delays(
    count: u64,
    outcome: &mut Outcome,
    params: &Params,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let mut table = Table::new(
        format!(
            "Mean wait in bursts of {BURST} frames every {:.1} ms, in ms, the middle of {count}",
            (slot() * EVERY_SLOTS).as_secs_f64() * 1e3
        ),
        &["", "stream 1", "stream 2", "stream 3", "stream 4"],
    );
    let virtually = in_virtual_time(count);
    let cells = virtually.map(|wait| Cell::rounded(wait, 2));
    table.row([Cell::from("virtual time")].into_iter().chain(cells));
    for (name, placement) in PLACEMENTS {
        watch.go_on(&format!("{count} bursts, {name}"))?;
        let arrived = bursts(placement, count, params)?;
        let waits = [0, 1, 2, 3].map(|stream| middle_wait(&arrived, stream, count));
        let cells = waits.map(|wait| Cell::rounded(wait, 2));
        table.row([Cell::from(name)].into_iter().chain(cells));
        outcome.claim(
            format!("{name}: stream 4 waits least, then 3, then 1 and 2"),
            waits[3] < waits[2] && waits[2] < waits[0].min(waits[1]),
            format!("{:.2} < {:.2} < {:.2}, {:.2} ms", waits[3], waits[2], waits[0], waits[1]),
        );
        let off = waits.iter().zip(virtually).map(|(is, due)| (is / due - 1.0).abs());
        let off = off.fold(0.0, f64::max) * 100.0;
        outcome.claim(
            format!("{name}: each stream waits within a quarter of its wait in virtual time"),
            off <= 25.0,
            format!("off by {off:.0} %"),
        );
    }
    outcome.tables.push(table);
    Ok(())
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    show_shares(params.amount(10, 2), &mut outcome, params, watch)?;
    show_delays(params.amount(1000, 100), &mut outcome, params, watch)?;
    outcome.note(
        "Work-conserving streams on a link of 48 Mbit/s on the loopback; frames of 160 to 1360 bytes \
         on the wire. In virtual time all frames are as long as the mean one. Periods are half as long again \
         as in ss-f8 and ss-f9, so that the promises leave a third of the link. Streams 1 and 2 send more \
         often in bursts than their periods say: their deadlines lie ever further ahead, and they wait for the \
         others. A producer waits for room. A frame that is refused for a full ring would take its deadline \
         with it, and so shift its stream's share.",
    );
    Ok(outcome)
}

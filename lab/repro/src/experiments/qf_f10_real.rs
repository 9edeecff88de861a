//! `qf-f10-real`: the latency bound of `qf-f10` in real time: programs under the dispatcher make packets,
//! a coprocessor sends them in periods of the same length that begin a phase later.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use selvedge_control_config::LinkConfig;
use selvedge_data_cpu::{Config, Task};
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Kind as Picture, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_cpu::class::{self, Tid};
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_place_cpu::members::MemberRule;
use selvedge_place_cpu::player;
use selvedge_place_engine::engine::StreamParams;
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::placed::{self, Placement};
use super::players::need_rights;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::phase::Phase;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f10-real",
    title: "Coordinated processor and packet scheduling: latency by phase, in real time",
    paper: super::QF,
    section: "Figure 10, section 2.4.2",
    kind: Kind::Real,
    claim: "no packet waits longer than phase + period from its making to its transmission",
    edits: &[],
    run,
};

/// Period, service time and phase in milliseconds. The first is the paper's example.
const TASKS: [(u64, u64, u64); 3] = [(30, 6, 15), (20, 4, 5), (40, 8, 40)];
/// Work in place of the whole service time, so that reading clocks and handing over fit in as well.
const WORK: u64 = 85;
const LINK: Bitrate = Bitrate::from_mbps(10);
/// Behind our RTP headers: when its period began, when it was made.
const PAYLOAD: usize = 200;
/// Ordinary programs that never sleep, on the makers' processor.
const HOGS: usize = 2;
/// From when all are ready until they begin.
const LEAD: Duration = Duration::from_millis(200);
/// A packet's time on the link, and what the loopback and the kernel's stamp may add.
const ON_THE_WAY: Duration = Duration::from_millis(1);

/// A packet that came: its stream, when its period began, when it was made, when it came.
type Seen = Arc<Mutex<Vec<(usize, Instant, Instant, Instant)>>>;

struct Tap(Seen);

impl PacketTap for Tap {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        let long = |from_end: usize| {
            let at = bytes.len().checked_sub(from_end)?;
            Some(Instant(u64::from_be_bytes(bytes[at..at + 8].try_into().ok()?)))
        };
        if let (Some(began), Some(made)) = (long(16), long(8)) {
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push((stream, began, made, now));
        }
    }
}

/// A maker's periods in which it had not had its time by the end.
struct MakerReport {
    late: u64,
}

fn phase(n: usize) -> Phase {
    let (period, _, phase) = TASKS[n];
    Phase { period: Duration::from_millis(period), phase: Duration::from_millis(phase) }
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    need_rights()?;
    let seconds = params.amount(30, 4);
    watch.go_on(&format!("{seconds} s of three tasks and their packets"))?;
    let clock = Clock::shared();
    let seen = Seen::default();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let reception = |_| StreamReception { listen, meter: StreamMeter::new(ClockRate::VIDEO) };
    let tap: Option<Box<dyn PacketTap>> = Some(Box::new(Tap(Arc::clone(&seen))));
    let options = ReceiveOptions { tap, ..ReceiveOptions::default() };
    let receiver = Receiver::start(clock, (0..TASKS.len()).map(reception).collect(), options)?;
    let link = LinkConfig { selection: false, ..LinkConfig::new("uplink", LINK, Discipline::Dwcs) };
    let stream = |(n, &to): (usize, &SocketAddr)| {
        let Phase { period, .. } = phase(n);
        // Of a packet that arrives as its period begins, the deadline; it waits for its own period.
        let delay = Some(phase(n).latency_max());
        let window = Window { lose: 0, of: 1 };
        let contract = Contract { delay, work_conserving: false, ..Contract::new(period, window) };
        let spec = Spec { ring: 64, pool: Bytes(1 << 16), ..Spec::new("s", to) };
        StreamParams { spec: spec.with_contract(contract), ssrc: n as u32 }
    };
    let params: Vec<_> = receiver.addresses().iter().enumerate().map(stream).collect();
    let (sender, frame_producers) =
        placed::sender(Placement::Coprocessor, clock, &link, &params, &["--core", "1"])?;
    let made = make(clock, frame_producers, seconds);
    drop(sender);
    let _ = receiver.stop();
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(judge(&made?, &seen, seconds))
}

/// Runs the makers under the dispatcher, beside programs that never sleep, to their end.
fn make(
    clock: Clock,
    frame_producers: Vec<FrameProducer>,
    seconds: u64,
) -> Result<Vec<MakerReport>, RunError> {
    let failed = |why: String| RunError::Rights(why);
    let cpu = class::processors().pop().unwrap_or(0);
    let start = Arc::new(OnceLock::new());
    let stop = Arc::new(AtomicBool::new(false));
    let dispatcher = Dispatcher::new(cpu, Config::default());
    let dispatcher = dispatcher.map_err(|error| failed(error.to_string()))?;
    let (sender, receiver) = channel();
    let makers: Vec<_> = frame_producers
        .into_iter()
        .enumerate()
        .map(|(n, frame_producer)| {
            let (sender, start): (Sender<(usize, Tid)>, _) = (sender.clone(), Arc::clone(&start));
            thread::spawn(move || {
                let _ = class::confine(0, cpu);
                let _ = sender.send((n, class::this_thread()));
                maker(n, clock, frame_producer, *start.wait(), seconds)
            })
        })
        .collect();
    let hogs: Vec<_> = (0..HOGS)
        .map(|_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let _ = class::confine(0, cpu);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let admitted: Result<(), RunError> =
        receiver.iter().take(TASKS.len()).try_for_each(|(n, tid)| {
            let (period, service, _) = TASKS[n];
            let window = Window { lose: 0, of: 1 };
            let task =
                Task::new(Duration::from_millis(period), Duration::from_millis(service), window);
            let task = task.map_err(|error| failed(error.to_string()))?;
            let admitted = dispatcher.admit(&task, MemberRule::Threads(vec![tid]), false);
            admitted.map(|_| ()).map_err(|refused| failed(refused.to_string()))
        });
    start.get_or_init(|| clock.now() + LEAD);
    let made = makers.into_iter().map(|one| one.join().unwrap_or(MakerReport { late: u64::MAX }));
    let made = made.collect();
    stop.store(true, Ordering::Relaxed);
    drop(dispatcher);
    for hog in hogs {
        // It ends by the flag; what it returns is nothing.
        let _ = hog.join();
    }
    admitted.map(|()| made)
}

/// Makes a packet in each period, and hands it over as one that arrived when the period began.
fn maker(
    n: usize,
    clock: Clock,
    mut frame_producer: FrameProducer,
    start: Instant,
    seconds: u64,
) -> MakerReport {
    let (period, service, _) = TASKS[n];
    let (period, work) =
        (Duration::from_millis(period), Duration::from_micros(service * 10 * WORK));
    let mut packet = vec![0; 12 + PAYLOAD];
    packet[..2].copy_from_slice(&[0x80, 0x80 | 96]);
    let offer = FrameMetadata {
        kind: Picture::Data,
        referenced: false,
        closes: true,
        refs: None,
        timestamp: 0,
    };
    let (never, mut late) = (AtomicBool::new(false), 0);
    for k in 0..periods(n, seconds) {
        let begins = start + period * k;
        clock.sleep_until(begins);
        if clock.now() < begins + period {
            player::burn(work, &never);
        }
        let made = clock.now();
        if made > begins + period {
            late += 1;
            continue;
        }
        let end = packet.len();
        packet[end - 16..end - 8].copy_from_slice(&begins.0.to_be_bytes());
        packet[end - 8..].copy_from_slice(&made.0.to_be_bytes());
        // A packet that finds no room does not come, and is counted there.
        let _ = frame_producer.enqueue_at(begins, offer, &[&packet]);
    }
    // What was made last goes up to a phase and a period later.
    clock.sleep_until(clock.now() + phase(n).latency_max() + period);
    MakerReport { late }
}

fn periods(n: usize, seconds: u64) -> u64 {
    seconds * 1000 / TASKS[n].0
}

fn judge(
    made: &[MakerReport],
    seen: &[(usize, Instant, Instant, Instant)],
    seconds: u64,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Latency of packets over {seconds} s, ms"),
        &[
            "period",
            "phase",
            "periods",
            "made late",
            "packets came",
            "mean",
            "highest",
            "phase + period",
        ],
    );
    let (mut beyond, mut early, mut wanted, mut came) = (0, 0, 0, 0);
    let mut highest_share = 0.0_f64;
    for (n, made) in made.iter().enumerate() {
        let phase = phase(n);
        let own = seen.iter().filter(|packet| packet.0 == n);
        let waits: Vec<Duration> =
            own.clone().map(|&(_, _, made, came)| came.since(made)).collect();
        let highest = waits.iter().copied().max().unwrap_or(Duration::ZERO);
        beyond += waits.iter().filter(|&&wait| wait > phase.latency_max() + ON_THE_WAY).count();
        early += own.filter(|&&(_, began, _, came)| came < began + phase.phase).count();
        wanted += periods(n, seconds);
        came += waits.len() as u64;
        let most = phase.latency_max().as_millis_f64();
        highest_share = highest_share.max(highest.as_millis_f64() / most);
        let mean = waits.iter().map(|wait| wait.as_millis_f64()).sum::<f64>();
        table.row([
            Cell::rounded(phase.period.as_millis_f64(), 0),
            Cell::rounded(phase.phase.as_millis_f64(), 0),
            periods(n, seconds).into(),
            made.late.into(),
            (waits.len() as u64).into(),
            Cell::rounded(mean / waits.len().max(1) as f64, 2),
            Cell::rounded(highest.as_millis_f64(), 2),
            Cell::rounded(most, 0),
        ]);
    }
    outcome.tables.push(table);
    outcome.claim(
        "no packet waits longer than phase + period",
        beyond == 0 && came > 0,
        format!("{beyond} of {came}; the highest has {:.0} % of its bound", highest_share * 100.0),
    );
    outcome.claim(
        "a packet of 99 in 100 periods is made and sent by its deadline",
        came * 100 >= wanted * 99,
        format!("{came} of {wanted}"),
    );
    outcome.claim(
        "none goes before its own period, a phase after the task's",
        early == 0,
        format!("{early} of {came}"),
    );
    outcome.note(
        "The tasks are threads under the DWCS dispatcher over SCHED_FIFO, beside two ordinary endless \
         programs on the same processor; the packets go through a coprocessor, as streams that are \
         not work-conserving. A packet's latency ends with the kernel's stamp at the receiving \
         socket; 1 ms is allowed for its time on the link and the loopback.",
    );
    outcome
}

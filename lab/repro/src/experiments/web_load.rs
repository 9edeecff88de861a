//! Two streams on a link beside a web server under load, as in the paper's section 3.4.2: the same
//! frames over the same link, scheduled inline or in a coprocessor.
//!
//! The server is nginx, the load is wrk, both on all cores. The streams' producers are ahead of the
//! link, as the paper's are, so that bandwidth and queueing delay say how well the link is kept.

mod shown;

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use selvedge_control_config::LinkConfig;
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Kind, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::client::{Attachment, Program, producer_params};
use selvedge_place_coprocessor::realtime::{self, RealtimeRequest, SchedClass};
use selvedge_place_coprocessor::server::default_socket;
use selvedge_place_engine::engine::{Engine, StreamParams};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::web_server::{self, ChildGuard, ServerProgram, WebServer, missing, pause};
use crate::experiment::{Params, ProgressWatch, RunError};

pub(super) use self::shown::show;

/// Where the scheduler runs.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Placement {
    Inline,
    Coprocessor,
}

/// Of the processors' time, for the web server and its clients.
const LOADS: [f64; 4] = [0.0, 0.45, 0.6, 0.9];
const STREAMS: usize = 2;
/// The paper's streams have 250 to 260 kb/s each.
const LINK: Bitrate = Bitrate::from_kbps(520);
/// Bytes of a packet on the wire, and of its payload behind our headers.
const PACKET: Bytes = Bytes(280);
const PAYLOAD: usize = 280 - 28 - 12 - 20;
/// Frames that a stream's producer is ahead.
const AHEAD: u32 = 128;

/// What a packet's arrival told: its stream, when it was offered, when it came.
type Seen = Arc<Mutex<Vec<(usize, Instant, Instant)>>>;

struct Tap(Seen);

impl PacketTap for Tap {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        let offered = bytes.get(bytes.len() - 8..).and_then(|end| end.try_into().ok());
        let offered = Instant(offered.map_or(0, u64::from_be_bytes));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((stream, offered, now));
    }
}

/// Where a bare real-time thread is held up longer than this, us, the machine has been kept from us:
/// a virtual one by its host. What is measured then says nothing of a scheduler, and is taken again.
const FLOOR_MAX: f64 = 1000.0;
const TAKES: u32 = 3;

/// What was measured under one load.
pub(super) struct Measured {
    load: f64,
    cpu: f64,
    /// Of each stream, kbit/s.
    rates: Vec<f64>,
    /// Of all packets, seconds.
    delay: f64,
    /// By how much packets follow the ones before them later than the rate has it, us: 99.9th
    /// percentile and longest.
    late: (f64, f64),
    /// By how much a thread of the coprocessor's class that does nothing else wakes up late, us,
    /// 99.9th percentile: what the kernel itself gives meanwhile.
    floor: f64,
    /// How many times it was measured; this is the last.
    taken: u32,
    /// kbit/s of all streams, second by second.
    by_second: Vec<(f64, f64)>,
    /// Seconds that the packets of each second had waited, at the mean.
    delays: Vec<(f64, f64)>,
}

/// Runs the experiment under each load.
pub(super) fn run(
    placement: Placement,
    params: &Params,
    watch: &dyn ProgressWatch,
) -> Result<Vec<Measured>, RunError> {
    let seconds = params.amount(30, 6);
    let web = WebServer::start(&NGINX, &[b'x'; 64 * 1024])?;
    watch.go_on("the web server's limit")?;
    let limit = web_server::rate_of(web.wrk(CONNECTIONS, 2))?;
    let mut all = Vec::new();
    for load in LOADS {
        let mut taken = 0;
        let measured = loop {
            taken += 1;
            let again = if taken > 1 { ", once more" } else { "" };
            watch.go_on(&format!("{seconds} s at {:.0} % web load{again}", load * 100.0))?;
            let wrk =
                if load > 0.0 { Some(self::load(&web, load * limit, seconds + 2)?) } else { None };
            pause(Duration::from_millis(500));
            let measured = streams(placement, load, seconds);
            drop(wrk);
            let measured = measured?;
            if measured.floor < FLOOR_MAX || taken == TAKES {
                break Measured { taken, ..measured };
            }
        };
        all.push(measured);
    }
    Ok(all)
}

impl Measured {
    pub(super) const fn lateness_us(&self) -> f64 {
        self.late.0
    }

    pub(super) fn bandwidth(&self) -> f64 {
        self.rates.iter().sum()
    }

    pub(super) const fn delay(&self) -> f64 {
        self.delay
    }
}

/// What the link is fed and sent by; all of it stops when it is dropped.
pub(super) enum Sender {
    Inline { engine: Engine },
    Coprocessor { attachment: Attachment },
}

impl Sender {
    pub(super) fn report(&self) -> LinkReport {
        match self {
            Self::Inline { engine } => engine.report(),
            Self::Coprocessor { attachment } => attachment.report(),
        }
    }
}

fn streams(placement: Placement, load: f64, seconds: u64) -> Result<Measured, RunError> {
    let clock = Clock::shared();
    let seen = Seen::default();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let reception = |_| StreamReception { listen, meter: StreamMeter::new(ClockRate::VIDEO) };
    let tap: Option<Box<dyn PacketTap>> = Some(Box::new(Tap(Arc::clone(&seen))));
    let options = ReceiveOptions { tap, ..ReceiveOptions::default() };
    let receiver = Receiver::start(clock, (0..STREAMS).map(reception).collect(), options)?;
    let link = LinkConfig {
        selection: false,
        queue: Some(Bytes(1 << 20)),
        ..LinkConfig::new("uplink", LINK, Discipline::Dwcs)
    };
    let contract = Contract {
        delay: Some(Duration::from_secs(60)),
        ..Contract::new(Duration::from_micros(8600), Window { lose: 1, of: 5 })
    };
    let stream = |&to: &SocketAddr| {
        let spec = Spec { ring: AHEAD, pool: Bytes(1 << 20), ..Spec::new("s", to) };
        StreamParams { spec: spec.with_contract(contract), ssrc: 1 }
    };
    let params: Vec<_> = receiver.addresses().iter().map(stream).collect();
    let (sender, frame_producers) = sender(placement, clock, &link, &params, &["--core", "1"])?;
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = frame_producers
        .into_iter()
        .map(|frame_producer| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || produce(clock, frame_producer, &stop))
        })
        .collect();
    let watched = Arc::clone(&stop);
    let bare = thread::spawn(move || bare(clock, &watched));
    let before = cpu();
    pause(Duration::from_secs(seconds));
    let busy = cpu().since(before);
    stop.store(true, Ordering::Relaxed);
    for producer in producers {
        // A panic there has been printed already; what came was measured.
        let _ = producer.join();
    }
    let floor = bare.join().unwrap_or(0.0);
    drop(sender);
    let _ = receiver.stop();
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Measured { floor, ..judge(load, busy, seen, seconds) })
}

/// What sends, and the streams' ends: an engine of this process, or a coprocessor with these arguments.
pub(super) fn sender(
    placement: Placement,
    clock: Clock,
    link: &LinkConfig,
    params: &[StreamParams],
    arguments: &[&str],
) -> Result<(Sender, Vec<FrameProducer>), RunError> {
    if placement == Placement::Inline {
        let (engine, frame_producers) = Engine::start(clock, link, params, None)
            .map_err(|error| RunError::Coprocessor(error.into()))?;
        return Ok((Sender::Inline { engine }, frame_producers));
    }
    let failed =
        |error| RunError::Coprocessor(selvedge_lab_measure::coprocessor::BenchError::Client(error));
    let socket = default_socket(&format!("repro-{}", std::process::id()));
    let program = Program::new(link, socket.clone(), arguments);
    let attachment = Attachment::new("repro", socket, Some(program)).map_err(failed)?;
    let mut frame_producers = Vec::new();
    for (n, stream) in params.iter().enumerate() {
        let StreamParams { spec, ssrc } = stream;
        let spec = Spec { name: format!("s{}", n + 1), ..spec.clone() };
        let frame_producer = producer_params(&spec, link.mtu, *ssrc);
        frame_producers.push(attachment.add(spec, &frame_producer).map_err(failed)?.1);
    }
    Ok((Sender::Coprocessor { attachment }, frame_producers))
}

/// Keeps its stream's ring full; each packet ends with when it was offered.
fn produce(clock: Clock, mut frame_producer: FrameProducer, stop: &AtomicBool) {
    let mut packet = vec![0; 12 + PAYLOAD];
    packet[..2].copy_from_slice(&[0x80, 0x80 | 96]);
    let offer = FrameMetadata {
        kind: Kind::Data,
        referenced: false,
        closes: true,
        refs: None,
        timestamp: 0,
    };
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        let end = packet.len();
        packet[end - 8..].copy_from_slice(&now.0.to_be_bytes());
        if frame_producer.enqueue_at(now, offer, &[&packet]).is_err() {
            clock.sleep_until(now + Duration::from_millis(4));
        }
    }
}

/// Wakes up as often as a packet leaves, and does nothing: by how much it is late, 99.9th
/// percentile in microseconds.
fn bare(clock: Clock, stop: &AtomicBool) -> f64 {
    let gap = PACKET / LINK;
    let wishes = RealtimeRequest { core: Some(1), lock: false, class: SchedClass::Fifo };
    let _ = realtime::ask(wishes);
    let mut late = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let at = clock.now() + gap;
        clock.sleep_until(at);
        late.push(clock.now().since(at).0 as f64 / 1e3);
    }
    late.sort_by(f64::total_cmp);
    late.get(late.len() * 999 / 1000).copied().unwrap_or(0.0)
}

fn judge(load: f64, cpu: f64, mut seen: Vec<(usize, Instant, Instant)>, seconds: u64) -> Measured {
    seen.sort_by_key(|&(_, _, came)| came);
    let began = seen.first().map_or(Instant::ZERO, |first| first.2);
    // What was in the rings fills in the first second or two.
    let warm = began + Duration::from_secs(if seconds > 10 { 3 } else { 2 });
    let steady: Vec<_> = seen.iter().copied().filter(|&(_, _, came)| came >= warm).collect();
    let lasted =
        steady.last().map_or(Duration::ZERO, |last| last.2.since(warm)).as_secs_f64().max(1e-9);
    let bits = (PACKET.0 * 8) as f64;
    let rate = |stream: usize| {
        let count = steady.iter().filter(|packet| packet.0 == stream).count();
        count as f64 * bits / lasted / 1e3
    };
    let delays: f64 =
        steady.iter().map(|&(_, offered, came)| came.since(offered).as_secs_f64()).sum();
    let gap = bits / LINK.0 as f64;
    let mut late: Vec<f64> = steady
        .windows(2)
        .map(|pair| (pair[1].2.since(pair[0].2).as_secs_f64() - gap).max(0.0) * 1e6)
        .collect();
    late.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (late.len() as f64 * share) as usize;
        late.get(rank.min(late.len().saturating_sub(1))).copied().unwrap_or(0.0)
    };
    let within = |n: u64| {
        let (from, to) = (began + Duration::from_secs(n), began + Duration::from_secs(n + 1));
        seen.iter().filter(move |packet| packet.2 >= from && packet.2 < to)
    };
    let second = |n: u64| (n as f64, within(n).count() as f64 * bits / 1e3);
    // A second in which nothing came has no delay.
    let waited = |n: u64| {
        let waits = within(n).map(|&(_, offered, came)| came.since(offered).as_secs_f64());
        let (count, sum) = waits.fold((0, 0.0), |(count, sum), wait| (count + 1, sum + wait));
        (count > 0).then(|| (n as f64, sum / f64::from(count)))
    };
    Measured {
        load,
        cpu,
        rates: (0..STREAMS).map(rate).collect(),
        delay: delays / steady.len().max(1) as f64,
        late: (at(0.999), at(1.0)),
        floor: 0.0,
        taken: 1,
        by_second: (0..seconds.saturating_sub(1)).map(second).collect(),
        delays: (0..seconds.saturating_sub(1)).filter_map(waited).collect(),
    }
}

/// Time of all processors, in ticks: busy, and all.
struct Ticks(u64, u64);

impl Ticks {
    fn since(&self, before: Self) -> f64 {
        self.0.saturating_sub(before.0) as f64 / (self.1.saturating_sub(before.1)).max(1) as f64
    }
}

fn cpu() -> Ticks {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let all: u64 = ticks.iter().take(8).sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Ticks(all - idle.min(all), all)
}

const NGINX: ServerProgram = ServerProgram {
    name: "nginx",
    package: "nginx-light",
    needs: "",
    // In the foreground and without a master.
    config: |folder, port| {
        let at = folder.display();
        format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{ access_log off; sendfile off; client_body_temp_path {at}/b;\n\
             proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u;\n\
             scgi_temp_path {at}/s; keepalive_requests 1000000;\n\
             server {{ listen 127.0.0.1:{port}; root {at}; }} }}\n"
        )
    },
    args: |command, folder, file| {
        command.arg("-p").arg(folder).arg("-c").arg(file);
    },
};
const CONNECTIONS: u32 = 32;

/// So many requests a second, until it is dropped or the time is over.
fn load(web: &WebServer, rate: f64, seconds: u64) -> Result<ChildGuard, RunError> {
    // Of each connection, in milliseconds, twice the mean at most.
    let twice = (2.0 * f64::from(CONNECTIONS) * 1000.0 / rate).round().max(1.0);
    let script = format!("function delay() return math.random(0, {twice:.0}) end\n");
    let mut wrk = web.wrk(CONNECTIONS, seconds);
    wrk.arg("-s").arg(web.script(&script)?).stdout(Stdio::null());
    Ok(ChildGuard(wrk.spawn().map_err(missing("wrk", "wrk"))?))
}

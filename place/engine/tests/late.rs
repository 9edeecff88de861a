//! Late wake-ups in the engine's own loop, in simulated time: packets that they miss while frames wait are
//! sent afterwards, and never more than the bucket allows.

mod lateness;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use lateness::{LOADED, LOADED_SHORT, Lateness, Noise, QUIET};
use selvedge_control_config::LinkConfig;
use selvedge_data_link::default_catch_up;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Kind, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{
    Carrier, LocalPoller, SteppedEngine, StreamCarrier, StreamParams, spin,
};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// RTP's header and a payload.
const PACKET: usize = 1400;
const MTU: Bytes = Bytes(1500);
/// The time that the kernel takes for a packet.
const SENDING: Duration = Duration::from_micros(6);
const DELAY: Duration = Duration::from_secs(1);
const STREAMS: usize = 2;

/// Stands for the kernel: records when a packet arrived, and takes its time.
#[derive(Debug)]
struct Veth {
    clock: Clock,
    takes: Duration,
    packets: Mutex<Vec<(Instant, Bytes)>>,
}

impl Carrier for Veth {
    fn carry(&self, packet: &[u8]) -> bool {
        let now = self.clock.now();
        self.packets.lock().unwrap().push((now, Bytes(packet.len() as u64 + 28)));
        self.clock.advance_to(now + self.takes)
    }
}

struct Outcome {
    packets: Vec<(Instant, Bytes)>,
    /// The share that was sent of the bytes that the rate allowed while frames waited.
    used: f64,
}

fn link(rate: Bitrate) -> LinkConfig {
    LinkConfig::new("late", rate, Discipline::Dwcs)
}

/// The frame producers, and the engine that sends their frames to `wire`.
fn engine(link: &LinkConfig, wire: &Arc<Veth>) -> (SteppedEngine<LocalPoller>, Vec<FrameProducer>) {
    let (port, registrar) = LocalPoller::new(wire.clock, link, STREAMS).unwrap();
    let mut engine = SteppedEngine::new(wire.clock, link, port, None).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let frame_producers = (0..STREAMS).map(|number| {
        let contract = Contract {
            delay: Some(DELAY),
            ..Contract::new(Duration::from_millis(20), Window { lose: 1, of: 5 })
        };
        let to = "127.0.0.1:9".parse().unwrap();
        let spec = Spec { ring: 1024, pool: Bytes(4 << 20), ..Spec::new("s", to) };
        let params = StreamParams { spec: spec.with_contract(contract), ssrc: number as u32 };
        let by = Arc::clone(wire) as Arc<dyn Carrier>;
        let carried = StreamCarrier { by, overhead: Bytes(28), packet_max: Bytes(1472) };
        let (new, producer) = registrar.stream(&params, Some(carried), Arc::clone(&stop));
        assert_eq!(engine.attach(new), number);
        producer(number)
    });
    let frame_producers = frame_producers.collect();
    (engine, frame_producers)
}

/// A run: `percent` of the rate are offered, and each wake-up is late as in the distribution, less the time
/// for which the engine watches the clock.
struct Run<'a> {
    link: LinkConfig,
    lasts: Duration,
    percent: u64,
    lateness: &'a Lateness,
    takes: Duration,
    seed: u64,
}

fn run(run: &Run<'_>) -> Outcome {
    let Run { link, lasts, percent, lateness, takes, seed } = run;
    let clock = Clock::simulated();
    let wire = Arc::new(Veth { clock, takes: *takes, packets: Mutex::default() });
    let (mut engine, mut frame_producers) = engine(link, &wire);
    let mut noise = Noise(*seed);
    let mut packet = vec![0; PACKET];
    packet[..2].copy_from_slice(&[0x80, 96]);
    let offer = FrameMetadata {
        kind: Kind::Data,
        referenced: false,
        refs: None,
        closes: false,
        timestamp: 0,
    };
    let apart = Bytes(PACKET as u64 + 28) / Bitrate(link.rate.0 * percent / 100);
    let (mut next, mut count) = (Instant::ZERO, 0);
    let end = Instant::ZERO + *lasts;
    while clock.now() < end {
        while next <= clock.now() {
            // A full ring drops it; there are more than enough frames.
            let _ = frame_producers[count % STREAMS].enqueue_at(next, offer, &[&packet]);
            next += Duration(apart.0 / 2 + noise.below(apart.0));
            count += 1;
        }
        let Some(until) = engine.turn() else { continue };
        let late = noise.late(lateness);
        let late = Duration(late.0.saturating_sub(spin(link).0));
        engine.wait_until(until.min(next) + late);
    }
    let used = engine.link().sent_bytes().0 as f64 / engine.link().could_send().0 as f64;
    let packets = wire.packets.lock().unwrap().clone();
    Outcome { packets, used }
}

/// The most bytes by which any interval exceeded the rate.
fn most_ahead(packets: &[(Instant, Bytes)], rate: Bitrate) -> Bytes {
    let (mut level, mut most, mut before) = (0_u128, 0, Instant::ZERO);
    for &(at, size) in packets {
        let drained = u128::from(rate.0) * u128::from(at.since(before).0);
        level = level.saturating_sub(drained) + u128::from(size.0) * 8_000_000_000;
        (most, before) = (level.max(most), at);
    }
    Bytes(most.div_ceil(8_000_000_000) as u64)
}

const RATES_KBPS: [u64; 5] = [1_500, 10_000, 19_000, 100_000, 300_000];

fn lasts(rate: Bitrate) -> Duration {
    Duration::from_secs(if rate < Bitrate::from_mbps(50) { 20 } else { 2 })
}

#[test]
fn the_link_is_used_though_wake_ups_are_late() {
    for (loaded, least) in [(false, 0.985), (true, 0.98)] {
        for rate in RATES_KBPS.map(Bitrate::from_kbps) {
            let lateness = match loaded {
                false => &QUIET,
                true if rate < Bitrate::from_mbps(50) => &LOADED,
                true => &LOADED_SHORT,
            };
            let (link, lasts) = (link(rate), lasts(rate));
            let out = run(&Run { link, lasts, percent: 110, lateness, takes: SENDING, seed: 1 });
            assert!(out.used >= least, "{rate}: {} with {lateness:?}", out.used);
            let most = MTU + default_catch_up(rate, MTU, Some(DELAY));
            let ahead = most_ahead(&out.packets, rate);
            assert!(ahead <= most + Bytes(1), "{rate}: {ahead}, at most {most}");
        }
    }
}

#[test]
fn without_catching_up_the_time_is_lost() {
    let rate = Bitrate::from_mbps(10);
    let link = LinkConfig { catch_up: Some(Bytes(0)), ..link(rate) };
    let lasts = lasts(rate);
    let out = run(&Run { link, lasts, percent: 110, lateness: &QUIET, takes: SENDING, seed: 1 });
    assert!(out.used < 0.95, "{}", out.used);
    let ahead = most_ahead(&out.packets, rate);
    assert!(ahead <= MTU + Bytes(1), "{ahead}");
}

#[test]
fn no_span_holds_more_than_rate_burst_and_catch_up() {
    let mut noise = Noise(7);
    for seed in 0..60 {
        let rate = Bitrate::from_kbps(500 + noise.below(60_000));
        let burst = MTU + Bytes(noise.below(2) * noise.below(20_000));
        let catch_up = Bytes(noise.below(3) * noise.below(40_000));
        let link = LinkConfig { burst, catch_up: Some(catch_up), ..link(rate) };
        let lateness = if seed % 2 == 0 { &QUIET } else { &LOADED };
        // Above and below the rate of the link, so that it idles as well.
        let percent = 30 + noise.below(120);
        let lasts = Duration::from_millis(500);
        let out = run(&Run { link, lasts, percent, lateness, takes: Duration::ZERO, seed });
        let (ahead, most) = (most_ahead(&out.packets, rate), burst + catch_up);
        assert!(!out.packets.is_empty());
        assert!(ahead <= most + Bytes(1), "seed {seed}: {ahead}, at most {most}");
    }
}

/// Frames that arrive at an idle link get what `burst` allows.
#[test]
fn idle_time_is_not_made_up_for() {
    let (rate, lasts) = (Bitrate::from_mbps(10), Duration::from_secs(5));
    let lateness = &[(1000, 0); 5];
    let out = run(&Run {
        link: link(rate),
        lasts,
        percent: 20,
        lateness,
        takes: Duration::ZERO,
        seed: 3,
    });
    assert!(out.packets.len() > 500);
    let ahead = most_ahead(&out.packets, rate);
    assert!(ahead <= MTU + Bytes(1), "{ahead}");
}

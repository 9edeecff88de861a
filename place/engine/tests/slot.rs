//! Slots of streamlets in the engine, in simulated time: 100,000 streamlets on one link, whose shares and memory
//! are as stated; the delay bound; what is dropped.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use selvedge_control_config::{
    LinkConfig, STREAMLET_MEMORY, SetConfig, SlotConfig, Streamlet, StreamletGroup,
};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::rtp::{IPV4_UDP, Packet};
use selvedge_data_stream::{Contract, Kind, Late, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{
    Carrier, LocalPoller, Registrar, SteppedEngine, StreamCarrier, StreamParams,
};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_place_engine::slot::{ALL_STREAMLETS, Slot, SlotParams};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Counts the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all; only sizes are added up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Held by each test: what one allocates is not another's.
static ALONE: Mutex<()> = Mutex::new(());

/// Frames of this size on the wire, one packet each.
const SIZE: Bytes = Bytes(125);
const PAYLOAD: usize = SIZE.0 as usize - IPV4_UDP.0 as usize - 36;
/// One frame takes a microsecond.
const RATE: Bitrate = Bitrate::from_mbps(1000);
const TURN: Duration = Duration(1_000);

/// Takes packets in place of the kernel: the SSRC of each.
#[derive(Debug, Default)]
struct Wire(Mutex<VecDeque<u32>>);

impl Carrier for Wire {
    fn carry(&self, packet: &[u8]) -> bool {
        let ssrc = Packet::parse(packet).unwrap().header.ssrc;
        self.0.lock().unwrap().push_back(ssrc);
        true
    }
}

struct Bench {
    clock: Clock,
    engine: SteppedEngine<LocalPoller>,
    registrar: Registrar,
    wires: Vec<Arc<Wire>>,
    producers: Vec<FrameProducer>,
    /// The memory of its slots without frames.
    slots_take: usize,
}

fn packet() -> [u8; 12 + PAYLOAD] {
    let mut packet = [0; 12 + PAYLOAD];
    packet[..2].copy_from_slice(&[0x80, 96]);
    packet
}

/// Sets of these weights and numbers of streamlets.
fn config(sets: &[(u16, u32)], queue: u32) -> Arc<SlotConfig> {
    let to = "192.0.2.1:9".parse().unwrap();
    let (mut first, mut groups) = (0, Vec::new());
    for (set, &(_, count)) in sets.iter().enumerate() {
        // An SSRC of its own, so that all may have one receiver.
        let streamlet = Streamlet { from: None, ssrc: Some(first), to, set };
        groups.push(StreamletGroup { first, count, streamlet });
        first += count;
    }
    let set = |(n, &(weight, _)): (usize, &(u16, u32))| SetConfig { name: n.to_string(), weight };
    Arc::new(SlotConfig { sets: sets.iter().enumerate().map(set).collect(), groups, queue })
}

impl Bench {
    fn new(link: &LinkConfig) -> Self {
        let clock = Clock::simulated();
        let (port, registrar) = LocalPoller::new(clock, link, 8).unwrap();
        let engine = SteppedEngine::new(clock, link, port, None).unwrap();
        Self { clock, engine, registrar, wires: Vec::new(), producers: Vec::new(), slots_take: 0 }
    }

    fn add(&mut self, contract: Contract) -> usize {
        let spec = Spec {
            ring: 65_536,
            pool: Bytes(64 << 20),
            ..Spec::new("s", "192.0.2.1:9".parse().unwrap())
        };
        let params = StreamParams { spec: spec.with_contract(contract), ssrc: ALL_STREAMLETS };
        let by = Arc::new(Wire::default());
        let carried =
            StreamCarrier { by: Arc::clone(&by) as _, overhead: IPV4_UDP, packet_max: Bytes(1400) };
        let stop = Arc::new(AtomicBool::new(false));
        let (new, producer) = self.registrar.stream(&params, Some(carried), stop);
        let number = self.engine.attach(new);
        self.wires.push(by);
        self.producers.push(producer(number));
        number
    }

    fn slot(
        &mut self,
        period: Duration,
        delay: Option<Duration>,
        config: Arc<SlotConfig>,
    ) -> usize {
        let contract = Contract { late: Late::Send, ..Contract::new(period, Window::NONE) };
        let number = self.add(contract);
        let params = SlotParams { config, delay, pool: Bytes(64 << 20), ssrc: 0 };
        let before = ALLOCATED.load(Ordering::Relaxed);
        assert!(self.engine.aggregate(number, Slot::new(params)));
        self.slots_take += ALLOCATED.load(Ordering::Relaxed) - before;
        number
    }

    fn enqueue(&mut self, slot: usize, streamlet: u32) {
        let now = self.clock.now();
        self.producers[slot].enqueue_for(streamlet, now, 0, &[&packet()]).unwrap();
    }

    /// One turn; to whom packets went, with their slots.
    fn step(&mut self) -> Vec<(usize, u32)> {
        if let Some(until) = self.engine.turn() {
            self.engine.wait_until(until);
        }
        let mut sent = Vec::new();
        for (slot, wire) in self.wires.iter().enumerate() {
            sent.extend(wire.0.lock().unwrap().drain(..).map(|ssrc| (slot, ssrc)));
        }
        sent
    }
}

fn link(discipline: Discipline) -> LinkConfig {
    LinkConfig { mtu: Bytes(1500), ..LinkConfig::new("up", RATE, discipline) }
}

/// Slots 1:1:2:4 with streamlets that are never idle, those of the fourth in two sets 2:1 (Fig. 10): sends this
/// many frames, and checks that slots and sets are within 1 % of their shares, and streamlets within a frame.
fn shares(streamlets: u32, frames: u64) {
    let mut bench = Bench::new(&link(Discipline::Dwcs));
    let half = streamlets / 2;
    for period in [8, 8, 4, 2] {
        let sets = if period == 2 { vec![(2, half), (1, half)] } else { vec![(1, streamlets)] };
        bench.slot(TURN * period, None, config(&sets, 4));
    }
    let most = 4 * u64::from(streamlets) * STREAMLET_MEMORY.0 + 10_000;
    assert!(bench.slots_take as u64 <= most, "{} B where {most} are stated", bench.slots_take);
    let before = ALLOCATED.load(Ordering::Relaxed);
    for slot in 0..4 {
        for streamlet in 0..streamlets {
            bench.enqueue(slot, streamlet);
            if streamlet % 32_768 == 32_767 {
                // The ring is emptied.
                bench.step().into_iter().for_each(|(slot, ssrc)| bench.enqueue(slot, ssrc));
            }
        }
    }
    let mut sent = vec![vec![0_u64; streamlets as usize]; 4];
    let mut all = 0;
    while all < frames {
        for (slot, streamlet) in bench.step() {
            sent[slot][streamlet as usize] += 1;
            all += 1;
            bench.enqueue(slot, streamlet);
        }
    }
    // A frame of each waits, of 165 B with its packet header, beside its queue and 4 B in the producer.
    let frames = ALLOCATED.load(Ordering::Relaxed) - before;
    assert!(frames < 4 * streamlets as usize * 300 + 100_000, "{frames} B of frames");
    let near = |count: u64, part: u64, of: u64, what: &str| {
        let due = all * part / of;
        assert!(100 * count.abs_diff(due) <= due, "{what}: {count} where {due} are due");
    };
    for (slot, part) in [1, 1, 2, 4].into_iter().enumerate() {
        let count = sent[slot].iter().sum();
        near(count, part, 8, "a slot");
        let of_set = |set: &[u64], part: u64, of: u64, streamlets: u32| {
            near(set.iter().sum(), part, of, "a set");
            let (least, most) = (set.iter().min().unwrap(), set.iter().max().unwrap());
            assert!(most - least <= 1, "streamlets of one set had {least} to {most} frames");
            if all * part / of / u64::from(streamlets) >= 100 {
                set.iter()
                    .for_each(|&one| near(one, part, of * u64::from(streamlets), "a streamlet"));
            }
        };
        match part {
            4 => {
                let (gold, plain) = sent[slot].split_at(half as usize);
                of_set(gold, 1, 3, half);
                of_set(plain, 1, 6, half);
            }
            _ => of_set(&sent[slot], part, 8, streamlets),
        }
        // The engine counts the same.
        let reports = bench.engine.slot(slot).unwrap().sets();
        let counted: u64 = reports.iter().map(|set| set.counts.sent).sum();
        assert!(counted.abs_diff(count) <= 40_000 && counted >= count, "{counted}, {count}");
        assert_eq!(reports.iter().map(|set| set.counts.dropped).sum::<u64>(), 0);
    }
}

#[test]
fn a_hundred_thousand_streamlets_share_a_link_as_stated() {
    let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
    shares(25_000, 200_000);
}

#[test]
fn streamlets_are_within_one_percent_of_their_shares() {
    let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
    shares(100, 8 * 100 * 150);
}

/// A frame for all streamlets goes to each; it takes room once. Old frames are given up, and so are those of a
/// streamlet that has enough.
#[test]
fn frames_for_all_and_frames_that_are_given_up() {
    let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
    let mut bench = Bench::new(&LinkConfig::new("up", Bitrate(1_000_000), Discipline::Edf));
    let delay = Duration::from_millis(10);
    let slot = bench.slot(Duration::from_millis(1), Some(delay), config(&[(1, 3), (1, 2)], 2));
    let offer = FrameMetadata::alone(Kind::Still);
    // The third finds two of each waiting.
    for _ in 0..3 {
        bench.producers[slot].enqueue(offer, &[&packet()]).unwrap();
    }
    let mut sent = Vec::new();
    while bench.clock.now() < Instant(0) + delay * 2 {
        sent.extend(bench.step().into_iter().map(|(_, streamlet)| streamlet));
        bench.clock.advance_to(bench.clock.now() + Duration(1000));
    }
    // 1 ms each; those that have waited for more than 10 ms are dropped.
    assert_eq!(sent, [0, 3, 1, 4, 2, 3, 0, 4, 1, 2]);
    let sets = bench.engine.slot(slot).unwrap().sets();
    let counts = |n: usize| (sets[n].counts.sent, sets[n].counts.dropped, sets[n].waiting);
    assert_eq!([counts(0), counts(1)], [(6, 3, 0), (4, 2, 0)]);
    // After a wait beyond the delay nothing of what waits is sent.
    (0..5).for_each(|streamlet| bench.enqueue(slot, streamlet));
    bench.clock.advance_to(bench.clock.now() + delay + Duration::from_millis(1));
    // The engine takes arrivals only now.
    let late = bench.step();
    assert_eq!(late, []);
    assert_eq!(bench.engine.slot(slot).unwrap().streamlet(4).unwrap().counts.dropped, 2);
    assert!(bench.engine.slot(slot).unwrap().streamlet(5).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// On a link that carries all, beside another slot, no frame waits for longer than the bound, and the time of a
    /// packet that was under way.
    #[test]
    fn no_frame_waits_for_longer_than_the_bound_on_a_link(
        sets in prop::collection::vec((1..=5_u16, 1..8_u32), 1..4),
        seed in prop::collection::vec(any::<u8>(), 61),
    ) {
        let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
        let mut bench = Bench::new(&link(Discipline::Edf));
        // Together all of the link.
        let period = TURN * 3;
        let config = config(&sets, 4);
        let slot = bench.slot(period, None, Arc::clone(&config));
        let other = bench.slot(TURN * 3 / 2, None, self::config(&[(1, 2)], 4));
        let all = config.count();
        // Each has one frame at a time; the other slot is never idle.
        (0..2).for_each(|n| { bench.enqueue(other, n); bench.enqueue(other, n); });
        let mut idle: Vec<u32> = (0..all).collect();
        for turn in 0..3000 {
            let dice = |n: u32| seed[(turn * 7 + n as usize * 13 + turn / 61) % seed.len()] % 4;
            let (come, stay): (Vec<u32>, Vec<u32>) = idle.into_iter().partition(|&n| dice(n) > 0);
            come.into_iter().for_each(|n| bench.enqueue(slot, n));
            idle = stay;
            for (which, streamlet) in bench.step() {
                if which == slot { idle.push(streamlet) } else { bench.enqueue(other, streamlet) }
            }
        }
        let reports = bench.engine.slot(slot).unwrap().sets();
        for (set, report) in config.summary(Some(period)).iter().zip(reports) {
            let waited = report.delay_max;
            let most = period * set.turns + TURN;
            prop_assert!(waited <= most, "{waited} where at most {most}: {set:?}");
            prop_assert!(report.counts.sent > 0);
        }
    }
}

//! One stream for many receivers, in virtual time: none of them holds up another, and no payload lies in memory twice.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use selvedge_control_config::{LinkConfig, Sending};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::rtp::Packet;
use selvedge_data_stream::{Contract, DropReason, Kind, Late, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{
    Carrier, LocalPoller, Registrar, SteppedEngine, StreamCarrier, StreamParams,
};
use selvedge_place_engine::frame_producer::fan_out::FanOut;
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

thread_local!(static LIVE: Cell<i64> = const { Cell::new(0) });

/// The system's allocator, with the bytes that a thread holds.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator, which keeps the contract; the counter
// is a plain thread-local cell that itself never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + layout.size() as i64);
        // SAFETY: the caller's promise is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const PERIOD: Duration = Duration::from_millis(40);
/// 21 packets each 40 ms: 6 Mbit/s.
const PACKETS: usize = 21;
const PAYLOAD: usize = 1400;

/// A link whose packets go nowhere, and its thread's work.
struct Stepped {
    engine: SteppedEngine<LocalPoller>,
    registrar: Registrar,
}

impl Stepped {
    fn new(clock: Clock, rate: Bitrate) -> Self {
        let mut link = LinkConfig::new("link", rate, Discipline::Dwcs);
        let burst = (rate * Duration::from_millis(1)).clamp(Bytes(1500), Bytes(64_000));
        (link.sending, link.burst) = (Sending::Null, burst);
        let (port, registrar) = LocalPoller::new(clock, &link, 200).unwrap();
        Self { engine: SteppedEngine::new(clock, &link, port, None).unwrap(), registrar }
    }

    /// One more receiver: its number, and its end for [`FanOut::join`].
    fn receiver(
        &mut self,
        ssrc: u32,
        contract: Contract,
        carried: Option<StreamCarrier>,
    ) -> (usize, FrameProducer) {
        let spec = Spec {
            ring: 64,
            pool: Bytes(400_000),
            ..Spec::new("cam", "192.0.2.1:9".parse().unwrap())
        };
        let params = StreamParams { spec: spec.with_contract(contract), ssrc };
        let (new, producer) =
            self.registrar.receiver(&params, carried, Arc::new(AtomicBool::new(false)));
        let number = self.engine.attach(new);
        (number, producer(number))
    }

    /// Does all that is due until `until`, at the times at which it is due.
    fn step(&mut self, clock: Clock, until: Instant) {
        loop {
            match self.engine.turn() {
                None => {}
                Some(next) if next >= until => return,
                Some(next) => {
                    clock.advance_to(next);
                }
            }
        }
    }

    fn sent(&self, number: usize) -> u64 {
        let streams = self.engine.link();
        streams.ledger(selvedge_data_sched::StreamIndex(number as u32)).unwrap().totals().sent
    }

    fn dropped(&self, number: usize) -> u64 {
        let index = selvedge_data_sched::StreamIndex(number as u32);
        self.engine.link().ledger(index).unwrap().totals().dropped.iter().sum()
    }
}

fn contract(delay: Duration) -> Contract {
    Contract { delay: Some(delay), ..Contract::new(PERIOD, Window { lose: 1, of: 5 }) }
}

fn enqueue(producer: &mut FrameProducer, payload: u8) -> Result<u32, DropReason> {
    let mut packet = [payload; 12 + PAYLOAD];
    packet[..2].copy_from_slice(&[0x80, 96]);
    producer.enqueue(FrameMetadata::alone(Kind::Still), &[&packet[..]; PACKETS])
}

/// A hundred receivers of 6 Mbit/s: one does not run for half of the time, one has a link of 1 kB/s, and one
/// joins and leaves ten times a second.
#[test]
fn no_receiver_holds_up_the_others_and_memory_is_flat() {
    let clock = Clock::simulated();
    let mut fast = Stepped::new(clock, Bitrate::from_mbps(1000));
    let mut slow = Stepped::new(clock, Bitrate(8_000));
    let mut stopped = Stepped::new(clock, Bitrate::from_mbps(100));
    let half = Duration::from_millis(500);
    let (first, mut source) = fast.receiver(1, contract(half), None);
    let receivers: FanOut = source.receivers().unwrap();
    let mut others = vec![first];
    for ssrc in 2..98 {
        let (number, producer) = fast.receiver(ssrc, contract(half), None);
        assert!(receivers.join(producer));
        others.push(number);
    }
    // Frames of the slow one are never too late, so that only its pool bounds what it holds.
    let patient = Contract { delay: None, late: Late::Send, ..contract(half) };
    assert!(receivers.join(slow.receiver(98, patient, None).1));
    assert!(receivers.join(stopped.receiver(99, contract(half), None).1));
    let mut comes_and_goes: Option<usize> = None;
    let (mut least, mut most) = (i64::MAX, 0);
    let frames = 100;
    for n in 0..frames {
        let begun = clock.now();
        enqueue(&mut source, n as u8).unwrap();
        for tenth in 1..=4 {
            // Every 100 ms, on another part of the period each time.
            if (n * 4 + tenth) % 5 == 0 {
                comes_and_goes.take().into_iter().for_each(|number| fast.engine.remove(number));
                let (number, producer) = fast.receiver(100, contract(half), None);
                assert!(receivers.join(producer));
                comes_and_goes = Some(number);
            }
            let until = begun + Duration(PERIOD.0 / 4 * tenth);
            fast.step(clock, until);
            if !(25..75).contains(&n) {
                while stopped.engine.turn().is_none() {}
            }
            while slow.engine.turn().is_none() {}
            clock.advance_to(until);
        }
        if n >= 40 {
            (least, most) = (least.min(LIVE.get()), most.max(LIVE.get()));
        }
    }
    for &number in &others {
        let sent = fast.sent(number);
        assert!(sent * 100 >= (frames - 1) * 99, "receiver {number}: {sent} of {frames}");
    }
    let (sent, dropped) = (stopped.sent(0), stopped.dropped(0));
    assert!(
        (45..60).contains(&sent),
        "the stopped one was sent {sent}, and {dropped} were dropped"
    );
    assert!(slow.sent(0) <= 1, "{}", slow.sent(0));
    assert!(most - least < 1_000_000, "{least} to {most} bytes");
    // Once for all receivers, however many there are.
    let once = (PACKETS * (2 + 36 + PAYLOAD)) as u64;
    assert_eq!(receivers.written(), Bytes(once * frames));
}

/// Keeps packets.
#[derive(Debug, Default)]
struct Keeper(Mutex<Vec<Vec<u8>>>);

impl Carrier for Keeper {
    fn carry(&self, packet: &[u8]) -> bool {
        self.0.lock().unwrap().push(packet.to_owned());
        true
    }
}

#[test]
fn each_receiver_gets_its_own_headers_and_the_same_payload() {
    let clock = Clock::simulated();
    let mut link = Stepped::new(clock, Bitrate::from_mbps(100));
    let keepers = [Arc::new(Keeper::default()), Arc::new(Keeper::default())];
    let carried = |n: usize| {
        let by = Arc::clone(&keepers[n]) as _;
        Some(StreamCarrier { by, overhead: Bytes(28), packet_max: Bytes(1472) })
    };
    let ms = Duration::from_millis;
    let (_, mut source) = link.receiver(7, contract(ms(300)), carried(0));
    enqueue(&mut source, 1).unwrap();
    let (_, producer) = link.receiver(9, contract(ms(100)), carried(1));
    source.receivers().unwrap().join(producer);
    enqueue(&mut source, 2).unwrap();
    let until = clock.now() + ms(90);
    link.step(clock, until);
    let [a, b] = keepers.each_ref().map(|keeper| keeper.0.lock().unwrap().clone());
    assert_eq!((a.len(), b.len()), (2 * PACKETS, PACKETS));
    for (n, bytes) in b.iter().enumerate() {
        let (of_b, of_a) = (Packet::parse(bytes).unwrap(), Packet::parse(&a[PACKETS + n]).unwrap());
        assert_eq!((of_a.header.ssrc, of_b.header.ssrc), (7, 9));
        let first = Packet::parse(&b[0]).unwrap().header.sequence;
        assert_eq!(of_b.header.sequence, first.wrapping_add(n as u16));
        let (tag_a, tag_b) = (of_a.tag.unwrap(), of_b.tag.unwrap());
        assert_eq!((tag_a.seq, tag_b.seq), (1, 1), "the frame's number is the source's");
        assert_eq!(tag_a.deadline_ms.wrapping_sub(tag_b.deadline_ms), 200);
        assert!((1..=100).contains(&tag_b.left_ms), "{}", tag_b.left_ms);
        assert_eq!((of_a.payload, of_b.payload), (&[2; PAYLOAD][..], &[2; PAYLOAD][..]));
    }
}

#[test]
fn a_packet_too_long_for_one_receiver_goes_to_the_others() {
    let clock = Clock::simulated();
    let mut link = Stepped::new(clock, Bitrate::from_mbps(100));
    let keeper = Arc::new(Keeper::default());
    let by = Arc::clone(&keeper) as _;
    let small = StreamCarrier { by, overhead: Bytes(28), packet_max: Bytes(500) };
    let delay = Duration::from_millis(300);
    let (number, mut source) = link.receiver(7, contract(delay), None);
    let (_, producer) = link.receiver(9, contract(delay), Some(small));
    let counters = producer.counters();
    source.receivers().unwrap().join(producer);
    enqueue(&mut source, 1).unwrap();
    let until = clock.now() + Duration::from_millis(39);
    link.step(clock, until);
    assert_eq!(link.sent(number), 1);
    assert_eq!(counters.refused.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert!(keeper.0.lock().unwrap().is_empty());
    let garbage: &[u8] = b"no RTP";
    let offered = source.enqueue(FrameMetadata::alone(Kind::Still), &[garbage]);
    assert_eq!(offered, Err(DropReason::Unusable));
}

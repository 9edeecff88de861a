//! The engine as a whole: real sockets, real time; the assertions hold however slow the machine is.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use selvedge_control_config::LinkConfig;
use selvedge_data_link::default_catch_up;
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, DropReason, Kind, Window};
use selvedge_data_stream::{Spec, WhenFull};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{Carrier, Engine, StreamCarrier, StreamParams};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const OVERHEAD: u64 = 28;

#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<(Instant, u64)>>>);

impl PacketTap for Arrivals {
    fn packet(&mut self, _stream: usize, now: Instant, bytes: &[u8]) {
        self.0.lock().unwrap().push((now, bytes.len() as u64 + OVERHEAD));
    }
}

struct Bench {
    engine: Engine,
    frame_producers: Vec<FrameProducer>,
    receiver: Receiver,
    arrivals: Arrivals,
    clock: Clock,
}

fn contract(delay: Duration) -> Contract {
    let window = Window { lose: 1, of: 5 };
    Contract { delay: Some(delay), ..Contract::new(Duration::from_millis(20), window) }
}

/// Keeps the packets that it takes; of every five calls it refuses the third and the fourth.
#[derive(Debug, Default)]
struct Keeper(Mutex<(Vec<Vec<u8>>, u64)>);

impl Carrier for Keeper {
    fn carry(&self, packet: &[u8]) -> bool {
        let mut kept = self.0.lock().unwrap();
        kept.1 += 1;
        let takes = ![3, 4].contains(&(kept.1 % 5));
        if takes {
            kept.0.push(packet.to_owned());
        }
        takes
    }
}

#[test]
fn a_carrier_takes_its_streams_packets_and_sockets_the_others() {
    let clock = Clock::new();
    let reception = StreamReception {
        listen: ([127, 0, 0, 1], 0).into(),
        meter: StreamMeter::new(ClockRate::VIDEO),
    };
    let receiver = Receiver::start(clock, vec![reception], ReceiveOptions::default()).unwrap();
    let stream = |ssrc| StreamParams {
        spec: spec(contract(Duration::from_secs(10)), receiver.addresses()[0], WhenFull::Drop),
        ssrc,
    };
    let keeper = Arc::new(Keeper::default());
    let carried = StreamCarrier {
        by: Arc::clone(&keeper) as _,
        overhead: Bytes(100),
        packet_max: Bytes(500),
    };
    let link = LinkConfig::new("test", Bitrate::from_mbps(50), Discipline::Dwcs);
    let (engine, _, mut frame_producers) =
        Engine::start_open(clock, &link, &[stream(1), stream(2)], (&[Some(carried)], &[]), None, 0)
            .unwrap();
    let (small, large) = (packets(3, 400), packets(2, 1200));
    assert_eq!(enqueue(&mut frame_producers[0], Kind::Still, &large), Err(DropReason::Unusable));
    for _ in 0..10 {
        enqueue(&mut frame_producers[0], Kind::Still, &small).unwrap();
        enqueue(&mut frame_producers[1], Kind::Still, &large).unwrap();
    }
    let deadline = clock.now() + Duration::from_secs(60);
    let done = |engine: &Engine, n: usize| {
        let totals = &engine.report().streams[n].counts.totals;
        totals.sent + totals.dropped[DropReason::SendFailed as usize]
    };
    while done(&engine, 0) < 10 || done(&engine, 1) < 10 {
        assert!(clock.now() < deadline, "not all frames were sent");
        clock.sleep_until(clock.now() + Duration::from_millis(5));
    }
    let report = engine.stop();
    let kept = keeper.0.lock().unwrap();
    // A frame is sent if all its packets were taken, at once or on the second attempt; otherwise it is
    // dropped. The end of the link's burst decides which of the two applies to a refused packet.
    let totals = &report.streams[0].counts.totals;
    let refused = totals.dropped[DropReason::SendFailed as usize];
    assert_eq!(totals.sent + refused, 10);
    assert!(totals.sent >= 3 && refused >= 5, "{totals:?}");
    let taken = kept.0.len() as u64;
    assert!((3 * totals.sent..3 * totals.sent + 2 * refused).contains(&taken), "{taken}");
    let errors = (report.streams[0].counts.send_errors, report.streams[1].counts.send_errors);
    assert_eq!(errors, (kept.1 - taken, 0));
    assert!(kept.0.iter().all(|packet| packet.ends_with(&[7; 400])));
    // The carrier's extra bytes count on the wire.
    let on_wire = kept.0.iter().map(|packet| packet.len() as u64 + 100).sum::<u64>();
    assert_eq!(report.streams[0].counts.sent_bytes, Bytes(on_wire));
    let (meters, _) = receiver.stop();
    assert_eq!((meters[0].packets, meters[0].complete), (20, 10));
}

fn spec(contract: Contract, to: SocketAddr, full: WhenFull) -> Spec {
    let spec = Spec { ring: 64, pool: Bytes(200_000), full, ..Spec::new("s", to) };
    spec.with_contract(contract)
}

fn bench(rate: Bitrate, contracts: &[Contract], full: WhenFull) -> Bench {
    let clock = Clock::new();
    let arrivals = Arrivals::default();
    let reception = || StreamReception {
        listen: ([127, 0, 0, 1], 0).into(),
        meter: StreamMeter::new(ClockRate::VIDEO),
    };
    let options =
        ReceiveOptions { tap: Some(Box::new(arrivals.clone())), ..ReceiveOptions::default() };
    let receptions = contracts.iter().map(|_| reception()).collect();
    let receiver = Receiver::start(clock, receptions, options).unwrap();
    let streams: Vec<_> = contracts
        .iter()
        .zip(receiver.addresses())
        .enumerate()
        .map(|(n, (&contract, &to))| StreamParams {
            spec: spec(contract, to, full),
            ssrc: n as u32 + 1,
        })
        .collect();
    let link = LinkConfig::new("test", rate, Discipline::Dwcs);
    let (engine, frame_producers) = Engine::start(clock, &link, &streams, None).unwrap();
    Bench { engine, frame_producers, receiver, arrivals, clock }
}

/// RTP packets of one frame.
fn packets(count: usize, payload: usize) -> Vec<Vec<u8>> {
    let packet = |n: usize| {
        let mut packet = vec![7; 12 + payload];
        packet[0] = 0x80;
        packet[1] = 96 | if n + 1 == count { 0x80 } else { 0 };
        packet
    };
    (0..count).map(packet).collect()
}

fn enqueue(
    frame_producer: &mut FrameProducer,
    kind: Kind,
    packets: &[Vec<u8>],
) -> Result<u32, DropReason> {
    let slices: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let offer = FrameMetadata::alone(kind);
    frame_producer.enqueue(offer, &slices)
}

/// Waits until the engine has settled this number of frames, for a minute at most.
fn settled(bench: &Bench, frames: u64) {
    let deadline = bench.clock.now() + Duration::from_secs(60);
    loop {
        let report = bench.engine.report();
        let done = |t: &selvedge_data_stream::Totals| t.sent + t.dropped.iter().sum::<u64>();
        let count: u64 = report.streams.iter().map(|s| done(&s.counts.totals)).sum();
        if count >= frames {
            return;
        }
        assert!(bench.clock.now() < deadline, "only {count} of {frames} frames settled");
        bench.clock.sleep_until(bench.clock.now() + Duration::from_millis(5));
    }
}

#[test]
fn no_window_of_100_ms_holds_more_than_rate_burst_and_catch_up() {
    let rate = Bitrate::from_mbps(2);
    let delay = Duration::from_secs(5);
    let mut bench = bench(rate, &[contract(delay); 2], WhenFull::Drop);
    for n in 0..30 {
        let frame = packets(1 + n % 7, 700 + 20 * n);
        enqueue(&mut bench.frame_producers[n % 2], Kind::Still, &frame).unwrap();
    }
    settled(&bench, 30);
    let _ = bench.receiver.stop();
    let mut arrivals = bench.arrivals.0.lock().unwrap().clone();
    arrivals.sort();
    assert!(arrivals.len() > 60);
    let window = Duration::from_millis(100);
    let (mut first, mut bytes) = (0, 0);
    for &(at, size) in &arrivals {
        bytes += size;
        while arrivals[first].0 + window <= at {
            bytes -= arrivals[first].1;
            first += 1;
        }
        let catch_up = default_catch_up(rate, Bytes(1500), Some(delay));
        let most = (rate * window + Bytes(1500) + catch_up).0;
        assert!(bytes <= most, "{bytes} bytes within 100 ms, at most {most}");
    }
}

#[test]
fn packets_arrive_as_they_were_offered() {
    let mut bench =
        bench(Bitrate::from_mbps(50), &[contract(Duration::from_secs(10))], WhenFull::Drop);
    for n in 0..40 {
        enqueue(&mut bench.frame_producers[0], Kind::Audio, &packets(1 + n % 3, 200 + n)).unwrap();
    }
    settled(&bench, 40);
    let (meters, _) = bench.receiver.stop();
    assert_eq!((meters[0].complete, meters[0].decodable), (40, Some(40)));
    assert_eq!((meters[0].lost, meters[0].duplicates, meters[0].malformed), (0, 0, 0));
}

#[test]
fn a_full_pool_drops_or_makes_the_source_wait_as_the_stream_says() {
    let slow = Bitrate::from_kbps(500);
    let mut dropping = bench(slow, &[contract(Duration::from_secs(30))], WhenFull::Drop);
    let frame = packets(20, 1200);
    let refused =
        (0..40).filter(|_| enqueue(&mut dropping.frame_producers[0], Kind::Still, &frame).is_err());
    let refused = refused.count();
    assert!(refused >= 25, "a pool of 200 kB took {} frames of 24 kB", 40 - refused);

    let fast = Bitrate::from_mbps(40);
    let mut waiting = bench(fast, &[contract(Duration::from_secs(30))], WhenFull::Block);
    for _ in 0..40 {
        enqueue(&mut waiting.frame_producers[0], Kind::Still, &frame).unwrap();
    }
    settled(&waiting, 40);
    assert_eq!(waiting.engine.stop().streams[0].counts.totals.sent, 40);
}

#[test]
fn what_is_no_rtp_is_refused_and_harms_nothing() {
    let mut bench =
        bench(Bitrate::from_mbps(5), &[contract(Duration::from_secs(5))], WhenFull::Drop);
    let frame_producer = &mut bench.frame_producers[0];
    assert_eq!(enqueue(frame_producer, Kind::Still, &[vec![0; 30]]), Err(DropReason::Unusable));
    assert_eq!(enqueue(frame_producer, Kind::Still, &[]), Err(DropReason::Unusable));
    assert_eq!(enqueue(frame_producer, Kind::Still, &packets(1, 3000)), Err(DropReason::Unusable));
    assert_eq!(
        enqueue(frame_producer, Kind::Still, &packets(300, 1200)),
        Err(DropReason::Unusable)
    );
    let broken = [packets(2, 1000), vec![vec![0; 30]]].concat();
    // Many times the capacity of the pool: a refused frame keeps no room.
    for _ in 0..500 {
        assert_eq!(enqueue(frame_producer, Kind::Still, &broken), Err(DropReason::Unusable));
    }
    assert_eq!(enqueue(frame_producer, Kind::Still, &packets(2, 1000)), Ok(504));
    // Refused frames are found by the gap in the numbers.
    settled(&bench, 505);
    let totals = bench.engine.stop().streams[0].counts.totals.clone();
    assert_eq!((totals.frames, totals.sent), (505, 1));
    assert_eq!(totals.dropped[DropReason::Full as usize], 504);
}

#[test]
fn a_receiver_that_is_gone_harms_nobody() {
    let contracts = [contract(Duration::from_secs(5)); 2];
    let mut bench = bench(Bitrate::from_mbps(20), &contracts, WhenFull::Drop);
    // A port that was bound and is closed again: no socket listens there now.
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let stream = StreamParams { spec: spec(contracts[0], gone, WhenFull::Drop), ssrc: 9 };
    let link = LinkConfig::new("gone", Bitrate::from_mbps(20), Discipline::Dwcs);
    let (engine, mut lost) = Engine::start(bench.clock, &link, &[stream], None).unwrap();
    for _ in 0..50 {
        enqueue(&mut lost[0], Kind::Still, &packets(1, 500)).unwrap();
        enqueue(&mut bench.frame_producers[1], Kind::Still, &packets(1, 500)).unwrap();
    }
    settled(&bench, 50);
    assert_eq!(bench.engine.report().streams[1].counts.totals.on_time, 50);
    drop(engine);
}

#[test]
fn stopping_settles_what_waits() {
    let mut bench =
        bench(Bitrate::from_kbps(100), &[contract(Duration::from_secs(30))], WhenFull::Drop);
    for _ in 0..6 {
        enqueue(&mut bench.frame_producers[0], Kind::Still, &packets(10, 1200)).unwrap();
    }
    let totals = bench.engine.stop().streams[0].counts.totals.clone();
    let settled = totals.sent + totals.dropped.iter().sum::<u64>();
    // Frames that the engine had not yet dequeued when it was stopped are not settled.
    assert!(settled <= 6 && totals.frames == settled, "{totals:?}");
}

/// The link takes days for a frame, and there is time for all of them, so it makes no room.
#[test]
fn a_source_that_waits_for_room_can_be_asked_to_end() {
    let months = contract(Duration::from_secs(100_000_000));
    let mut bench = bench(Bitrate(1), &[months], WhenFull::Block);
    let asked = Arc::new(AtomicBool::new(false));
    bench.frame_producers[0].set_stop_flag(Arc::clone(&asked));
    let mut frame_producer = bench.frame_producers.remove(0);
    let (tell, told) = std::sync::mpsc::channel();
    let source = std::thread::spawn(move || {
        let frame = packets(20, 1200);
        // The pool holds eight of them.
        (0..20).map(|_| enqueue(&mut frame_producer, Kind::Still, &frame)).find_map(|done| {
            let _ = tell.send(());
            done.err()
        })
    });
    // It has begun to fill the pool; then it waits, sooner or later.
    told.recv_timeout(std::time::Duration::from_secs(60)).expect("frames go in");
    asked.store(true, Ordering::Relaxed);
    let begun = bench.clock.now();
    while !source.is_finished() {
        assert!(bench.clock.now() < begun + Duration::from_secs(60), "it waits on");
        bench.clock.sleep_until(bench.clock.now() + Duration::from_millis(5));
    }
    assert_eq!(source.join().unwrap(), Some(DropReason::Removed));
}

//! Departure times through a real `fq` and `etf`: a burst goes to the kernel at once, and leaves at the rate.
//! Changes the loopback's qdisc, so it runs only in the machine of `tools/kernel.sh test`.

use std::process::Command;
use std::sync::{Arc, Mutex};

use selvedge_control_config::LinkConfig;
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Kind, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{Engine, StreamParams};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const PACKETS: usize = 20;
const RATE: Bitrate = Bitrate::from_mbps(4);
/// The least time of each packet.
const APART: Duration = Duration::from_micros(2400);

#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<Instant>>>);

impl PacketTap for Arrivals {
    fn packet(&mut self, _stream: usize, now: Instant, _bytes: &[u8]) {
        self.0.lock().unwrap().push(now);
    }
}

fn tc(arguments: &str) {
    let status = Command::new("tc").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "tc {arguments}");
}

/// Sends one frame that the burst lets go at once. Returns how long after it was enqueued the engine settled
/// it, and its last packet arrived.
fn one_frame() -> (Duration, Duration) {
    let (report, last) = frame_through(Bytes(40_000), |came, _| came == PACKETS);
    (report.streams[0].recent.queueing.max().unwrap(), last)
}

/// Sends one frame by a link of this burst until this number of packets arrived, or the engine reports them
/// sent. Returns its last report, and how long after the frame was enqueued the last packet arrived.
fn frame_through(
    burst: Bytes,
    enough: impl Fn(usize, &LinkReport) -> bool,
) -> (LinkReport, Duration) {
    let (clock, arrivals) = (Clock::new(), Arrivals::default());
    let meter = StreamMeter::new(ClockRate::VIDEO);
    let reception = StreamReception { listen: ([127, 0, 0, 1], 0).into(), meter };
    let options =
        ReceiveOptions { tap: Some(Box::new(arrivals.clone())), ..ReceiveOptions::default() };
    let receiver = Receiver::start(clock, vec![reception], options).unwrap();
    let window = Window { lose: 1, of: 5 };
    let delay = Some(Duration::from_secs(10));
    let contract = Contract { delay, ..Contract::new(Duration::from_millis(20), window) };
    let spec = Spec::new("s", receiver.addresses()[0]).with_contract(contract);
    let link = LinkConfig { burst, ..LinkConfig::new("fq", RATE, Discipline::Dwcs) };
    let streams = [StreamParams { spec, ssrc: 1 }];
    let (engine, mut frame_producers) = Engine::start(clock, &link, &streams, None).unwrap();
    let mut packet = [7; 1200];
    packet[..2].copy_from_slice(&[0x80, 96]);
    let offer = FrameMetadata::alone(Kind::Still);
    let offered = clock.now();
    frame_producers[0].enqueue(offer, &[&packet[..]; PACKETS]).unwrap();
    while !enough(arrivals.0.lock().unwrap().len(), &engine.report()) {
        assert!(clock.now().since(offered) < Duration::from_secs(60), "not all packets came");
        clock.sleep_until(clock.now() + Duration::from_millis(5));
    }
    let last = arrivals.0.lock().unwrap().iter().copied().max().unwrap_or(offered);
    let report = engine.stop();
    let _ = receiver.stop();
    (report, last.since(offered))
}

#[test]
#[ignore = "needs fq on the loopback: tools/kernel.sh test"]
fn a_burst_leaves_at_the_rate() {
    let lasts = APART * (PACKETS as u64 - 1);
    tc("qdisc replace dev lo root fq");
    // Never before its time; on a machine that stalls in between, it tries again.
    let handed_over_at_once = (0..20).any(|_| {
        let (done, came) = one_frame();
        assert!(came >= lasts, "the last packet came after {came}");
        done < lasts
    });
    tc("qdisc del dev lo root");
    assert!(handed_over_at_once, "the kernel never had packets to hold");
    // Without it they arrive at once, sooner or later.
    assert!((0..20).any(|_| one_frame().1 < lasts));
}

#[test]
#[ignore = "needs etf on the loopback: tools/kernel.sh test"]
fn etf_gets_times_that_it_keeps_and_its_drops_are_counted() {
    const ETF: &str = "qdisc replace dev lo root etf clockid CLOCK_TAI delta";
    let lasts = APART * (PACKETS as u64 - 1);
    // A fifth of a second, by which the machine may be late.
    tc(&format!("{ETF} 200000000"));
    // It drops packets without a time, so each packet has one, also on a link without bursts.
    for burst in [Bytes(40_000), Bytes(1500)] {
        let held = |(report, came): (LinkReport, Duration)| {
            assert!(came >= lasts, "the last packet came after {came}");
            let counts = &report.streams[0].counts;
            assert_eq!((counts.send_errors, report.missed_departures), (0, 0));
        };
        held(frame_through(burst, |came, _| came == PACKETS));
    }
    // No machine is as precise as this: packets are dropped, and each drop is counted.
    tc("qdisc del dev lo root");
    tc(&format!("{ETF} 1"));
    let lost =
        |report: &LinkReport| report.streams[0].counts.send_errors + report.missed_departures;
    let (report, _) =
        frame_through(Bytes(40_000), |came, report| came as u64 + lost(report) == PACKETS as u64);
    tc("qdisc del dev lo root");
    assert!(lost(&report) > 0);
}

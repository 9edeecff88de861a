//! Turns of the engine in simulated time: arrivals and commands wait for a few packets only, however many
//! could go at once.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use selvedge_control_config::LinkConfig;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::Spec;
use selvedge_data_stream::rtp::Packet;
use selvedge_data_stream::{Contract, Kind, Window};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{LocalPoller, SteppedEngine, StreamParams};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Bitrate, Bytes, Duration};

/// A frame of packets without payload.
fn enqueue(frame_producer: &mut FrameProducer, packets: usize) {
    let mut packet = [0; 12];
    packet[..2].copy_from_slice(&[0x80, 96]);
    let slices = vec![&packet[..]; packets];
    let offer = FrameMetadata {
        kind: Kind::Data,
        referenced: false,
        closes: false,
        refs: None,
        timestamp: 0,
    };
    frame_producer.enqueue(offer, &slices).unwrap();
}

/// A frame of 150 small packets may go at once, since the largest packet takes as long. Another stream's
/// frame, due earlier, arrives meanwhile: returns after how many of the packets it goes.
fn packets_before_an_urgent_one(burst: Bytes, mtu: Bytes) -> usize {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(StdDuration::from_secs(60))).unwrap();
    let to = receiver.local_addr().unwrap();
    let clock = Clock::simulated();
    let link = LinkConfig {
        mtu,
        burst,
        selection: false,
        ..LinkConfig::new("turns", Bitrate::from_mbps(10), Discipline::Edf)
    };
    let (port, registrar) = LocalPoller::new(clock, &link, 2).unwrap();
    let mut engine = SteppedEngine::new(clock, &link, port, None).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let [mut large, mut urgent] = [10_000, 1000].map(|delay| {
        let number = usize::from(delay == 1000);
        let delay = Some(Duration::from_millis(delay));
        let contract = Contract { delay, ..Contract::new(Duration::from_millis(20), Window::NONE) };
        let spec = Spec { ring: 4, pool: Bytes(1 << 20), ..Spec::new("s", to) };
        let params = StreamParams { spec: spec.with_contract(contract), ssrc: number as u32 };
        let (new, producer) = registrar.stream(&params, None, Arc::clone(&stop));
        assert_eq!(engine.attach(new), number);
        producer(number)
    });
    enqueue(&mut large, 150);
    engine.turn();
    enqueue(&mut urgent, 1);
    let mut before = 0;
    let mut bytes = [0; 2000];
    loop {
        if let Some(until) = engine.turn() {
            engine.wait_until(until);
        }
        // Datagrams sent over loopback have arrived.
        receiver.set_nonblocking(true).unwrap();
        while let Ok(len) = receiver.recv(&mut bytes) {
            if Packet::parse(&bytes[..len]).unwrap().header.ssrc == 1 {
                return before;
            }
            before += 1;
        }
        assert!(before < 150, "the urgent frame goes last");
    }
}

#[test]
fn an_urgent_frame_overtakes_packets_that_could_go_at_once() {
    let mtu = Bytes(9000);
    let alone = packets_before_an_urgent_one(mtu, mtu);
    assert!(alone <= 64, "one by one, after {alone}");
    let batched = packets_before_an_urgent_one(Bytes(100_000), mtu);
    assert!(batched <= 64, "in batches, after {batched}");
}

//! Sender and receiver across a link that is too small, in a network namespace.

mod namespace;

use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use namespace::inside_slow_loopback;
use selvedge_data_receive::{ClockRate, MeterSnapshot, StreamMeter};
use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, stamp_deadline, write_packet};
use selvedge_data_stream::{Kind, References};
use selvedge_os::clock::Clock;
use selvedge_os::transmit::{Fate, Method, Outgoing, TransmitOptions, Transmitter};
use selvedge_place_engine::receive::{PacketTap, ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bytes, Duration, Instant};

const PERIOD: Duration = Duration::from_millis(20);
/// The time from a frame's sending to its deadline.
const DELAY: Duration = Duration::from_millis(150);
/// 2 packets of 1138 bytes with headers of IP, UDP and Ethernet per 20 ms: 130 % of 700 kbit/s.
const PACKETS: u16 = 2;
const PACKET: usize = 1138 - 42;

#[test]
fn overload_shows_as_the_loss_and_lateness_that_there_was() {
    let name = "overload_shows_as_the_loss_and_lateness_that_there_was";
    inside_slow_loopback(name, "700kbit", "4k", "24000", overload);
}

#[test]
fn full_queues_give_packets_back() {
    let name = "full_queues_give_packets_back";
    inside_slow_loopback(name, "700kbit", "4k", "24000", full_queues);
}

/// Feeds a second meter, which gets the deadlines.
struct Truth(Arc<Mutex<StreamMeter>>);

impl PacketTap for Truth {
    fn packet(&mut self, _: usize, now: Instant, bytes: &[u8]) {
        self.0.lock().unwrap().handle_packet(now, bytes);
    }
}

fn overload() {
    let clock = Clock::new();
    let start = clock.now() + Duration::from_millis(100);
    let sent_at = move |seq: u32| start + PERIOD * seq.into();
    let deadline_of = move |seq| Some(sent_at(seq) + DELAY);
    let truth = StreamMeter::with_shared_clock(ClockRate::VIDEO, deadline_of);
    let truth = Arc::new(Mutex::new(truth));
    let tap: Box<dyn PacketTap> = Box::new(Truth(Arc::clone(&truth)));
    let listen = "127.0.0.1:0".parse().unwrap();
    let reception = StreamReception { listen, meter: StreamMeter::new(ClockRate::VIDEO) };
    let options = ReceiveOptions { tap: Some(tap), ..ReceiveOptions::default() };
    let receiver = Receiver::start(clock, vec![reception], options).unwrap();
    let to = receiver.addresses()[0];
    let options = TransmitOptions { patience: Duration::ZERO, ..TransmitOptions::default() };
    let mut transmitter = Transmitter::new(clock, options).unwrap();

    // Four seconds of overload, then, when the queue has emptied, one frame that shows the end.
    let mut busy = 0;
    for seq in (0..200).chain([240]) {
        clock.sleep_until(sent_at(seq));
        let (deadline, now) = (sent_at(seq) + DELAY, clock.now());
        let packets = (0..PACKETS).map(|part| packet(seq, part, deadline, now)).collect::<Vec<_>>();
        let batch: Vec<_> = packets.iter().map(|bytes| Outgoing { to, head: &[], bytes }).collect();
        let fates = transmitter.send_batch(&batch);
        assert!(fates.iter().all(|fate| matches!(fate, Fate::Sent | Fate::Busy)), "{fates:?}");
        busy += fates.iter().filter(|&&fate| fate == Fate::Busy).count() as u64;
    }
    let sent = transmitter.counters().packets;
    let end = clock.now() + Duration::from_secs(10);
    while receiver.snapshots()[0].packets < sent && clock.now() < end {
        std::thread::yield_now();
    }
    let seen = receiver.stop().0.remove(0);
    let mut truth = truth.lock().unwrap();
    truth.finish();
    let truth = truth.snapshot();
    println!("busy {busy}\nseen {seen:?}\ntrue {truth:?}");

    // Packets dropped by the local queue were counted by the transmitter, and are missing at the receiver.
    // Their number depends on when this machine schedules the sender.
    assert!(busy > 10, "{busy} dropped of 402 at 130 %");
    assert_eq!((seen.packets, seen.socket_drops), (sent, 0));
    // 40 frames were not sent before the last; their packets' numbers were left out.
    assert_eq!(seen.lost, busy + 40 * u64::from(PACKETS));
    assert_eq!((seen.frames, truth.frames), (241, 241));
    assert_eq!((seen.complete, seen.incomplete), (truth.complete, truth.incomplete));
    // Without the sender's clock the result is the same, except for frames within a millisecond.
    let late = |snapshot: &MeterSnapshot| snapshot.late.unwrap();
    assert!(late(&truth) > 10, "{} late", late(&truth));
    assert!(late(&seen).abs_diff(late(&truth)) <= 4, "{} against {}", late(&seen), late(&truth));
    assert!(seen.decodable <= seen.on_time && seen.decodable > Some(0));
}

fn full_queues() {
    let clock = Clock::new();
    let sink = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    sink.set_read_timeout(Some(StdDuration::from_secs(10))).unwrap();
    let to = sink.local_addr().unwrap();
    let payload = vec![0; 1000];
    for method in [Method::SendMsg, Method::SendMmsg, Method::Gso] {
        // The socket's buffer is smaller than the queue (EAGAIN), or larger (ENOBUFS).
        for send_buffer in [Bytes(8_000), Bytes(1_000_000)] {
            for patience in [Duration::ZERO, Duration::from_millis(40)] {
                let options = TransmitOptions { method, send_buffer, patience };
                let mut transmitter = Transmitter::new(clock, options).unwrap();
                let batch = vec![Outgoing { to, head: &[], bytes: &payload }; 200];
                let sent = transmitter.send_batch(&batch).iter().filter(|&&f| f == Fate::Sent);
                let sent = sent.count() as u64;
                let counters = transmitter.counters();
                // The transmitter did not wait for all packets to leave, which takes over two seconds. If the
                // queue itself cuts a run, the kernel reports no losses as long as a part fits.
                let told = method != Method::Gso || patience == Duration::ZERO;
                assert!(counters.busy > 0 || !told, "{method:?} {send_buffer} {patience}");
                assert_eq!((counters.packets, sent + counters.busy), (sent, 200));
            }
        }
    }
}

/// Groups of ten frames; each but the first refers to the previous one.
fn packet(seq: u32, part: u16, deadline: Instant, now: Instant) -> Vec<u8> {
    let header = Header {
        marker: part + 1 == PACKETS,
        payload_type: 96,
        sequence: (seq as u16) * PACKETS + part,
        timestamp: seq * 1800,
        ssrc: 9,
    };
    let tag = FrameTag {
        seq,
        kind: Kind::Predicted,
        referenced: true,
        first: part == 0,
        last: part + 1 == PACKETS,
        refs: References::to([u32::from(!seq.is_multiple_of(10))]),
        left_ms: 0,
        deadline_ms: 0,
    };
    let payload = vec![0; PACKET - packet_len(0)];
    let mut bytes = vec![0; PACKET];
    write_packet(&mut bytes, header, tag, &payload);
    stamp_deadline(&mut bytes, deadline, now);
    bytes
}

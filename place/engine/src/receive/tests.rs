//! The receiver against real sockets on the loopback.

use super::*;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use selvedge_data_receive::ClockRate;
use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, write_packet};
use selvedge_data_stream::{Kind, References};

fn reception(listen: &str) -> StreamReception {
    StreamReception { listen: listen.parse().unwrap(), meter: StreamMeter::new(ClockRate::VIDEO) }
}

/// The only packet of a frame.
fn datagram(seq: u16) -> Vec<u8> {
    let header = Header {
        marker: true,
        payload_type: 96,
        sequence: seq,
        timestamp: u32::from(seq) * 3600,
        ssrc: 1,
    };
    let tag = FrameTag {
        seq: seq.into(),
        kind: Kind::Still,
        referenced: false,
        first: true,
        last: true,
        refs: References::NONE,
        left_ms: 1000,
        deadline_ms: 0,
    };
    let mut bytes = vec![0; packet_len(10)];
    write_packet(&mut bytes, header, tag, &[7; 10]);
    bytes
}

/// Waits until the receiver has seen enough, at most a minute.
fn wait_for(receiver: &Receiver, enough: impl Fn(&[MeterSnapshot]) -> bool) -> Vec<MeterSnapshot> {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let seen = receiver.snapshots();
        if enough(&seen) || std::time::Instant::now() > end {
            return seen;
        }
        std::thread::yield_now();
    }
}

#[test]
fn each_stream_is_measured_by_its_own_meter() {
    let receptions = vec![reception("127.0.0.1:0"), reception("[::1]:0")];
    let receiver = Receiver::start(Clock::new(), receptions, ReceiveOptions::default()).unwrap();
    let to = receiver.addresses().to_vec();
    assert!(to.iter().all(|address| address.port() != 0));
    let (v4, v6) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap());
    for seq in (0..100).filter(|seq| seq % 10 != 5) {
        v4.send_to(&datagram(seq), to[0]).unwrap();
        v6.send_to(&datagram(seq / 2 * 2), to[1]).unwrap();
    }
    v4.send_to(b"nothing", to[0]).unwrap();
    v4.send_to(&[], to[0]).unwrap();
    let seen = wait_for(&receiver, |seen| {
        seen[0].packets + seen[0].malformed == 92 && seen[1].packets + seen[1].duplicates == 90
    });
    assert_eq!((seen[0].packets, seen[0].malformed, seen[0].lost), (90, 2, 10));
    assert_eq!((seen[1].packets, seen[1].duplicates), (50, 40));
    let (last, _) = receiver.stop();
    assert_eq!((last[0].on_time, last[0].unseen, last[0].pending), (Some(90), Some(10), 0));
    assert_eq!(last[0].socket_drops, 0);
}

struct Counting {
    packets: Arc<AtomicUsize>,
    last: Instant,
}

impl PacketTap for Counting {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        assert_eq!((stream, bytes), (0, &datagram(3)[..]));
        assert!(now >= self.last, "kernel stamps of one socket do not go back");
        self.last = now;
        self.packets.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_tap_sees_every_datagram() {
    let packets = Arc::new(AtomicUsize::new(0));
    let tap = Counting { packets: Arc::clone(&packets), last: Instant::ZERO };
    let options = ReceiveOptions { tap: Some(Box::new(tap)), ..ReceiveOptions::default() };
    let clock = Clock::new();
    let receiver = Receiver::start(clock, vec![reception("127.0.0.1:0")], options).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..200 {
        sender.send_to(&datagram(3), receiver.addresses()[0]).unwrap();
    }
    wait_for(&receiver, |seen| seen[0].packets + seen[0].duplicates == 200);
    let (_, tap) = receiver.stop();
    assert!(tap.is_some());
    assert_eq!(packets.load(Ordering::Relaxed), 200);
}

#[test]
fn drops_at_the_socket_are_told_apart_from_losses_on_the_way() {
    // A tap that blocks the thread until the small buffer has overflowed.
    struct Hold(std::sync::mpsc::Receiver<()>);
    impl PacketTap for Hold {
        fn packet(&mut self, _: usize, _: Instant, _: &[u8]) {
            // The sender's end is dropped when all are sent.
            let _ = self.0.recv_timeout(Duration::from_secs(10));
        }
    }
    let (sent, hold) = std::sync::mpsc::channel();
    let options =
        ReceiveOptions { receive_buffer: Some(Bytes(4096)), tap: Some(Box::new(Hold(hold))) };
    let clock = Clock::new();
    let receiver = Receiver::start(clock, vec![reception("127.0.0.1:0")], options).unwrap();
    let to = receiver.addresses()[0];
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for seq in 0..1000 {
        sender.send_to(&datagram(seq), to).unwrap();
    }
    drop(sent);
    // The count arrives with the next datagrams that find room.
    let mut seq = 1000;
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while receiver.snapshots()[0].socket_drops == 0 && std::time::Instant::now() < end {
        sender.send_to(&datagram(seq), to).unwrap();
        seq = seq.wrapping_add(1);
        std::thread::yield_now();
    }
    let seen = &receiver.stop().0[0];
    assert!(seen.socket_drops > 0);
    assert!(seen.lost > 0 && seen.lost <= seen.socket_drops, "{seen:?}");
}

#[test]
fn a_taken_address_leaves_nothing_running() {
    let first =
        Receiver::start(Clock::new(), vec![reception("127.0.0.1:0")], ReceiveOptions::default())
            .unwrap();
    let taken = first.addresses()[0];
    let again = vec![reception("127.0.0.1:0"), reception(&taken.to_string())];
    let refused = Receiver::start(Clock::new(), again, ReceiveOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("choose another address or port"), "{refused}");
    drop(first);
    Receiver::start(Clock::new(), vec![reception(&taken.to_string())], ReceiveOptions::default())
        .unwrap();
}

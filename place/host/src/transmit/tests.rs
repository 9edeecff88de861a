//! The transmitter against real sockets on the loopback.

use super::*;
use std::net::UdpSocket;
use std::time::Duration;

const METHODS: [Method; 3] = [Method::SendMsg, Method::SendMmsg, Method::Gso];

fn listener(at: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket::set_buffer(&socket, Buffer::Receive, Bytes(4_000_000));
    let at = socket.local_addr().unwrap();
    (socket, at)
}

fn transmitter(method: Method) -> Transmitter {
    let options = TransmitOptions { method, ..TransmitOptions::default() };
    Transmitter::new(Clock::new(), options).unwrap()
}

/// Datagrams of these sizes, each filled with its own number.
fn payloads(sizes: &[usize]) -> Vec<Vec<u8>> {
    sizes.iter().enumerate().map(|(i, &size)| vec![i as u8; size]).collect()
}

fn expect(socket: &UdpSocket, payloads: &[Vec<u8>]) {
    let mut buffer = vec![0; 70_000];
    for (i, payload) in payloads.iter().enumerate() {
        let len = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("packet {i}: {e}"));
        assert_eq!(&buffer[..len], payload, "packet {i}");
    }
}

#[test]
fn every_method_delivers_every_packet_once_in_order() {
    // Equal runs, shorter ends, growth, empty datagrams, runs longer than a message may be,
    // and in bytes larger than a datagram may be.
    let mut sizes = vec![100, 100, 100, 40, 40, 900, 0, 900, 900, 0, 0, 1, 65_507, 7];
    sizes.extend([1200; 130]);
    sizes.push(3);
    sizes.extend([30_000; 5]);
    let payloads = payloads(&sizes);
    for method in METHODS {
        let (socket, to) = listener("127.0.0.1:0");
        let mut transmitter = transmitter(method);
        let batch: Vec<_> = payloads.iter().map(|bytes| Outgoing { to, bytes }).collect();
        assert!(transmitter.send_batch(&batch).iter().all(|&fate| fate == Fate::Sent));
        expect(&socket, &payloads);
        let counters = transmitter.counters();
        assert_eq!(counters.packets, sizes.len() as u64);
        assert_eq!(counters.bytes, Bytes(sizes.iter().sum::<usize>() as u64));
    }
}

#[test]
fn destinations_and_families_may_alternate() {
    for method in METHODS {
        let listeners = ["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"].map(listener);
        let mut transmitter = transmitter(method);
        let payloads = payloads(&[80; 90]);
        let batch: Vec<_> = payloads
            .iter()
            .enumerate()
            .map(|(i, bytes)| Outgoing { to: listeners[i / 2 % 3].1, bytes })
            .collect();
        assert!(transmitter.send_batch(&batch).iter().all(|&fate| fate == Fate::Sent));
        for (n, (socket, _)) in listeners.iter().enumerate() {
            let own = payloads.iter().enumerate().filter(|(i, _)| i / 2 % 3 == n);
            expect(socket, &own.map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>());
        }
    }
}

#[test]
fn fewer_calls_are_made_by_the_better_methods() {
    let (_socket, to) = listener("127.0.0.1:0");
    let calls = METHODS.map(|method| {
        let mut transmitter = transmitter(method);
        let payloads = payloads(&[100; 128]);
        let batch: Vec<_> = payloads.iter().map(|bytes| Outgoing { to, bytes }).collect();
        transmitter.send_batch(&batch);
        (transmitter.method(), transmitter.counters().calls)
    });
    assert_eq!(calls[0], (Method::SendMsg, 128));
    assert_eq!(calls[1], (Method::SendMmsg, 2));
    if calls[2].0 == Method::Gso {
        assert_eq!(calls[2].1, 1);
    }
}

#[test]
fn a_closed_port_harms_nobody_and_is_counted() {
    for (method, host) in METHODS.into_iter().zip(["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"]) {
        let (socket, to) = listener(host);
        let closed = listener(host).1;
        let mut transmitter = transmitter(method);
        let payloads = payloads(&[50; 100]);
        let batch: Vec<_> = payloads
            .iter()
            .enumerate()
            .map(|(i, bytes)| Outgoing { to: if i % 2 == 0 { to } else { closed }, bytes })
            .collect();
        // Each refused packet may stand in the way of the next one.
        for one in batch.chunks(10) {
            assert!(transmitter.send_batch(one).iter().all(|&fate| fate == Fate::Sent));
        }
        let to_open = payloads.into_iter().step_by(2).collect::<Vec<_>>();
        expect(&socket, &to_open);
        assert!(transmitter.counters().icmp_errors > 0, "{method:?}");
        assert_eq!(transmitter.unreachable(), Some(closed), "{method:?}");
    }
}

#[test]
fn what_cannot_be_sent_is_refused_and_the_rest_goes() {
    for method in METHODS {
        let (socket, to) = listener("127.0.0.1:0");
        let mut transmitter = transmitter(method);
        let payloads = payloads(&[10, 65_508, 10]);
        let batch: Vec<_> = payloads.iter().map(|bytes| Outgoing { to, bytes }).collect();
        let fates = transmitter.send_batch(&batch);
        assert_eq!(fates, [Fate::Sent, Fate::Refused(Errno::MSGSIZE), Fate::Sent]);
        expect(&socket, &[payloads[0].clone(), payloads[2].clone()]);
        assert_eq!(transmitter.counters().refused, 1);
    }
}

#[test]
fn a_run_that_exceeds_the_device_goes_packet_by_packet() {
    // Port 0 is no destination at all: the kernel refuses the run, then each packet of it.
    let mut transmitter = transmitter(Method::Gso);
    let to = SocketAddr::from(([127, 0, 0, 1], 0));
    let payloads = payloads(&[20; 3]);
    let batch: Vec<_> = payloads.iter().map(|bytes| Outgoing { to, bytes }).collect();
    assert_eq!(transmitter.send_batch(&batch), [Fate::Refused(Errno::INVAL); 3]);
    if transmitter.method() == Method::Gso {
        assert_eq!(transmitter.counters().gso_refused, 1);
    }
    assert!(transmitter.send_batch(&[]).is_empty());
}

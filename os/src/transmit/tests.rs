//! The transmitter against real sockets on the loopback.

use selvedge_units::Instant;

use super::*;
use crate::namespace::{self, Veth};
use crate::socket::{self, Buffer};
use std::net::UdpSocket;
use std::time::Duration as StdDuration;

const METHODS: [Method; 3] = [Method::SendMsg, Method::SendMmsg, Method::Gso];

fn listener(at: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(StdDuration::from_secs(10))).unwrap();
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
        let batch: Vec<_> =
            payloads.iter().map(|bytes| Outgoing { to, head: &[], bytes }).collect();
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
            .map(|(i, bytes)| Outgoing { to: listeners[i / 2 % 3].1, head: &[], bytes })
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
        let batch: Vec<_> =
            payloads.iter().map(|bytes| Outgoing { to, head: &[], bytes }).collect();
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
            .map(|(i, bytes)| Outgoing {
                to: if i % 2 == 0 { to } else { closed },
                head: &[],
                bytes,
            })
            .collect();
        // The error of each refused packet may be returned for the next one.
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
        let batch: Vec<_> =
            payloads.iter().map(|bytes| Outgoing { to, head: &[], bytes }).collect();
        let fates = transmitter.send_batch(&batch);
        assert_eq!(fates, [Fate::Sent, Fate::Refused(Errno::MSGSIZE), Fate::Sent]);
        expect(&socket, &[payloads[0].clone(), payloads[2].clone()]);
        assert_eq!(transmitter.counters().refused, 1);
    }
}

#[test]
fn a_run_that_exceeds_the_device_goes_packet_by_packet() {
    // Port 0 is not a destination: the kernel refuses the run, then each packet of it.
    let mut transmitter = transmitter(Method::Gso);
    let to = SocketAddr::from(([127, 0, 0, 1], 0));
    let payloads = payloads(&[20; 3]);
    let batch: Vec<_> = payloads.iter().map(|bytes| Outgoing { to, head: &[], bytes }).collect();
    assert_eq!(transmitter.send_batch(&batch), [Fate::Refused(Errno::INVAL); 3]);
    if transmitter.method() == Method::Gso {
        assert_eq!(transmitter.counters().gso_refused, 1);
    }
    assert!(transmitter.send_batch(&[]).is_empty());
}

/// Runs `body` in a namespace of its own with a veth pair; where none can be created, prints that.
fn on_a_wire(test: &str, body: impl FnOnce(&Veth) + Send) {
    let done = namespace::alone(|| Veth::new().map(|wire| body(&wire)));
    if let Err(why) | Ok(Err(why)) = done {
        eprintln!("SKIPPED {test}: needs CAP_SYS_ADMIN and veth: {why}");
    }
}

#[test]
fn by_af_xdp_every_packet_comes_once_and_in_order() {
    on_a_wire("by_af_xdp_every_packet_comes_once_and_in_order", |wire| {
        let (socket, to) = namespace::listener(wire).unwrap();
        socket::set_buffer(&socket, Buffer::Receive, Bytes(4_000_000));
        let mut transmitter = transmitter(Method::Xdp);
        assert_eq!(transmitter.method(), Method::Xdp);
        // The first is sent by the socket, and the kernel resolves the neighbour.
        let mut buffer = [0; 2000];
        let clock = Clock::new();
        while transmitter.counters().xdp == 0 {
            let fates = transmitter.send_batch(&[Outgoing { to, head: &[], bytes: b"first" }]);
            assert_eq!(fates, [Fate::Sent]);
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..len], from.ip()), (&b"first"[..], namespace::NEAR.into()));
            let waited = clock.now().since(Instant::ZERO);
            assert!(waited < Duration::from_secs(20), "{:?}", transmitter.fallback());
        }
        // More than the ring holds; one larger than a packet, which the kernel's IP must fragment.
        let mut sizes: Vec<usize> = (0..300).map(|n| n * 37 % 1400).collect();
        sizes.extend([1472, 1473, 1, 0]);
        let payloads = payloads(&sizes);
        let batch: Vec<_> =
            payloads.iter().map(|bytes| Outgoing { to, head: &[], bytes }).collect();
        let before = transmitter.counters();
        assert!(transmitter.send_batch(&batch).iter().all(|&fate| fate == Fate::Sent));
        expect(&socket, &payloads);
        let counters = transmitter.counters();
        assert_eq!(counters.packets - before.packets, sizes.len() as u64);
        assert_eq!(counters.bytes.0 - before.bytes.0, sizes.iter().sum::<usize>() as u64);
        // All except the large one.
        assert_eq!(counters.xdp - before.xdp, sizes.len() as u64 - 1);
        // From the port of its sockets.
        transmitter.send_batch(&[Outgoing { to, head: &[], bytes: b"again" }]);
        let (_, from) = socket.recv_from(&mut buffer).unwrap();
        transmitter.send_batch(&[Outgoing { to, head: &[], bytes: &[1; 3000] }]);
        assert_eq!(socket.recv_from(&mut buffer).unwrap().1, from);
    });
}

#[test]
fn what_can_not_go_by_af_xdp_goes_by_the_sockets_for_a_reason() {
    let (socket, to) = listener("127.0.0.1:0");
    let (socket6, to6) = listener("[::1]:0");
    let mut transmitter = transmitter(Method::Xdp);
    let payloads = payloads(&[80; 10]);
    for (socket, to) in [(socket, to), (socket6, to6)] {
        let batch: Vec<_> =
            payloads.iter().map(|bytes| Outgoing { to, head: &[], bytes }).collect();
        assert!(transmitter.send_batch(&batch).iter().all(|&fate| fate == Fate::Sent));
        expect(&socket, &payloads);
    }
    let counters = transmitter.counters();
    assert_eq!((counters.packets, counters.xdp, counters.busy), (20, 0, 0));
    let reason = transmitter.fallback().unwrap();
    assert!(reason.contains("this host"), "{reason}");
}

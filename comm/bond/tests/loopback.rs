//! Both ends on the loopback, with two paths.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_comm_bond::{
    BondError, BondReceiver, BondSender, Credentials, Deliver, PathOptions, SenderOptions,
};
use selvedge_data_net_bond::{PathParams, StreamId};
use selvedge_data_net_secure::{Identity, Key};
use selvedge_os::clock::Clock;
use selvedge_tests_wait::until;
use selvedge_units::{Bitrate, Duration, Instant};

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    starts: usize,
    texts: Vec<(u16, String)>,
    packets: Vec<(u16, Vec<u8>)>,
}

impl Deliver for Seen {
    fn handle_start(&mut self) {
        self.0.lock().starts += 1;
    }

    fn handle_description(&mut self, stream: StreamId, text: &str) {
        self.0.lock().texts.push((stream.0, text.to_owned()));
    }

    fn handle_packet(&mut self, _: Instant, stream: StreamId, packet: &[u8]) {
        self.0.lock().packets.push((stream.0, packet.to_vec()));
    }
}

fn credentials(secret: u8) -> Credentials {
    Credentials { identity: Identity::Secret(Key([secret; 32])), peers: Vec::new(), peer: None }
}

fn sender(to: SocketAddr, secret: u8, clock: Clock) -> BondSender {
    let path = |name: &str, last| PathOptions {
        name: name.to_owned(),
        device: None,
        address: Some(IpAddr::from(Ipv4Addr::new(127, 0, 0, last))),
        to,
        allowance: None,
        params: PathParams::default(),
    };
    let paths = vec![path("one", 1), path("two", 2)];
    let options = SenderOptions { credentials: credentials(secret), paths };
    BondSender::start(options, clock).expect("it starts")
}

const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn send(bond: &BondSender, clock: Clock, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let deadline = clock.now() + Duration::from_secs(5);
        assert!(bond.send(StreamId(7), deadline, None, &number.to_be_bytes()));
    }
}

#[test]
fn packets_come_in_order_over_both_paths_and_again_when_either_end_begins_anew() {
    let clock = Clock::new();
    let (seen, numbers) = (Seen::default(), |packets: &[(u16, Vec<u8>)]| {
        let number = |bytes: &Vec<u8>| u32::from_be_bytes(*bytes.first_chunk().expect("4 bytes"));
        packets.iter().map(|(_, packet)| number(packet)).collect::<Vec<_>>()
    });
    let far = BondReceiver::bind(LOCAL, &credentials(1), clock, seen.clone()).expect("it binds");
    let near = sender(far.address(), 1, clock);
    let are_up = || near.view().iter().all(|path| path.problem.is_none() && path.status.is_some());
    until("both paths", are_up);
    near.set_demand(Bitrate::from_mbps(1));
    near.describe(StreamId(7), "a stream");
    send(&near, clock, 0..300);
    until("all packets", || seen.0.lock().packets.len() == 300);
    assert_eq!(numbers(&seen.0.lock().packets), (0..300).collect::<Vec<_>>());
    assert_eq!(seen.0.lock().texts, [(7, "a stream".to_owned())]);
    let carried = near.view();
    assert!(carried.iter().all(|path| path.status.is_some_and(|s| s.sent.0 > 0)), "{carried:?}");
    assert_eq!(far.view().paths.len(), 2);
    assert_eq!(far.view().counts.delivered, 300);

    // Another far end at the same address knows no connection.
    let at = far.address();
    drop(far);
    let seen = Seen::default();
    let far = BondReceiver::bind(at, &credentials(1), clock, seen.clone()).expect("it binds");
    send(&near, clock, 300..310);
    until("the description", || !seen.0.lock().texts.is_empty());
    until("both paths again", || far.view().paths.len() == 2);
    let before = seen.0.lock().packets.len();
    send(&near, clock, 310..320);
    until("later packets", || seen.0.lock().packets.len() >= before + 10);
    assert_eq!(numbers(&seen.0.lock().packets).last(), Some(&319));

    // A near end that begins anew counts from the beginning.
    drop(near);
    let near = sender(at, 1, clock);
    until("a path", || near.send(StreamId(7), clock.now() + Duration::from_secs(5), None, &[0; 4]));
    until("its packet", || seen.0.lock().packets.last().is_some_and(|(_, bytes)| *bytes == [0; 4]));
    assert_eq!(seen.0.lock().starts, 2);
}

#[test]
fn another_secret_connects_nothing_and_says_so() {
    let clock = Clock::new();
    let seen = Seen::default();
    let far = BondReceiver::bind(LOCAL, &credentials(1), clock, seen.clone()).expect("it binds");
    let near = sender(far.address(), 2, clock);
    let says = |path: &selvedge_comm_bond::PathView| {
        path.problem.as_ref().is_some_and(|why| why.contains("have the same secret"))
    };
    until("the reason", || near.view().iter().all(says));
    assert!(!near.send(StreamId(1), clock.now(), None, &[1]));
    assert!(far.view().paths.is_empty());
    assert_eq!(seen.0.lock().starts, 0);

    let open = Credentials { identity: Identity::Open, ..credentials(1) };
    let refused = BondReceiver::bind(LOCAL, &open, clock, seen).map(|_| ());
    assert!(matches!(refused, Err(BondError::Open)), "{refused:?}");
}

//! Both ends on the loopback, with two paths.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_comm_bond::{
    BondError, BondReceiver, BondSender, Credentials, Deliver, PathOptions, SenderOptions,
};
use selvedge_data_net_bond::{PathParams, StreamId};
use selvedge_data_net_secure::{Identity, Key};
use selvedge_os::clock::Clock;
use selvedge_os::poll_thread::PollThread;
use selvedge_os::single_datagram;
use selvedge_os::socket::{CE, ECT_0, NOT_ECT, open_bound, request_ecn, set_ecn};
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
    let from = |last| Some(IpAddr::from(Ipv4Addr::new(127, 0, 0, last)));
    sender_from(&[from(1), from(2)], to, secret, clock)
}

/// A path from each address.
fn sender_from(
    addresses: &[Option<IpAddr>],
    to: impl ToString,
    secret: u8,
    clock: Clock,
) -> BondSender {
    let path = |address: &Option<IpAddr>| PathOptions {
        name: format!("from {address:?}"),
        device: None,
        address: *address,
        to: to.to_string(),
        allowance: None,
        params: PathParams::default(),
    };
    let paths = addresses.iter().map(path).collect();
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

/// What a network does with datagrams that are ECN-capable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Capable {
    Passes,
    Vanishes,
    IsMarked,
}

/// A network between a near end with one path and its far end.
struct Network {
    address: SocketAddr,
    /// Datagrams of the near end by their ECN field.
    came: Arc<Mutex<[u64; 4]>>,
    _thread: PollThread,
}

fn network(to: SocketAddr, capable: Capable) -> Network {
    let (is_v6, open) = (to.is_ipv6(), || open_bound(SocketAddr::new(to.ip(), 0)).expect("one"));
    let ((front, address), (back, _)) = (open(), open());
    request_ecn(&front, is_v6).expect("Linux has it");
    let [front, back] = [front, back].map(|socket| Arc::new(UdpSocket::from(socket)));
    let (came, mut near, mut buffer) = (Arc::new(Mutex::new([0; 4])), None, Vec::new());
    let own = Arc::clone(&came);
    let turn = move || {
        while let Some(datagram) = single_datagram::receive(&front, &mut buffer) {
            let mut ecn = datagram.ecn.expect("it is requested");
            near = Some(datagram.from);
            own.lock()[usize::from(ecn)] += 1;
            match (ecn, capable) {
                (ECT_0, Capable::Vanishes) => continue,
                (ECT_0, Capable::IsMarked) => ecn = CE,
                _ => {}
            }
            set_ecn(&back, is_v6, ecn).expect("Linux has it");
            let _ = back.send_to(&buffer, to);
        }
        while single_datagram::receive(&back, &mut buffer).is_some() {
            let _ = near.map(|near| front.send_to(&buffer, near));
        }
        (Instant::MAX, vec![Arc::clone(&front), Arc::clone(&back)])
    };
    let thread = PollThread::start("network", Clock::new(), turn).expect("it starts");
    Network { address, came, _thread: thread }
}

#[test]
fn a_far_end_has_a_name_and_one_that_does_not_resolve_is_said() {
    let (clock, seen) = (Clock::new(), Seen::default());
    let far = BondReceiver::bind(LOCAL, &credentials(1), clock, seen.clone()).expect("it binds");
    let name = format!("localhost:{}", far.address().port());
    let near = sender_from(&[Some(Ipv4Addr::LOCALHOST.into())], name, 1, clock);
    until("the path", || near.view()[0].problem.is_none());
    send(&near, clock, 0..10);
    until("all packets", || seen.0.lock().packets.len() == 10);

    let near = sender_from(&[None], "no-such-host.invalid:7800", 1, clock);
    let problem = || near.view()[0].problem.clone().unwrap_or_default();
    until("the reason", || {
        problem().starts_with("\"no-such-host.invalid:7800\" does not resolve: ")
    });
    assert!(near.view()[0].status.is_none());
}

/// Both ends with such a network between them, on this address.
fn over(
    capable: Capable,
    at: &str,
    check: impl Fn(&BondSender, &dyn Fn() -> [u64; 4], &dyn Fn() -> usize),
) {
    let (clock, seen) = (Clock::new(), Seen::default());
    let at = at.parse().expect("an address");
    let far = BondReceiver::bind(at, &credentials(1), clock, seen.clone()).expect("it binds");
    let network = network(far.address(), capable);
    let near = sender_from(&[None], network.address, 1, clock);
    until("the path", || near.view().iter().all(|path| path.status.is_some()));
    let delivered = || {
        send(&near, clock, 0..1);
        seen.0.lock().packets.len()
    };
    check(&near, &|| *network.came.lock(), &delivered);
}

const V4: &str = "127.0.0.1:0";

#[test]
fn datagrams_are_ecn_capable_but_for_handshakes() {
    for at in [V4, "[::1]:0"] {
        over(Capable::Passes, at, |near, came, delivered| {
            until("packets", || delivered() > 300);
            let came = came();
            println!("{at}: {came:?}");
            let [plain, capable] = [NOT_ECT, ECT_0].map(|ecn| came[usize::from(ecn)]);
            assert!((1..20).contains(&plain) && capable > 300, "{came:?}");
            assert_eq!(came.iter().sum::<u64>(), plain + capable);
            assert_eq!(near.view()[0].problem, None);
        });
    }
}

#[test]
fn a_path_that_loses_all_that_is_ecn_capable_goes_on_without() {
    over(Capable::Vanishes, V4, |near, came, delivered| {
        until("packets", || delivered() > 300);
        let before = came();
        println!("{before:?}");
        let before = before[usize::from(ECT_0)];
        assert!(before > 0, "it was not tried");
        let so_far = delivered();
        until("more packets", || delivered() > so_far + 300);
        assert_eq!(came()[usize::from(ECT_0)], before);
        until("the path", || near.view()[0].problem.is_none());
    });
}

#[test]
fn marks_lower_the_rate() {
    let far_from_the_start = [Bitrate::from_kbps(250), Bitrate::from_mbps(2)];
    over(Capable::IsMarked, V4, |near, _, _| {
        near.set_demand(Bitrate::from_mbps(100));
        until("a lower rate", || near.estimate().rate < far_from_the_start[0]);
    });
    over(Capable::Passes, V4, |near, _, _| {
        near.set_demand(Bitrate::from_mbps(100));
        until("a higher rate", || near.estimate().rate > far_from_the_start[1]);
    });
}

//! Connections through a network that loses, duplicates, reorders, truncates and replays datagrams,
//! and with peers that flood, never acknowledge, or are killed.

mod peer;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use selvedge_comm_stack::endpoint::{Connection, Endpoint, Options, RecvError};
use selvedge_comm_stack::wire;
use selvedge_data_net_secure::{Handshakes, Identity};
use selvedge_data_stack::auto::Event;
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::module::{Direction, Reason};
use selvedge_data_stack::stack::SendError;
use selvedge_units::{Bytes, Duration};

use peer::Peer;

const LONG: Duration = Duration::from_secs(120);

fn contract() -> Contract {
    Contract {
        traffic: Traffic::steady(Duration::from_millis(100), Bytes(20_000)),
        quality: Quality { delay: Duration::from_secs(1), loss_burst: 0, promise: Promise::Wanted },
    }
}

fn endpoint() -> Endpoint {
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), Options::default()).unwrap();
    // These tests send as fast as they can, so no contract applies.
    endpoint.set(selvedge_data_stack::auto::ManagerSettings {
        activation: Duration::from_secs(1 << 30),
        ..Default::default()
    });
    endpoint
}

/// The faults of the network, each as a rate in 1000 datagrams.
#[derive(Clone, Copy, Default)]
struct Faults {
    lost: u64,
    repeated: u64,
    late: u64,
    cut: u64,
    flipped: u64,
    /// An old datagram is sent again.
    replayed: u64,
}

/// A network between two endpoints: datagrams to `at` go to the listener, and answers go back. The
/// fate of a datagram depends on a seed only.
struct Network {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    fn to(listener: SocketAddr, faults: Faults, seed: u64) -> Self {
        let [front, back] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let at = front.local_addr().unwrap();
        for socket in [&front, &back] {
            socket.set_nonblocking(true).unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut caller, mut buffer) = (None, vec![0; 65_536]);
            let mut ways = [Way::new(faults, seed), Way::new(faults, seed + 1)];
            while !stopped.load(Ordering::Relaxed) {
                let mut idle = true;
                for (n, from) in [&front, &back].into_iter().enumerate() {
                    let Ok((len, who)) = from.recv_from(&mut buffer) else { continue };
                    idle = false;
                    if n == 0 {
                        caller = Some(who);
                    }
                    let (out, to) = if n == 0 { (&back, Some(listener)) } else { (&front, caller) };
                    let Some(to) = to else { continue };
                    ways[n].pass(&buffer[..len], |bytes| _ = out.send_to(bytes, to));
                }
                if idle {
                    thread::yield_now();
                }
            }
        });
        Self { at, stop, thread: Some(thread) }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One direction of a network.
struct Way {
    faults: Faults,
    state: u64,
    held: Vec<Vec<u8>>,
    old: Vec<Vec<u8>>,
}

impl Way {
    fn new(faults: Faults, seed: u64) -> Self {
        Self { faults, state: seed, held: Vec::new(), old: Vec::new() }
    }

    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.state >> 33
    }

    fn chance(&mut self, of_1000: u64) -> bool {
        self.draw() % 1000 < of_1000
    }

    fn pass(&mut self, bytes: &[u8], mut send: impl FnMut(&[u8])) {
        let faults = self.faults;
        if self.old.len() < 256 {
            self.old.push(bytes.to_vec());
        }
        if self.chance(faults.replayed) {
            let n = self.draw() as usize % self.old.len();
            send(&self.old[n]);
        }
        if self.chance(faults.lost) {
            return;
        }
        let mut bytes = bytes.to_vec();
        if self.chance(faults.cut) {
            bytes.truncate(self.draw() as usize % bytes.len().max(1));
        }
        if self.chance(faults.flipped) && !bytes.is_empty() {
            let bit = self.draw() as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if self.chance(faults.late) {
            self.held.push(bytes);
            return;
        }
        send(&bytes);
        if self.chance(faults.repeated) {
            send(&bytes);
        }
        if self.held.len() > 20 || self.chance(100) {
            self.held.drain(..).for_each(|late| send(&late));
        }
    }
}

/// A connection through a network.
fn through(
    line: &str,
    faults: Faults,
    seed: u64,
) -> (Endpoint, Endpoint, Network, Connection, Connection) {
    let (a, b) = (endpoint(), endpoint());
    let network = Network::to(b.address(), faults, seed);
    let here = a.connect(network.at, line, contract(), contract()).unwrap();
    let there = b.accept(LONG).unwrap();
    (a, b, network, here, there)
}

/// A message that contains its own number and length, so that a wrong byte is noticed.
fn message(n: u32) -> Vec<u8> {
    let len = 8 + (n as usize * 7919) % 9000;
    let mut bytes: Vec<u8> = (0..len).map(|at| (at as u32 ^ n) as u8).collect();
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().expect("messages have a number"))
}

#[test]
fn reliable_delivers_everything_once_in_order_whatever_the_network_does() {
    for (n, lost) in [0, 300].into_iter().enumerate() {
        let faults = Faults { lost, repeated: 50, late: 100, cut: 20, flipped: 20, replayed: 50 };
        for line in [
            "ui | encrypt(aes256) | reliable | frag(1400) | net",
            "ui | checksum | reliable | frag(1400) | net",
            "ui | reliable | encrypt(chacha20) | frag(1400) | net",
        ] {
            let (_a, _b, _network, here, there) = through(line, faults, 11 + n as u64);
            let messages = if lost > 0 { 100 } else { 300 };
            thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..messages {
                        here.send(&message(n), LONG).unwrap();
                    }
                });
                let mut got = Vec::new();
                for n in 0..messages {
                    there.recv(&mut got, LONG).unwrap();
                    assert_eq!(got, message(n), "message {n} at {lost} of 1000 lost, {line}");
                }
            });
        }
    }
}

#[test]
fn unreliable_never_delivers_a_corrupted_message_or_one_twice() {
    let faults =
        Faults { lost: 50, repeated: 100, late: 100, cut: 100, flipped: 200, replayed: 100 };
    let line = "ui | checksum | unreliable | frag(1400) | net";
    let (_a, _b, _network, here, there) = through(line, faults, 5);
    let mut seen = std::collections::HashSet::new();
    let mut got = Vec::new();
    let mut take = |patience| {
        while there.recv(&mut got, patience) == Ok(()) {
            assert_eq!(got, message(number(&got)), "as it was sent");
            assert!(seen.insert(number(&got)), "message {} twice", number(&got));
        }
    };
    for n in 0..1000 {
        here.send(&message(n), LONG).unwrap();
        take(Duration::ZERO);
    }
    here.flush(Duration::from_secs(5));
    take(Duration::from_millis(500));
    assert!(seen.len() > 100, "{} of 1000 arrived", seen.len());
    let reasons: Vec<Reason> = there.dropped().into_iter().map(|(why, _)| why).collect();
    assert!(reasons.contains(&Reason::Corrupt), "{reasons:?}");
    assert!(reasons.contains(&Reason::Duplicate), "{reasons:?}");
}

#[test]
fn a_flood_of_hellos_is_counted_and_takes_no_room() {
    let victim = endpoint();
    let begun = Instant::now();
    let flood = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dropped = || victim.view().dropped.iter().map(|(_, count)| count).sum::<u64>();
    let mut caller: Handshakes<()> = Handshakes::new(Identity::Open, &wire::seed());
    let (to, now) = (victim.address(), selvedge_units::Instant::ZERO);
    let mut hello = |id| {
        caller.connect(id, to, None, &wire::seed(), now).unwrap();
        // The attacker does not wait for a cookie, and proposes nonsense.
        caller.propose(id, b"nonsense", &wire::seed(), now).unwrap();
        std::iter::from_fn(|| caller.poll_transmit()).last().unwrap().bytes
    };
    for n in 1..200_000_u32 {
        // A new connection number and public key each time; some datagrams are not valid hellos.
        let mut hello = hello(n);
        hello[40] ^= u8::from(n % 8 == 0);
        flood.send_to(&hello, to).unwrap();
        if dropped() >= 100 {
            break;
        }
    }
    let view = victim.view();
    for why in ["without cookie", "forged"] {
        assert!(view.dropped.iter().any(|(reason, _)| reason == why), "{view:?}");
    }
    // 16 without a cookie, and 16 more every 3 s, when the earlier ones are forgotten.
    let most = 16 * (1 + begun.elapsed().as_secs() / 3);
    assert!((1..=most).contains(&view.refused), "{view:?}");
    assert!(victim.accept(Duration::ZERO).is_none());
    // The endpoint still serves other peers.
    let friend = endpoint();
    let line = "ui | reliable | net";
    let here = friend.connect(victim.address(), line, contract(), contract()).unwrap();
    let there = victim.accept(LONG).unwrap();
    here.send(b"still here", LONG).unwrap();
    let mut got = Vec::new();
    there.recv(&mut got, LONG).unwrap();
    assert_eq!(got, b"still here");
}

#[test]
fn connections_that_nobody_accepts_are_bounded() {
    let (caller, listener) = (endpoint(), endpoint());
    let mut kept = Vec::new();
    let error = (0..1000).find_map(|_| {
        let easy = contract();
        match caller.connect(listener.address(), "ui | unreliable | net", easy, easy) {
            Ok(connection) => {
                kept.push(connection);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    });
    let error = error.expect("at some number it is enough");
    assert!(error.contains("refuses"), "{error}");
    assert!(!kept.is_empty() && kept.len() <= 64, "{} connections", kept.len());
}

/// Not a test by itself: the code of the killed peer, which runs as a process of its own.
#[test]
fn peer() {
    peer::be(endpoint, LONG);
}

#[test]
fn a_peer_that_is_killed_under_load_is_told_and_hangs_nobody() {
    let (mut peer, at) = Peer::start("echo");
    let ours = endpoint();
    let line = "ui | encrypt(aes256) | reliable | frag(1400) | net";
    let here = ours.connect(at, line, contract(), contract()).unwrap();
    let mut got = Vec::new();
    for n in 0..200 {
        here.send(&message(n), LONG).unwrap();
        if n % 2 == 1 {
            here.recv(&mut got, LONG).unwrap();
        }
    }
    peer.kill();
    let mut sent = 0;
    let full = (0..10_000).find_map(|n| {
        here.send(&message(n), Duration::from_millis(50)).inspect(|()| sent += 1).err()
    });
    assert_eq!(full, Some(SendError::Full), "the window bounds what waits");
    assert!(sent <= 256, "{sent} messages more");
    let patience = Duration::from_millis(300);
    let left = (0..1000).find_map(|_| here.recv(&mut got, patience).err());
    assert!(matches!(left, Some(RecvError::Timeout | RecvError::PeerLost)), "{left:?}");
    assert!(!here.flush(Duration::from_millis(10)));
    // Closing does not wait for a killed peer.
    drop(here);
    drop(ours);
}

/// Sets a flag when it goes out of scope, so that a thread that looks at it ends after a panic too.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_sender_that_is_killed_and_returns_is_received_beside_its_ghost() {
    // The connection of the killed sender stays for longer than this test may take.
    let options = Options { silence: Duration::from_secs(1 << 20), ..Options::default() };
    let listener = Endpoint::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let (mut sender, _) = Peer::start(&listener.address().to_string());
    let ghost = listener.accept(LONG).expect("the sender connects");
    ghost.take(LONG).expect("the sender sends");
    sender.kill();
    let (stop, returned) = (AtomicBool::new(false), endpoint());
    thread::scope(|scope| {
        let _stop = Flag(&stop);
        // As in an application that has a thread for each connection.
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let _ = ghost.take(Duration::from_millis(50));
            }
        });
        let line = "ui | reliable | net";
        let here = returned.connect(listener.address(), line, contract(), contract()).unwrap();
        let there = listener.accept(LONG).expect("the sender connects again");
        let (begun, mut got) = (Instant::now(), Vec::new());
        for n in 0..1000 {
            here.send(&message(n), LONG).unwrap();
            there.recv(&mut got, LONG).unwrap();
            assert_eq!(got, message(n));
            assert!(
                begun.elapsed() < LONG.into(),
                "{n} messages in {LONG:?}: the receiver starves"
            );
        }
        assert_eq!(listener.view().connections.len(), 2, "the ghost is still there");
    });
}

#[test]
fn a_new_contract_is_agreed_on_whatever_the_network_does() {
    let faults =
        Faults { lost: 300, repeated: 100, late: 100, cut: 50, flipped: 50, replayed: 100 };
    for line in [
        "ui | encrypt(aes256) | reliable | frag(1400) | net",
        "ui | encrypt(chacha20) | unreliable | net",
    ] {
        let (_a, _b, _network, here, there) = through(line, faults, 5);
        for n in 1..6 {
            let traffic = Traffic::steady(Duration::from_millis(100), Bytes(n * 1000));
            let new = Contract { traffic, ..contract() };
            let way = if n % 2 == 0 { Direction::Down } else { Direction::Up };
            here.renegotiate(way, new).unwrap();
            let told = there.events();
            let is_it = |event: &Event| matches!(event, Event::Renegotiated { contract, .. } if *contract == new);
            // The application is notified once, though the request may have arrived many times.
            assert_eq!(
                told.iter().filter(|(_, event)| is_it(event)).count(),
                1,
                "{line}: {told:?}"
            );
        }
    }
}

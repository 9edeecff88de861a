//! Attacks on sealed connections by a party without the key that observes, records, changes and forges
//! datagrams on the way. The messages delivered under each attack stay within 1 % of those without.

mod peer;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use selvedge_comm_stack::endpoint::{ConnectError, Connection, Endpoint, Options};
use selvedge_data_net_secure::{Identity, Key};
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_tests_wait::until;
use selvedge_units::{Bytes, Duration};

use peer::Peer;

const LONG: Duration = Duration::from_secs(60);
const MESSAGES: u32 = 300;
const LINES: [&str; 3] = [
    "ui | reliable | frag(1400) | net",
    "ui | unreliable(ordered) | frag(1400) | net",
    "ui | encrypt(chacha20) | reliable | net",
];

fn contract() -> Contract {
    Contract {
        traffic: Traffic::steady(Duration::from_millis(1), Bytes(20_000)),
        quality: Quality { delay: Duration::from_secs(1), loss_burst: 0, promise: Promise::Wanted },
    }
}

fn with(identity: Identity) -> Endpoint {
    let options = Options { identity, ..Options::default() };
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    // These tests send as fast as they can, so no contract applies.
    endpoint.set(selvedge_data_stack::auto::ManagerSettings {
        activation: Duration::from_secs(1 << 30),
        ..Default::default()
    });
    endpoint
}

fn sealed() -> Endpoint {
    with(Identity::Secret(Key([7; 32])))
}

/// The attacker's datagrams for each one that passes: `true` for one to the listener.
type Attack = fn(bytes: &[u8], to_listener: bool, count: u64, inject: &mut dyn FnMut(bool, &[u8]));

/// The attacker's proxy: it forwards datagrams that arrive at `at` to the listener, and the answers back.
struct Way {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Way {
    fn to(listener: SocketAddr, attack: Attack) -> Self {
        let [front, back] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let at = front.local_addr().unwrap();
        for socket in [&front, &back] {
            socket.set_nonblocking(true).unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut caller, mut buffer, mut count) = (None, vec![0; 65_536], 0);
            while !stopped.load(Ordering::Relaxed) {
                let mut idle = true;
                for (from, to_listener) in [(&front, true), (&back, false)] {
                    let Ok((len, who)) = from.recv_from(&mut buffer) else { continue };
                    idle = false;
                    if to_listener {
                        caller = Some(who);
                    }
                    let mut send = |to_listener: bool, bytes: &[u8]| {
                        let _ = match (to_listener, caller) {
                            (true, _) => back.send_to(bytes, listener),
                            (false, Some(caller)) => front.send_to(bytes, caller),
                            (false, None) => return,
                        };
                    };
                    let bytes = &buffer[..len];
                    count += 1;
                    attack(bytes, to_listener, count, &mut send);
                    send(to_listener, bytes);
                }
                if idle {
                    thread::yield_now();
                }
            }
        });
        Self { at, stop, thread: Some(thread) }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The number of messages that arrive, sent one after the other.
fn carried(here: &Connection, there: &Connection) -> u32 {
    let mut got = Vec::new();
    let arrives = |n: &u32| {
        let message = [&n.to_be_bytes()[..], &[n.to_le_bytes()[0]; 3000]].concat();
        here.send(&message, LONG).unwrap();
        // The received message is the sent one, and none arrives twice.
        there.recv(&mut got, Duration::from_secs(2)).is_ok() && got == message
    };
    (0..MESSAGES).filter(arrives).count() as u32
}

fn delivered(line: &str, attack: Attack) -> u32 {
    let (caller, listener) = (sealed(), sealed());
    let way = Way::to(listener.address(), attack);
    let here = caller.connect(way.at, line, contract(), contract()).unwrap();
    let there = listener.accept(LONG).expect("the other end");
    let count = carried(&here, &there);
    assert!(listener.accept(Duration::ZERO).is_none(), "nobody else connected");
    count
}

fn holds(attack: Attack) {
    for line in LINES {
        let without = delivered(line, |_, _, _, _| {});
        let under = delivered(line, attack);
        assert_eq!(without, MESSAGES, "{line}");
        assert!(under * 100 >= without * 99, "{line}: {under} of {without}");
    }
}

fn is_hello(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0, 0, 0, 0, 1, 3])
}

#[test]
fn hellos_said_again_by_others_harm_nothing() {
    // Thread-local, since each proxy's thread has its own recording.
    thread_local!(static HELLO: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) });
    holds(|bytes, to_listener, count, inject| {
        if is_hello(bytes) {
            HELLO.set(bytes.to_vec());
        }
        let mut hello = HELLO.with_borrow(Clone::clone);
        if !hello.is_empty() && to_listener && count == 40 {
            for n in 0..200_u32 {
                inject(true, &hello);
                // Also with another connection number.
                hello[7..11].copy_from_slice(&(n + 1).to_be_bytes());
            }
        }
    });
}

#[test]
fn forged_numbers_acknowledgements_and_contents_harm_nothing() {
    holds(|bytes, to_listener, count, inject| {
        if bytes.starts_with(&[0; 4]) {
            return;
        }
        let mut forged = bytes.to_vec();
        match count % 4 {
            // The packet number, and the numbers in the transport's header.
            0 => forged[4..12].copy_from_slice(&(1_u64 << 62).to_be_bytes()),
            1 => forged[4..12].copy_from_slice(&u64::MAX.to_be_bytes()),
            2 => forged[20] ^= 0x80,
            _ => forged.truncate(30),
        }
        inject(to_listener, &forged);
        // The same in the other direction, as an acknowledgement.
        inject(!to_listener, &forged);
    });
}

#[test]
fn datagrams_said_again_are_delivered_once() {
    holds(|bytes, to_listener, _, inject| {
        inject(to_listener, bytes);
        inject(!to_listener, bytes);
        inject(to_listener, bytes);
    });
}

#[test]
fn forged_answers_end_no_attempt_to_connect() {
    holds(|bytes, to_listener, _, inject| {
        if !bytes.starts_with(&[0; 4]) || bytes.len() < 11 {
            return;
        }
        // Welcomes, refusals and echoes that are forged without the key.
        let mut forged = bytes[..11].to_vec();
        for kind in [2, 4] {
            forged[5] = kind;
            forged.extend_from_slice(&[0x77; 64]);
            inject(false, &forged);
        }
        if bytes[5] == 2 && !to_listener {
            let mut echo = bytes.to_vec();
            echo[40] ^= 1;
            inject(false, &echo);
        }
    });
}

#[test]
fn who_has_no_secret_or_another_gets_nothing_and_harms_nobody() {
    let (caller, listener) = (sealed(), sealed());
    let line = LINES[0];
    let here = caller.connect(listener.address(), line, contract(), contract()).unwrap();
    let there = listener.accept(LONG).expect("the other end");
    for identity in [Identity::Secret(Key([8; 32])), Identity::Open] {
        let stranger = with(identity);
        let error = stranger.connect(listener.address(), line, contract(), contract());
        assert!(matches!(error, Err(ConnectError::Silent(_))), "{error:?}");
        // An endpoint with a secret does not connect to one without, either.
        let error = caller.connect(stranger.address(), line, contract(), contract());
        assert!(matches!(error, Err(ConnectError::Silent(_))), "{error:?}");
    }
    // Packets as they are without the secure layer, with the right number.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let id = listener.view().connections[0].id.to_be_bytes();
    for len in 0..100 {
        let bytes = [&id[..], &vec![0; len]].concat();
        socket.send_to(&bytes, listener.address()).unwrap();
    }
    assert_eq!(carried(&here, &there), MESSAGES);
    let view = listener.view();
    assert!(view.encrypted && view.strangers >= 100, "{view:?}");
    for why in ["unsealed", "forged"] {
        let count = |(reason, count): &(String, u64)| reason == why && *count > 0;
        assert!(view.dropped.iter().any(count), "{why}: {view:?}");
    }
    assert!(listener.accept(Duration::ZERO).is_none());
}

/// Not a test by itself: the code of the killed sender, which runs as a process of its own.
#[test]
fn peer() {
    peer::be(sealed, LONG);
}

#[test]
fn a_sender_that_was_killed_and_comes_again_is_heard() {
    let listener = sealed();
    let (mut first, _) = Peer::start(&listener.address().to_string());
    let ghost = listener.accept(LONG).expect("the first");
    let mut got = Vec::new();
    ghost.recv(&mut got, LONG).unwrap();
    first.kill();
    // Threads still wait for the killed peer.
    let stop = AtomicBool::new(false);
    let count = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut got = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let _ = ghost.recv(&mut got, Duration::from_millis(50));
            }
        });
        let again = sealed();
        let here = again.connect(listener.address(), LINES[1], contract(), contract()).unwrap();
        let there = listener.accept(LONG).expect("the second");
        let count = carried(&here, &there);
        stop.store(true, Ordering::Relaxed);
        waiting.join().unwrap();
        count
    });
    assert!(count * 100 >= MESSAGES * 99, "{count} of {MESSAGES}");
}

#[test]
fn who_is_taken_off_the_list_is_cut_off() {
    let keys = [Key([1; 32]), Key([2; 32])];
    let end = |own: usize| {
        let peers = vec![keys[1 - own].public()];
        let identity = Identity::Static(keys[own].clone());
        let options = Options { identity, peers, ..Options::default() };
        Endpoint::bind("127.0.0.1:0".parse().unwrap(), options).unwrap()
    };
    let (caller, listener) = (end(0), end(1));
    let here = caller.connect(listener.address(), LINES[0], contract(), contract()).unwrap();
    let there = listener.accept(LONG).expect("the other end");
    assert_eq!(carried(&here, &there), MESSAGES);
    let known = listener.view().connections[0].identity.clone();
    assert_eq!(known, Some(keys[0].public().to_string()));
    listener.allow(&[]);
    until("it is cut off", || listener.view().connections.is_empty());
    assert!(there.recv(&mut Vec::new(), Duration::ZERO).is_err());
    let error = caller.connect(listener.address(), LINES[0], contract(), contract());
    assert!(matches!(error, Err(ConnectError::Silent(_))), "{error:?}");
}

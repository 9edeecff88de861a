//! Stacks over shared memory, `net(shm)`: between two processes, with a process that is killed, and
//! with one that writes nonsense into the shared memory.

mod peer;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use selvedge_comm_local::{PutOutcome, RingEvent, RingPeers};
use selvedge_comm_stack::endpoint::{ConnectError, Connection, Endpoint, Options, RecvError};
use selvedge_comm_stack::wire::{self, Proposal, RingAddress};
use selvedge_data_net_secure::{Event, Handshakes, Identity};
use selvedge_data_stack::auto::ManagerSettings;
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::stack::SendError;
use selvedge_os::memory::Memfd;
use selvedge_os::seqpacket::{self, Received};
use selvedge_tests_wait::until;
use selvedge_units::{Bytes, Duration, Instant};

use peer::Peer;

const LONG: Duration = Duration::from_secs(60);

fn contract() -> Contract {
    Contract {
        traffic: Traffic::steady(Duration::from_millis(100), Bytes(20_000)),
        quality: Quality { delay: Duration::from_secs(1), loss_burst: 0, promise: Promise::Wanted },
    }
}

fn endpoint() -> Endpoint {
    bound(Options::default())
}

fn bound(options: Options) -> Endpoint {
    // These tests send as fast as they can, so no contract applies.
    let meta =
        ManagerSettings { activation: Duration::from_secs(1 << 30), ..ManagerSettings::default() };
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), Options { meta, ..options }).unwrap()
}

fn pair(line: &str, options: &Options) -> (Endpoint, Endpoint, Connection, Connection) {
    let [a, b] = [options.clone(), options.clone()].map(bound);
    let here = a.connect(b.address(), line, contract(), contract()).unwrap();
    let there = b.accept(LONG).expect("the other end");
    (a, b, here, there)
}

#[test]
fn messages_of_all_sizes_go_both_ways_in_order() {
    let shared = Options { slaves: 2, ..Options::default() };
    for (line, most) in [
        ("ui | unreliable | net(shm)", 65_000),
        ("ui | encrypt(chacha20) | reliable | frag(1400) | net(shm)", 300_000),
        ("ui | compress | encrypt(aes256) | unreliable(ordered) | frag(9000) | net(shm)", 60_000),
    ] {
        let (_a, _b, here, there) = pair(line, &shared);
        let mut got = Vec::new();
        for n in 0..60_usize {
            let message: Vec<u8> =
                (0..n * n * most / 3600).map(|at| (at * n % 251) as u8).collect();
            here.send(&message, LONG).unwrap();
            there.recv(&mut got, LONG).unwrap();
            assert!(got == message, "{line}: message {n}");
            there.send(&[n as u8; 5000], LONG).unwrap();
            here.recv(&mut got, LONG).unwrap();
            assert_eq!(got, [n as u8; 5000]);
        }
        drop(there);
        assert_eq!(here.recv(&mut got, LONG), Err(RecvError::Closed), "{line}");
    }
}

/// The number of messages that a connection had no room for.
fn lost(connection: &Connection) -> u64 {
    connection.dropped().iter().map(|(_, count)| count).sum()
}

#[test]
fn a_sender_waits_for_room_and_what_is_lost_is_counted() {
    for line in ["ui | unreliable | net(shm)", "ui | reliable | frag(1400) | net(shm)"] {
        let (_a, _b, here, there) = pair(line, &Options::default());
        let count = 20_000_u32;
        let taken = AtomicU64::new(0);
        // A reliable transport retransmits messages that found no room.
        let lost = || if line.contains("unreliable") { lost(&there) } else { 0 };
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                for n in 0..=count {
                    let mut message = [7; 500];
                    message[..4].copy_from_slice(&n.to_be_bytes());
                    here.send(&message, LONG).unwrap();
                    // The last message must arrive, since no message is before it.
                    if n + 1 == count {
                        assert!(here.flush(LONG));
                        until("all before it are taken or lost", || {
                            taken.load(Ordering::Relaxed) + lost() == u64::from(count)
                        });
                    }
                }
            });
            let (mut got, mut last) = (Vec::new(), None);
            while last != Some(count) {
                there.recv(&mut got, LONG).unwrap();
                let number = u32::from_be_bytes(got[..4].try_into().unwrap());
                assert!(last.is_none_or(|last| number > last), "{number} after {last:?}, {line}");
                taken.fetch_add(1, Ordering::Relaxed);
                last = Some(number);
                // The receiver is slower than the sender.
                if number % 1000 == 0 {
                    std::thread::park_timeout(Duration::from_millis(3).into());
                }
            }
            sender.join().unwrap();
            // The only reason is lack of room before an application that does not read.
            assert_eq!(here.dropped(), [], "{line}");
            let taken = taken.load(Ordering::Relaxed);
            assert_eq!(taken + lost(), u64::from(count) + 1, "{line}: {:?}", there.dropped());
        });
    }
}

#[test]
fn what_was_sent_before_the_end_arrives() {
    for line in ["ui | unreliable | net(shm)", "ui | reliable | net(shm)"] {
        let (_a, _b, here, there) = pair(line, &Options::default());
        (0..100_u8).for_each(|n| here.send(&[n; 900], LONG).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || drop(here));
            let mut got = Vec::new();
            for n in 0..100_u8 {
                there.recv(&mut got, LONG).unwrap();
                assert_eq!(got, [n; 900], "{line}");
            }
            assert_eq!(there.recv(&mut got, LONG), Err(RecvError::Closed), "{line}");
        });
    }
}

#[test]
fn nothing_of_a_connection_is_left() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().flatten().count();
    let (a, b, here, there) = pair("ui | unreliable | net(shm)", &Options::default());
    drop((here, there));
    until("both have ended", || a.view().connections.is_empty() && b.view().connections.is_empty());
    let before = open();
    for _ in 0..20 {
        let line = "ui | unreliable | net(shm)";
        let here = a.connect(b.address(), line, contract(), contract()).unwrap();
        let there = b.accept(LONG).expect("the other end");
        here.send(b"one", LONG).unwrap();
        there.recv(&mut Vec::new(), LONG).unwrap();
    }
    // Other tests of this process open and close connections as well; twenty would leave over a hundred.
    until("all is closed", || open() < before + 60);
}

#[test]
fn memory_that_is_not_here_is_refused() {
    let listener = endpoint();
    let mut call = Hostile::hello(listener.address(), 7, RingAddress { name: 1, token: 2 });
    let Event::Refused { why, .. } = call.answer() else { panic!("it is not refused") };
    let why = String::from_utf8(why).unwrap();
    assert!(why.contains("must run on one machine"), "{why}");
    assert_eq!(listener.view().connections, []);
}

/// A hostile peer that implements the handshake itself.
struct Hostile {
    socket: UdpSocket,
    to: SocketAddr,
    handshakes: Handshakes<()>,
}

impl Hostile {
    fn hello(to: SocketAddr, id: u32, ring_address: RingAddress) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(LONG.into())).unwrap();
        let mut handshakes = Handshakes::new(Identity::Open, &wire::seed());
        let line = "ui | unreliable | net(shm)".to_owned();
        let (out, there) = (contract(), [Duration::ZERO; 2]);
        let proposal = Proposal {
            line,
            out,
            back: out,
            there,
            network: Duration::ZERO,
            ring_address: Some(ring_address),
        };
        let now = Instant::ZERO;
        handshakes.connect(id, to, None, &wire::seed(), now).unwrap();
        let mut call = Self { socket, to, handshakes };
        assert!(matches!(call.answer(), Event::Reached { .. }));
        let text = proposal.text();
        call.handshakes.propose(id, text.as_bytes(), &wire::seed(), now).unwrap();
        call.say();
        call
    }

    fn say(&mut self) {
        while let Some(datagram) = self.handshakes.poll_transmit() {
            self.socket.send_to(&datagram.bytes, datagram.to).unwrap();
        }
    }

    fn answer(&mut self) -> Event<()> {
        loop {
            self.say();
            if let Some(event) = self.handshakes.poll_event() {
                return event;
            }
            let mut bytes = [0; 2048];
            let len = self.socket.recv(&mut bytes).unwrap();
            let seed = wire::seed();
            self.handshakes.handle_datagram(self.to, &bytes[..len], &seed, Instant::ZERO);
        }
    }

    /// The connection's number, and the address of the ring to the listener. Nothing has confirmed the
    /// connection yet.
    fn welcomed(&mut self) -> (u32, RingAddress) {
        let Event::Welcomed { connection, payload, .. } = self.answer() else { panic!("refused") };
        (connection, wire::answered(&payload).unwrap().1.expect("it says where"))
    }

    /// Confirms the connection to its listener; returns the address of the ring to that listener.
    fn ring_address(&mut self) -> RingAddress {
        let (connection, ring_address) = self.welcomed();
        self.socket.send_to(&connection.to_be_bytes(), self.to).unwrap();
        ring_address
    }
}

/// The name under which the rings of this number listen.
fn ring_name(name: u128) -> String {
    format!("selvedge-stack-{name:032x}")
}

/// Rings that listen, and their address for a peer.
fn listening() -> (RingPeers, RingAddress) {
    let (name, token) = (wire::random(), wire::random());
    let rings = RingPeers::listen(&ring_name(name)).unwrap();
    rings.admit_token(&format!("{token:032x}"));
    (rings, RingAddress { name, token })
}

/// The memory that a sink hands to a source that connects with a token.
fn ring(ring_address: RingAddress) -> (OwnedFd, Memfd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let name = ring_name(ring_address.name);
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    // The hello of a source, as `docs/events-local.md` defines it.
    let word = format!("\"channel\":\"{:032x}\"", ring_address.token);
    let hello = format!("{{\"v\":1,\"op\":\"hello\",{word},\"source\":true,\"sink\":false}}");
    seqpacket::send(&socket, hello.as_bytes(), &[]).unwrap();
    let mut memory = None;
    until("the memory comes", || {
        if let Received::Message(_, mut fds) = seqpacket::receive(&socket).unwrap()
            && !fds.is_empty()
        {
            memory = Some(fds.swap_remove(0));
        }
        memory.is_some()
    });
    (socket, Memfd::open(memory.unwrap(), 1..=1 << 24).unwrap())
}

#[test]
fn who_corrupts_a_ring_harms_its_own_connection_only() {
    let listener = endpoint();
    let caller = endpoint();
    let line = "ui | unreliable | net(shm)";
    let good = caller.connect(listener.address(), line, contract(), contract()).unwrap();
    let there = listener.accept(LONG).expect("the other end");
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (mut got, mut cut_off) = (Vec::new(), 0);
    for round in 0..40_u32 {
        let (sink, address) = listening();
        let mut hostile = Hostile::hello(listener.address(), 100 + round, address);
        let ring_address = hostile.ring_address();
        let victim = listener.accept(LONG).expect("the hostile one's other end");
        let (socket, memory) = ring(ring_address);
        let len = std::fs::File::from(memory.file().try_clone().unwrap()).metadata().unwrap().len();
        // First the counters and lengths, then any place: small numbers, large ones, multiples of 8.
        for step in 0..200_u64 {
            let at = if step % 2 == 0 { random() % 64 * 8 } else { random() % (len / 8) * 8 };
            let value = match random() % 4 {
                0 => random() % 1024 * 8,
                1 => random() % 70_000,
                2 => u64::MAX - random() % 64,
                _ => random(),
            };
            memory.put(at as usize, value);
            // The outcome may be a message, garbage that the stack drops, or the end of the connection.
            let _ = victim.recv(&mut got, Duration::ZERO);
        }
        good.send(&round.to_be_bytes(), LONG).unwrap();
        there.recv(&mut got, LONG).unwrap();
        assert_eq!(got, round.to_be_bytes());
        drop((socket, memory, sink));
        // The kernel reports that the socket is closed, whatever the memory contains.
        until(
            "the connection ends",
            || matches!(victim.recv(&mut got, Duration::from_millis(1)), Err(why) if why != RecvError::Timeout),
        );
        cut_off += 1;
    }
    assert_eq!(cut_off, 40);
    assert_eq!(good.dropped(), []);
}

#[test]
fn a_datagram_through_the_ring_confirms_a_connection() {
    // The keepalive by UDP that would confirm it is lost.
    let listener = endpoint();
    let (mut rings, address) = listening();
    let mut caller = Hostile::hello(listener.address(), 5, address);
    let (connection, RingAddress { name, token }) = caller.welcomed();
    let ring = rings.connect(&ring_name(name), &format!("{token:032x}")).unwrap();
    until("the ring is ready", || rings.news().contains(&RingEvent::Ready(ring)));
    let message = [&connection.to_be_bytes()[..], &[0; 40]].concat();
    assert_eq!(rings.put(ring, &message), PutOutcome::Done);
    rings.flush();
    let there = listener.accept(LONG).expect("the connection is open");
    assert_eq!(listener.view().connections.len(), 1);
    drop((there, rings));
    until("it is forgotten", || listener.view().connections.is_empty());
}

#[test]
fn who_has_the_memory_but_not_the_word_gets_nothing() {
    let (a, _b, here, there) = pair("ui | unreliable | net(shm)", &Options::default());
    // A connection over memory accepts no datagrams from UDP, whatever their sender.
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    let id = a.view().connections[0].id;
    let before = a.view().strangers;
    for _ in 0..10 {
        from.send_to(&[&id.to_be_bytes()[..], &[0; 40]].concat(), a.address()).unwrap();
    }
    until("they are counted", || a.view().strangers >= before + 10);
    there.send(b"still here", LONG).unwrap();
    let mut got = Vec::new();
    here.recv(&mut got, LONG).unwrap();
    assert_eq!(got, b"still here");
}

/// The body of the other process; it does nothing in ordinary test runs.
#[test]
fn peer() {
    peer::be(endpoint, LONG);
}

#[test]
fn a_killed_process_is_noticed_at_once() {
    let (mut peer, at) = Peer::start("echo");
    let ours = endpoint();
    let line = "ui | encrypt(chacha20) | reliable | frag(9000) | net(shm)";
    let here = ours.connect(at, line, contract(), contract()).unwrap();
    let mut got = Vec::new();
    for n in 0..500_u32 {
        here.send(&[n as u8; 20_000], LONG).unwrap();
        here.recv(&mut got, LONG).unwrap();
        assert_eq!(got, [n as u8; 20_000]);
    }
    peer.kill();
    let killed = std::time::Instant::now();
    let end = loop {
        match here.recv(&mut got, LONG) {
            Ok(()) => {}
            Err(end) => break end,
        }
    };
    assert_eq!(end, RecvError::PeerLost);
    // Over UDP it would take a minute of silence.
    assert!(killed.elapsed() < Duration::from_secs(30).into(), "{:?}", killed.elapsed());
    assert_eq!(here.send(b"x", LONG), Err(SendError::PeerLost));
    until("it is forgotten", || ours.view().connections.is_empty());
}

#[test]
fn both_ends_must_have_the_same_stack_and_know_it() {
    let (a, b) = (endpoint(), endpoint());
    let wrong = a.connect(b.address(), "ui | unreliable | net(tcp)", contract(), contract());
    let Err(ConnectError::Stack { why, .. }) = wrong else { panic!("{wrong:?}") };
    assert!(why.to_string().contains("net(shm)"), "{why}");
}

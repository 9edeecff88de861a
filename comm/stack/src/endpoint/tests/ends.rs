//! How connections and endpoints end, and that no caller waits for them for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use selvedge_data_stack::auto::{ManagerSettings, TrafficSample};
use selvedge_data_stack::contract::{Contract, Traffic};
use selvedge_data_stack::elements::ElementSet;
use selvedge_data_stack::module::{Direction, Reason};
use selvedge_data_stack::stack::SendError;
use selvedge_os::clock::Clock;
use selvedge_units::{Bytes, Duration};

use super::super::{ConnectError, Connection, Endpoint, Options, RecvError, block_on_for};
use super::{LONG, bound, contract, endpoint, pair, pair_of};
use crate::element::{EntryPort, External, ModuleChain, Pipeline};
use crate::sync::lock;
use crate::threads::ElementThreads;

const LINE: &str = "ui | encrypt(chacha20) | reliable | frag(1400) | net";

/// The result of `f` on a thread of its own; a thread that hangs fails the test and is left behind.
fn soon<T: Send + 'static>(payload: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(f()));
    told.recv_timeout(LONG.into()).unwrap_or_else(|error| panic!("{payload}: {error}"))
}

fn said(connection: &Connection) -> Vec<u8> {
    block_on_for(connection.take_async(), LONG).expect("a message comes").unwrap().to_vec()
}

#[test]
fn connections_outlive_their_endpoints() {
    let (a, b, here, there) = pair(LINE);
    soon("endpoints end", move || drop((a, b)));
    // Tasks are woken by the endpoint's thread, so it must still be there.
    for n in 0..50_u8 {
        here.send(&[n; 3000], LONG).unwrap();
        assert_eq!(said(&there), [n; 3000]);
        there.send(&[n], LONG).unwrap();
        assert_eq!(said(&here), [n]);
    }
    let address = here.peer();
    drop(here);
    let end = block_on_for(there.take_async(), LONG).expect("it is told");
    assert_eq!(end.unwrap_err(), RecvError::Closed);
    drop(there);
    // The thread ends with the last connection, and the socket with it.
    let begun = Instant::now();
    while let Err(error) = Endpoint::bind(address, Options::default()) {
        assert!(begun.elapsed() < LONG.into(), "the endpoint's thread ends: {error}");
        std::thread::yield_now();
    }
}

#[test]
fn an_attempt_ends_with_its_endpoint() {
    let a = endpoint(None);
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = nobody.local_addr().unwrap();
    let easy = contract(Duration::from_millis(100), 1000);
    let attempt = a.connect_async(at, LINE, easy, easy);
    soon("the endpoint ends", move || drop(a));
    let outcome = block_on_for(attempt, LONG).expect("it is woken");
    assert!(matches!(outcome.unwrap_err(), ConnectError::Over(who) if who == at));
}

#[test]
fn connections_that_nobody_accepted_are_closed_together() {
    let (a, b) = (endpoint(None), endpoint(None));
    let easy = contract(Duration::from_millis(100), 1000);
    let connect = |_| a.connect(b.address(), "ui | reliable | net", easy, easy).unwrap();
    let callers: Vec<_> = (0..20).map(connect).collect();
    soon("the listener ends", move || drop(b));
    for caller in callers {
        assert_eq!(caller.take(LONG).unwrap_err(), RecvError::Closed);
        assert_eq!(caller.send(b"too late", LONG), Err(SendError::Closed));
    }
}

#[test]
fn connections_whose_peers_are_gone_are_closed_together() {
    let (a, b) = (endpoint(None), endpoint(None));
    let easy = contract(Duration::from_millis(100), 1000);
    let count = 60;
    let ghosts: Vec<_> = (0..count)
        .map(|_| {
            let here = a.connect(b.address(), "ui | reliable | net", easy, easy).unwrap();
            let there = b.accept(LONG).expect("the other end");
            // As if the peer's host had lost power.
            here.shared.remove_connection(here.opened.id);
            there
        })
        .collect();
    let begun = Instant::now();
    soon("they are closed", move || Connection::close_all(ghosts));
    // Closed one after the other, they would take at least twice as long.
    let (taken, each) = (begun.elapsed(), Duration::from_millis(500));
    assert!(taken < (each * count / 2).into(), "{taken:?}");
    assert!(b.view().connections.is_empty());
    soon("the endpoint ends", move || drop(b));
}

#[test]
fn who_closes_while_the_other_sends_stops_him_at_once() {
    let (_a, _b, here, there) = pair(LINE);
    here.send(&[1; 1000], LONG).unwrap();
    there.take(LONG).unwrap();
    drop(there);
    let begun = Instant::now();
    while here.send(&[1; 1000], Duration::ZERO) != Err(SendError::Closed) {
        assert!(begun.elapsed() < LONG.into(), "it is told");
        std::thread::yield_now();
    }
    // Flushing does not wait for acknowledgements of a peer that is gone.
    soon("flush", move || here.flush(LONG));
    assert!(begun.elapsed() < (LONG / 2).into());
}

#[test]
fn the_end_is_told_however_the_stream_is_held() {
    let meta = ManagerSettings {
        activation: Duration::ZERO,
        sampling: Duration::from_secs(1 << 30),
        ..ManagerSettings::default()
    };
    let (a, _b, here, there) =
        pair_of(LINE, bound(Options { meta, ..Options::default() }), endpoint(None));
    // The manager sees a load that exceeds this host's capacity.
    let (mut events, now) = (Vec::new(), a.shared.clock.now() + meta.sampling);
    let much =
        TrafficSample { messages: 1 << 40, largest: Bytes(1 << 20), ..TrafficSample::default() };
    lock(&a.shared.manager).sample(now, |_| much, &mut events);
    assert!(here.granted()[0].is_some_and(|granted| granted.policed), "{events:?}");
    let beyond = here.send(&[0; 1001], LONG);
    let bounds = (Bytes(1001), Bytes(1000));
    assert_eq!(beyond, Err(SendError::BeyondContract { size: bounds.0, largest: bounds.1 }));
    here.send(&[0; 1000], LONG).unwrap();
    let held = here.send(&[0; 1000], Duration::ZERO);
    assert_eq!(held, Err(SendError::Full), "ten in a second");
    drop(here);
    assert_eq!(there.take(LONG).unwrap().len(), 1000);
    assert_eq!(there.take(LONG).unwrap_err(), RecvError::Closed);
}

#[test]
fn who_reads_nothing_can_still_send() {
    let (_a, _b, here, there) = pair(LINE);
    // Sends until the peer accepts no more.
    let mut sent = 0_u32;
    while there.send(&sent.to_be_bytes(), Duration::from_millis(100)) == Ok(()) {
        sent += 1;
        assert!(sent < 10_000, "what nobody reads is bounded");
    }
    assert!(here.dropped().iter().any(|&(why, _)| why == Reason::NoRoom));
    for n in 0..500_u32 {
        here.send(&n.to_be_bytes(), LONG).unwrap();
        assert_eq!(there.take(LONG).unwrap()[..], n.to_be_bytes());
    }
    for n in 0..sent {
        assert_eq!(here.take(LONG).unwrap()[..], n.to_be_bytes());
    }
}

#[test]
fn a_quiet_peer_lives_and_a_gone_one_is_told() {
    let options = || Options { silence: Duration::from_secs(2), ..Options::default() };
    let (_a, _b, here, there) =
        pair_of("ui | unreliable | net", bound(options()), bound(options()));
    // The peer sends nothing back by itself.
    let (begun, mut came) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(5).into() {
        here.send(b"one way", LONG).unwrap();
        came += usize::from(there.take(Duration::from_millis(50)).is_ok());
    }
    assert!(came > 0);
    // As if the peer's host had lost power.
    there.shared.remove_connection(there.opened.id);
    assert_eq!(here.take(LONG).unwrap_err(), RecvError::PeerLost);
    assert_eq!(here.send(b"anybody?", LONG), Err(SendError::PeerLost));
}

/// A waker that drops a connection, as a runtime that has shut down does.
struct Dropping(Mutex<Option<Connection>>, Mutex<mpsc::Sender<()>>);

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        drop(lock(&self.0).take());
        let _ = lock(&self.1).send(());
    }
}

#[test]
fn a_waker_may_do_anything() {
    let (a, b, here, there) = pair(LINE);
    let easy = contract(Duration::from_millis(100), 1000);
    let other = a.connect(b.address(), LINE, easy, easy).unwrap();
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Dropping(Mutex::new(Some(other)), Mutex::new(tell))));
    let mut taking = std::pin::pin!(here.take_async());
    let context = &mut Context::from_waker(&waker);
    assert!(matches!(taking.as_mut().poll(context), Poll::Pending));
    there.send(b"wake up", LONG).unwrap();
    told.recv_timeout(LONG.into()).expect("whoever woke it does not wait for himself");
    assert_eq!(here.take(LONG).unwrap()[..], *b"wake up");
}

#[test]
fn a_posted_buffer_that_must_wait_is_not_lost() {
    let (_a, _b, here, there) = pair("ui | reliable | net");
    // The window fills, and is read while a task waits.
    let mut sent = 0_u32;
    while here.send(&sent.to_be_bytes(), Duration::ZERO) == Ok(()) && sent < 100_000 {
        sent += 1;
    }
    let mut buffer = here.buffer(4);
    buffer.copy_from_slice(&sent.to_be_bytes());
    std::thread::scope(|scope| {
        scope
            .spawn(|| block_on_for(here.post_async(buffer), LONG).expect("there is room").unwrap());
        for n in 0..=sent {
            assert_eq!(there.take(LONG).unwrap()[..], n.to_be_bytes());
        }
    });
}

#[test]
fn nobody_waits_behind_one_that_waits_for_room() {
    let (_a, b, here, _there) = pair("ui | reliable | net");
    // The peer no longer answers.
    let socket_reader = lock(&b.shared.socket_reader);
    let begun = Instant::now();
    let mut full = Ok(());
    while full.is_ok() {
        full = here.send(&[0; 1000], Duration::ZERO);
        assert!(begun.elapsed() < LONG.into(), "the window is bounded");
    }
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| here.send(&[0; 1000], Duration::from_secs(5)));
        let begun = Instant::now();
        while !patient.is_finished() {
            assert_eq!(here.send(&[0; 1000], Duration::ZERO), Err(SendError::Full));
            if begun.elapsed() > Duration::from_millis(500).into() {
                break;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(4).into(), "its own patience counts");
        drop(socket_reader);
        assert_eq!(patient.join().expect("it does not panic"), Ok(()));
    });
}

/// Work that takes a while, so that its element always has some.
#[derive(Debug)]
struct Slow(Clock);

impl ModuleChain for Slow {
    type Message = u64;

    fn module_count(&self) -> usize {
        1
    }

    fn run(
        &self,
        _: usize,
        way: Direction,
        message: u64,
        _: selvedge_units::Instant,
        out: &mut Vec<(Direction, u64)>,
    ) -> Duration {
        let until = self.0.now() + Duration::from_micros(20);
        while self.0.now() < until {
            std::hint::spin_loop();
        }
        out.push((way, message));
        Duration::ZERO
    }

    fn emit(&self, _: Direction, _: u64, _: selvedge_units::Instant) {}
}

#[test]
fn a_busy_element_lets_others_in() {
    let clock = Clock::new();
    let elementary = ElementThreads::start(1, clock).unwrap();
    let pipeline = || {
        let pipeline = Arc::new(Pipeline::new(Slow(clock), 1024));
        pipeline.assign_both(0, ElementSet::first(1));
        pipeline
    };
    let busy = pipeline();
    elementary.add(&busy);
    let stop = Arc::new(AtomicBool::new(false));
    let feeding = {
        let (stop, busy) = (Arc::clone(&stop), Arc::clone(&busy));
        std::thread::spawn(move || {
            let mut port = EntryPort::new(busy, External::Application);
            while !stop.load(Ordering::Relaxed) {
                let _ = port.enqueue(1);
            }
        })
    };
    let begun = Instant::now();
    while busy.waiting().all(|(down, _)| down < 200) {
        assert!(begun.elapsed() < LONG.into(), "it is fed faster than it works");
        std::thread::yield_now();
    }
    let others: Vec<_> = (0..100).map(|_| pipeline()).collect();
    soon("they get in and out", move || {
        for other in &others {
            elementary.add(other);
            elementary.remove(other);
        }
        drop(elementary);
    });
    stop.store(true, Ordering::Relaxed);
    feeding.join().expect("it does not panic");
}

#[test]
fn contracts_are_checked_before_anybody_is_called() {
    let a = endpoint(None);
    let easy = contract(Duration::from_millis(100), 1000);
    let none = Contract { traffic: Traffic { average: Duration::ZERO, ..easy.traffic }, ..easy };
    let error = a.connect(a.address(), LINE, none, easy).unwrap_err();
    assert!(matches!(error, ConnectError::Local(_)), "{error}");
}

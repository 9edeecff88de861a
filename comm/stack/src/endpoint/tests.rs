//! Connections on the loopback.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use selvedge_data_net_secure::{Identity, Key};
use selvedge_data_stack::auto::{Event, ManagerSettings};
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::module::Direction;
use selvedge_data_stack::stack::SendError;
use selvedge_units::{Bytes, Duration};

use super::{ConnectError, Connection, Endpoint, Options, RecvError, Tuning, block_on_for};

mod ends;
mod negotiate;
mod several;

/// Longer than anything here takes on the slowest machine.
const LONG: Duration = Duration::from_secs(60);

fn contract(every: Duration, largest: u64) -> Contract {
    let traffic = Traffic::steady(every, Bytes(largest));
    let quality =
        Quality { delay: Duration::from_millis(50), loss_burst: 0, promise: Promise::Wanted };
    Contract { traffic, quality }
}

fn endpoint(secret: Option<[u8; 32]>) -> Endpoint {
    // These tests send as fast as they can, so no contract applies.
    let meta =
        ManagerSettings { activation: Duration::from_secs(1 << 30), ..ManagerSettings::default() };
    let identity = secret.map_or(Identity::Open, |secret| Identity::Secret(Key(secret)));
    bound(Options { identity, meta, ..Options::default() })
}

fn bound(options: Options) -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), options).unwrap()
}

/// An endpoint with reserved time; `None` where the kernel grants none, with the reason on the screen.
fn reserved(options: Options) -> Option<Endpoint> {
    let share = selvedge_data_stack::load::Load::percent(3);
    let reservation = Some(crate::reservation::Reservation { share, processors: Vec::new() });
    let endpoint = bound(Options { reservation, ..options });
    if let Some(why) = endpoint.view().unreserved {
        eprintln!("skipped: {why}");
        return None;
    }
    Some(endpoint)
}

fn pair(line: &str) -> (Endpoint, Endpoint, Connection, Connection) {
    pair_of(line, endpoint(None), endpoint(None))
}

fn pair_of(line: &str, a: Endpoint, b: Endpoint) -> (Endpoint, Endpoint, Connection, Connection) {
    let easy = contract(Duration::from_millis(100), 1000);
    let here = a.connect(b.address(), line, easy, easy).unwrap();
    let there = b.accept(LONG).expect("the other end");
    (a, b, here, there)
}

#[test]
fn messages_go_both_ways_and_the_end_is_told() {
    for line in [
        "ui | encrypt(chacha20) | reliable | frag(1400) | net",
        "ui | compress | encrypt(aes256) | reliable | net",
    ] {
        let (_a, _b, here, there) = pair(line);
        let mut got = Vec::new();
        for n in 0..200_u32 {
            here.send(&n.to_be_bytes(), LONG).unwrap();
            there.recv(&mut got, LONG).unwrap();
            assert_eq!(got, n.to_be_bytes());
            there.send(&[n as u8; 5000], LONG).unwrap();
            here.recv(&mut got, LONG).unwrap();
            assert_eq!(got, [n as u8; 5000]);
        }
        assert_eq!(here.recv(&mut got, Duration::ZERO), Err(RecvError::Timeout));
        drop(there);
        assert_eq!(here.recv(&mut got, LONG), Err(RecvError::Closed));
    }
}

#[test]
fn reassigned_while_messages_flow() {
    let (_a, _b, here, there) = pair("ui | encrypt(chacha20) | reliable | frag(1400) | net");
    let count = 2000_u32;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..count).for_each(|n| here.send(&n.to_be_bytes(), LONG).unwrap()));
        let mut got = Vec::new();
        for n in 0..count {
            // The test assigns directly, once per message, which is more often than a manager would.
            for connection in [&here, &there] {
                let places = connection.opened.pipeline.module_count();
                let set = selvedge_data_stack::elements::ElementSet(1 + u64::from(n) % 3);
                connection.opened.pipeline.assign_both(n as usize % places, set);
            }
            there.recv(&mut got, LONG).unwrap();
            assert_eq!(got, n.to_be_bytes());
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let (a, b) = (endpoint(None), endpoint(None));
    let (at, easy) = (b.address(), contract(Duration::from_millis(100), 1000));
    let refused = |line: &str, out| a.connect(at, line, out, easy).unwrap_err().to_string();
    let wrong = refused("ui | relable | net", easy);
    assert!(wrong.contains("did you mean \"reliable\""), "{wrong}");
    // A megabyte of ciphertext each microsecond.
    let line = "ui | encrypt(chacha20) | reliable | frag(1400) | net";
    let much = refused(line, contract(Duration::from_micros(1), 1 << 20));
    assert!(
        much.starts_with("this host refuses: PE.") && much.contains("lower the rate"),
        "{much}"
    );
}

#[test]
fn a_delay_is_kept_by_both_hosts_together() {
    let (Some(a), Some(b)) = (reserved(Options::default()), reserved(Options::default())) else {
        return;
    };
    let easy = contract(Duration::from_millis(100), 1000);
    let line = "ui | unreliable | net";
    let here = a.connect(b.address(), line, easy, easy).unwrap();
    let there = b.accept(LONG).expect("the other end");
    // Each host knows the other host's latency in both directions, and the network's.
    let [ours, theirs] = [here.granted(), there.granted()].map(|both| both.map(Option::unwrap));
    for way in 0..2 {
        assert!(ours[way].guarantee.latency > Duration::ZERO);
        let network = ours[way].remote_delay.0 - theirs[1 - way].guarantee.latency.0;
        assert!(network > 0 && network < LONG.0, "{network}");
        assert_eq!(theirs[1 - way].remote_delay, ours[way].guarantee.latency + Duration(network));
    }
    let both = ours[0].guarantee.latency + theirs[1].guarantee.latency;
    assert!(ours[0].from_end_to_end() > both);
    drop((here, there));
    // A contract that one host alone could keep, but both together can't, is refused, with the excess.
    let mut firm = easy;
    firm.quality.promise = Promise::Firm;
    firm.quality.delay = Duration(both.0 - 1);
    let refused = a.connect(b.address(), line, firm, easy).unwrap_err().to_string();
    let host =
        if ours[0].guarantee.latency >= both { "this host refuses" } else { "refuses: a delay" };
    assert!(refused.contains(host) && refused.contains("at best it is"), "{refused}");
    firm.quality.delay = Duration::from_secs(60);
    assert!(a.connect(b.address(), line, firm, easy).is_ok());
    // Without reserved time on one of both hosts it is no promise.
    let unreserved = endpoint(None);
    for (from, to, host) in
        [(&unreserved, &a, "this host refuses"), (&a, &unreserved, "refuses: a firm")]
    {
        let refused = from.connect(to.address(), line, firm, easy).unwrap_err().to_string();
        assert!(refused.contains(host) && refused.contains("--share"), "{refused}");
    }
}

#[test]
fn reserved_time_is_what_was_granted_and_no_more() {
    use crate::reservation::Reservation;
    use selvedge_data_stack::load::Load;
    let at = "127.0.0.1:0".parse().unwrap();
    let with = |share, processors| {
        let reservation = Some(Reservation { share: Load::percent(share), processors });
        Endpoint::bind(at, Options { reservation, ..Options::default() })
    };
    let missing = with(5, vec![9999]).unwrap_err().to_string();
    assert!(missing.starts_with("there is no processor 9999"), "{missing}");
    // More threads than processors, each with nearly a whole one.
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let elements = u8::try_from(processors).unwrap_or(16).min(16);
    let reservation = Some(Reservation { share: Load::percent(95), processors: Vec::new() });
    let most = bound(Options { elements, reservation, ..Options::default() }).view();
    assert_eq!(most.reservation, None);
    assert!(most.unreserved.is_some_and(|why| why.contains("CAP_SYS_NICE")));
    // Pinned to one processor, beside each other.
    let Some(_) = reserved(Options::default()) else { return };
    let first = selvedge_place_cpu::class::processors()[0];
    let (a, b) = (with(5, vec![first]).unwrap(), with(5, vec![first]).unwrap());
    for end in [&a, &b] {
        let view = end.view();
        let text = view.reservation.expect("granted");
        assert!(
            text.starts_with("5.0 % ") && text.ends_with(&format!("pinned to {first}")),
            "{text}"
        );
    }
    let (_a, _b, here, there) = pair_of("ui | reliable | net", a, b);
    let mut got = Vec::new();
    for n in 0..50_u32 {
        here.send(&n.to_be_bytes(), LONG).unwrap();
        there.recv(&mut got, LONG).unwrap();
        assert_eq!(got, n.to_be_bytes());
    }
}

#[test]
fn the_application_is_told_and_renegotiates() {
    let meta = ManagerSettings {
        sampling: Duration::from_millis(2),
        activation: Duration::from_millis(4),
        ..ManagerSettings::default()
    };
    let bound = || bound(Options { elements: 1, meta, ..Options::default() });
    let (_a, _b, here, there) = pair_of("ui | unreliable | net", bound(), bound());
    let large = contract(Duration::from_millis(100), 40_000);
    let begun = std::time::Instant::now();
    let (mut told, mut got) = (Vec::new(), Vec::new());
    let mut violated = || {
        let _ = here.send(&[7; 20_000], Duration::ZERO);
        let _ = there.recv(&mut got, Duration::from_millis(1));
        told.extend(here.events());
        told.iter()
            .any(|(way, event)| *way == Direction::Down && matches!(event, Event::Violated { .. }))
    };
    while !violated() {
        assert!(begun.elapsed() < LONG.into(), "nobody is told");
    }
    // Both hosts accept the contract, and the other application is notified.
    assert!(here.renegotiate(Direction::Down, large).unwrap().latency > Duration::ZERO);
    let agreed = |(way, event): &(Direction, Event)| {
        *way == Direction::Up
            && matches!(event, Event::Renegotiated { contract, .. } if *contract == large)
    };
    assert!(there.events().iter().any(agreed));
    let [ours, theirs] = [here.granted(), there.granted()].map(|both| both.map(Option::unwrap));
    assert_eq!(ours[0].remote_delay, theirs[1].guarantee.latency + here.network());
    assert_eq!(theirs[1].remote_delay, ours[0].guarantee.latency + here.network());
    let never = contract(Duration(1), 1 << 20);
    let refused = here.renegotiate(Direction::Down, never).unwrap_err().to_string();
    assert!(refused.contains("lower the rate"), "{refused}");
    here.send(&[7; 30_000], LONG).unwrap();
}

/// A connection gets settings of its own; others keep those of the endpoint.
#[test]
fn one_connection_is_tuned() {
    let (a, _b, here, there) = pair("ui | unreliable | net");
    let connection = Some(a.view().connections[0].id);
    let goal = Some("bandwidth".to_owned());
    let own = a.tune(&Tuning { connection, goal, ..Tuning::default() }).unwrap();
    assert_eq!(own.goal, "bandwidth");
    let view = a.view();
    assert_eq!((view.meta.goal.as_str(), view.connections[0].meta.clone()), ("delay", Some(own)));
    let absent = Tuning { connection: connection.map(|id| id ^ 1), ..Tuning::default() };
    let why = a.tune(&absent).unwrap_err().to_string();
    assert!(why.starts_with("no connection "), "{why}");
    drop((here, there));
}

#[test]
fn another_secret_is_no_answer() {
    let (a, b) = (endpoint(Some([1; 32])), endpoint(Some([2; 32])));
    let easy = contract(Duration::from_millis(100), 1000);
    let line = "ui | encrypt(aes256) | unreliable | net";
    let error = a.connect(b.address(), line, easy, easy).unwrap_err();
    assert!(matches!(error, ConnectError::Silent(_)), "{error}");
    assert!(b.accept(Duration::ZERO).is_none());
}

#[test]
fn too_large_is_said_at_once() {
    let (_a, _b, here, _there) = pair("ui | unreliable | net");
    assert!(matches!(here.send(&[0; 70_000], LONG), Err(SendError::TooLarge { .. })));
}

#[test]
fn messages_go_in_parts_and_in_posted_buffers() {
    let (_a, _b, here, there) = pair("ui | encrypt(aes256) | reliable | frag(1400) | net");
    here.send_parts(&[b"one, ", b"", b"two"], LONG).unwrap();
    let (mut first, mut second) = ([0; 4], [0; 10]);
    let len = there.recv_parts(&mut [&mut first, &mut second], LONG).unwrap();
    assert_eq!((len, &first, &second[..4]), (8, b"one,", &b" two"[..]));
    for size in [0, 1, 5000, 100_000, 7] {
        let mut buffer = here.buffer(size);
        assert_eq!(buffer.len(), size);
        buffer.fill(size as u8);
        here.post(buffer, LONG).unwrap();
        let got = there.take(LONG).unwrap();
        assert_eq!(got[..], vec![size as u8; size]);
        // A received message is posted without a copy.
        there.post(got, LONG).unwrap();
        assert_eq!(here.take(LONG).unwrap().len(), size);
    }
}

/// Polls both futures on this thread, as any executor would run two tasks.
#[test]
fn messages_of_all_sizes_keep_their_order() {
    let (_a, _b, here, there) = pair("ui | unreliable | net");
    let message = |n: usize| {
        let size = [1000, 20_000, 64_000, 3][n % 4];
        (0..size).map(|at| (at * 7 + n) as u8).collect::<Vec<u8>>()
    };
    // Small messages wait to be batched, large ones go from the sender's memory, posted ones
    // through the modules. The peer reads some one by one, and several at once.
    let mut got = Vec::new();
    for first in (0..600).step_by(12) {
        for n in first..first + 12 {
            if n % 5 == 0 {
                let mut buffer = here.buffer(message(n).len());
                buffer.copy_from_slice(&message(n));
                here.post(buffer, LONG).unwrap();
            } else {
                here.send(&message(n), LONG).unwrap();
            }
        }
        assert!(here.flush(LONG));
        for n in first..first + 12 {
            there.recv(&mut got, LONG).unwrap();
            assert!(got == message(n), "message {n} is not the next, or not as it was sent");
        }
    }
    assert_eq!(there.dropped(), []);
}

fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let mut done = (None, None);
    let together = poll_fn(move |context| {
        if done.0.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            done.0 = Some(output);
        }
        if done.1.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            done.1 = Some(output);
        }
        match (done.0.take(), done.1.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            rest => {
                done = rest;
                Poll::Pending
            }
        }
    });
    block_on_for(together, LONG).expect("both end")
}

#[test]
fn one_thread_connects_accepts_sends_and_receives() {
    let (a, b) = (endpoint(None), endpoint(None));
    let easy = contract(Duration::from_millis(100), 1000);
    let line = "ui | encrypt(chacha20) | reliable | frag(1400) | net";
    let (here, there) = both(a.connect_async(b.address(), line, easy, easy), b.accept_async());
    let here = here.unwrap();
    // More than the window holds, so that the sender must wait for the receiver.
    let count = 2000_u32;
    let send = async {
        for n in 0..count {
            if n % 2 == 0 {
                here.send_async(&n.to_be_bytes()).await.unwrap();
            } else {
                let mut buffer = here.buffer(4);
                buffer.copy_from_slice(&n.to_be_bytes());
                here.post_async(buffer).await.unwrap();
            }
        }
    };
    let receive = async {
        let mut got = Vec::new();
        for n in 0..count {
            there.recv_async(&mut got).await.unwrap();
            assert_eq!(got, n.to_be_bytes());
        }
    };
    both(send, receive);
    // A future that is dropped while it waits loses no message.
    assert!(block_on_for(there.take_async(), Duration::from_millis(1)).is_none());
    let (sent, got) = both(here.send_async(b"more"), there.take_async());
    sent.unwrap();
    assert_eq!(got.unwrap()[..], *b"more");
    std::thread::spawn(move || drop(here));
    let end = block_on_for(there.take_async(), LONG).expect("it is told");
    assert_eq!(end.unwrap_err(), RecvError::Closed);
}

struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_is_woken_when_its_connection_ends() {
    let (_a, _b, here, there) = pair("ui | unreliable | net");
    let count = Arc::new(Count(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut taking = there.take_async();
    let poll = |taking: &mut super::Taking<'_>| {
        pin!(taking).poll(&mut Context::from_waker(&waker)).map(|outcome| outcome.map(|_| ()))
    };
    assert_eq!(poll(&mut taking), Poll::Pending);
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    there.shared.remove_connection(there.opened.id);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(poll(&mut taking), Poll::Ready(Err(RecvError::PeerLost)));
    drop(here);
}

#[test]
fn an_attempt_that_is_given_up_leaves_nothing_behind() {
    let (a, b) = (endpoint(None), endpoint(None));
    let easy = contract(Duration::from_millis(100), 1000);
    // This address does not answer.
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let line = "ui | reliable | net";
    let attempt = a.connect_async(nobody.local_addr().unwrap(), line, easy, easy);
    assert!(block_on_for(attempt, Duration::from_millis(1)).is_none());
    let mut hello = [0; 2000];
    nobody.set_read_timeout(Some(LONG.into())).unwrap();
    nobody.recv(&mut hello).expect("it was said");
    assert!(
        super::lock(&a.shared.manager)
            .streams()
            .iter()
            .all(|stream| { stream.assigned.iter().all(|elements| elements.count() == 0) })
    );
    let wrong = block_on_for(a.connect_async(b.address(), "ui | net", easy, easy), LONG);
    let wrong = wrong.expect("it is told at once").unwrap_err();
    assert!(matches!(wrong, ConnectError::Stack { .. }), "{wrong}");
}

#[test]
fn what_is_seen_of_an_endpoint_is_what_happened() {
    let (a, b, here, there) = pair("ui | checksum | reliable | frag(1400) | net");
    let mut got = Vec::new();
    for _ in 0..10 {
        here.send(&[1; 3000], LONG).unwrap();
        there.recv(&mut got, LONG).unwrap();
    }
    assert!(here.flush(LONG));
    let (ours, theirs) = (a.view(), b.view());
    assert_eq!((ours.connections.len(), ours.elements.len()), (1, 2));
    let (one, other) = (&ours.connections[0], &theirs.connections[0]);
    assert_eq!((one.id, &one.stack), (other.id, &other.stack));
    assert_eq!(one.peer, b.address().to_string());
    assert_eq!((one.out.messages, one.out.bytes, one.back.messages), (10, 30_000, 0));
    assert_eq!((other.back.messages, other.back.bytes, other.out.messages), (10, 30_000, 0));
    let names: Vec<_> = one.modules.iter().map(|module| module.module.as_str()).collect();
    assert_eq!(names, ["ui", "checksum", "reliable", "frag(1400)", "net"]);
    assert!(one.modules.iter().all(|module| !module.down.is_empty() && !module.up.is_empty()));
    let served: u64 = ours.elements.iter().map(|element| element.modules).sum();
    assert!(served >= 10, "{ours:?}");
    // Ten messages down, each through all modules at once, and acknowledgements up.
    let processed: u64 = ours.elements.iter().map(|element| element.messages).sum();
    assert!(processed > 10, "{ours:?}");
    let text = serde_json::to_string(&ours).unwrap();
    assert_eq!(serde_json::from_str::<super::EndpointView>(&text).unwrap(), ours);
    drop((here, there));
    assert!(a.view().connections.is_empty());
}

#[test]
fn a_module_is_placed_by_hand_while_messages_flow() {
    let (a, _b, here, there) = pair("ui | unreliable | net");
    let connection = here.opened.id;
    let pin = |module: &str, elements: &[u8]| {
        let (module, elements) = (module.to_owned(), elements.to_vec());
        a.pin(&super::ModulePin { connection, module, elements })
    };
    let served = || here.show().into_iter().map(|(_, down, up, _)| [down, up]).collect::<Vec<_>>();
    let before = served();
    pin("net", &[0, 1]).unwrap();
    assert_eq!(served()[2], ["PE.0,1", "PE.0,1"]);
    assert_eq!(served()[..2], before[..2]);
    let mut got = Vec::new();
    here.send(b"through both", LONG).unwrap();
    there.recv(&mut got, LONG).unwrap();
    for (module, elements, said) in
        [("rtp", &[0][..], "has not one module \"rtp\""), ("net", &[7], "none of PE.7")]
    {
        let refused = pin(module, elements).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let other = super::ModulePin { connection: connection ^ 1, ..super::ModulePin::default() };
    assert!(a.pin(&other).unwrap_err().to_string().starts_with("no connection"));
    assert_eq!(served()[2], ["PE.0,1", "PE.0,1"]);
    pin("net", &[]).unwrap();
    assert_ne!(served()[2], ["PE.0,1", "PE.0,1"]);
}

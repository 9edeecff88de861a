//! Services, their callers and subscribers, in two threads of one process as in two processes: they
//! share only sockets and memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use selvedge_comm_call::{
    Call, CallError, CallKind, Client, ClientError, Deferral, EventSink, Host, Layout, PutError,
    RegisterError, Service, ServiceEventDraft, SubscribeOptions, Subscription, WakeMethod, generic,
    services,
};
use selvedge_os::clock::Clock;
use selvedge_os::control::ControlError;
use selvedge_os::seqpacket;
use selvedge_tests_wait::until;
use selvedge_units::{Duration, Instant};

/// A directory of its own, removed afterwards.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("slv-ecall-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn subscribe(&self, wish: SubscribeOptions) -> Subscription {
        Client::open(&self.0, "test").unwrap().subscribe(wish).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn patience() -> Instant {
    Clock::shared().now() + Duration::from_secs(30)
}

/// The recipient, the data, the time to the deadline, and the entry.
type ToRaise = (char, Vec<u8>, Option<Duration>, Option<u32>);

/// The calls that the service below received, and the events that it raises when it runs.
#[derive(Default)]
struct Notes {
    calls: Vec<(CallKind, Vec<u8>)>,
    raise: Vec<ToRaise>,
    gone: usize,
}

struct Test(Arc<Mutex<Notes>>);

impl Service for Test {
    fn name(&self) -> &str {
        "test"
    }

    fn description(&self) -> &str {
        "for tests"
    }

    fn call_format(&self) -> &str {
        "input { char what; };"
    }

    fn call(&mut self, _: Instant, call: &Call<'_>, reply: &mut Vec<u8>) -> Result<(), CallError> {
        assert_eq!(call.pid, std::process::id());
        if call.data == b"no" {
            return Err(CallError::Denied("it is a no".to_owned()));
        }
        self.0.lock().unwrap().calls.push((call.kind, call.data.to_vec()));
        reply.extend(call.data.iter().rev());
        Ok(())
    }

    fn run(&mut self, now: Instant, events: &mut dyn EventSink) -> Option<Instant> {
        let raise = std::mem::take(&mut self.0.lock().unwrap().raise);
        for (target, data, due, entry) in raise {
            let mut event = match target {
                '1' => ServiceEventDraft::to_one(&data),
                'p' => ServiceEventDraft::to_pid(std::process::id(), &data),
                'x' => ServiceEventDraft::to_pid(1, &data),
                _ => ServiceEventDraft::to_all(&data),
            };
            event.deadline = due.map(|due| now + due);
            event.entry = entry;
            events.raise(event);
        }
        None
    }

    fn unsubscribed(&mut self, _: u32) {
        self.0.lock().unwrap().gone += 1;
    }
}

fn start() -> (Place, Host, Arc<Mutex<Notes>>) {
    let place = Place::new();
    let host = Host::start(&place.0, None).unwrap();
    let notes = Arc::new(Mutex::new(Notes::default()));
    host.register(Box::new(Test(Arc::clone(&notes)))).unwrap();
    (place, host, notes)
}

fn calls(notes: &Mutex<Notes>) -> Vec<(CallKind, Vec<u8>)> {
    notes.lock().unwrap().calls.clone()
}

#[test]
fn services_are_found_by_name_and_answer() {
    let (place, host, notes) = start();
    assert_eq!(services(&place.0), ["test"]);
    assert_eq!(generic(&place.0, "test", b"abc").unwrap(), b"cba");
    let mut client = Client::open(&place.0, "test").unwrap();
    assert_eq!(client.call(b"").unwrap(), b"");
    let refused = client.call(b"no").unwrap_err();
    assert!(refused.to_string().contains("it is a no"), "{refused}");
    assert!(matches!(client.call(&[0; 16 * 1024]), Err(ClientError::TooLong(_))));
    let said = client.describe().unwrap();
    assert_eq!(
        (&*said.about, &*said.calls, &*said.events),
        ("for tests", "input { char what; };", "")
    );
    assert_eq!(calls(&notes).len(), 2);
    assert!(matches!(Client::open(&place.0, "none"), Err(ClientError::Unknown { .. })));
    let again = host.register(Box::new(Test(Arc::default())));
    assert!(matches!(again, Err(RegisterError::Taken(_))));
    drop(host);
    assert!(services(&place.0).is_empty());
    assert!(matches!(client.call(b"abc"), Err(ClientError::Control(ControlError::Closed))));
}

#[test]
fn fast_calls_wake_nobody_and_are_seen_with_the_next() {
    let (place, host, notes) = start();
    let mut caller = place.subscribe(SubscribeOptions::default());
    for n in 0..10 {
        caller.call_fast(None, &[n]).unwrap();
    }
    // The host may still be awake from the subscription; from now on it sleeps.
    std::thread::yield_now();
    caller.call_direct(None, b"now").unwrap();
    until("all were seen", || calls(&notes).len() == 11);
    let all = calls(&notes);
    assert!(all[..10].iter().enumerate().all(|(n, call)| *call == (CallKind::Fast, vec![n as u8])));
    assert_eq!(all[10], (CallKind::Direct, b"now".to_vec()));
    until("counted", || host.counts("test").unwrap().calls == [10, 0, 1, 0]);
}

#[test]
fn deferred_calls_come_when_they_are_to_and_together() {
    let (place, _host, notes) = start();
    let mut caller = place.subscribe(SubscribeOptions::default());
    let clock = Clock::shared();
    for n in 0..5 {
        caller.call_deferred(Deferral::NextCall, None, &[n]).unwrap();
    }
    let due = clock.now() + Duration::from_millis(30);
    caller.call_deferred(Deferral::After(Duration::from_millis(30)), None, b"late").unwrap();
    // That call does not publish those that were deferred until the next call.
    until("the next call brings them", || {
        caller.call(b"x").unwrap();
        calls(&notes).iter().filter(|call| call.0 == CallKind::Deferred).count() >= 5
    });
    until("its time comes", || calls(&notes).iter().any(|call| call.1 == b"late"));
    assert!(clock.now() >= due, "and not before");
    caller.call_deferred(Deferral::BeforeDispatch, None, b"before").unwrap();
    notes.lock().unwrap().raise.push(('a', b"event".to_vec(), None, None));
    // A generic call makes the service run and raise.
    caller.call(b"run").unwrap();
    assert!(caller.wait(patience()));
    assert_eq!(caller.take().unwrap().unwrap().data, b"event");
    assert!(
        calls(&notes).iter().any(|call| call.1 == b"before"),
        "before the event was handed out"
    );
}

#[test]
fn a_full_ring_of_calls_is_told() {
    let (place, _host, _) = start();
    let up = Layout::Ring { room: 1024, bound: 4 };
    let mut caller = place.subscribe(SubscribeOptions { calls: up, ..SubscribeOptions::default() });
    let mut full = None;
    for n in 0..5 {
        let refused = caller.call_deferred(Deferral::NextCall, None, &[n]).err();
        full = full.or(refused);
    }
    assert_eq!(full, Some(PutError::Full));
    caller.call(b"now").unwrap();
    until("there is room again", || caller.call_fast(None, b"x").is_ok());
    assert_eq!(caller.call_fast(None, &[0; 2000]), Err(PutError::Outside));
}

#[test]
fn events_come_earliest_deadline_first_and_late_ones_do_not() {
    for wake_method in [WakeMethod::Futex, WakeMethod::Event] {
        let (place, host, notes) = start();
        let mut subscriber =
            place.subscribe(SubscribeOptions { wake_method, ..SubscribeOptions::default() });
        let second = Duration::from_secs(60);
        notes.lock().unwrap().raise.extend([
            ('a', b"none".to_vec(), None, None),
            ('p', b"later".to_vec(), Some(second * 2), None),
            ('a', b"late".to_vec(), Some(Duration::ZERO), None),
            ('1', b"soon".to_vec(), Some(second), None),
            ('x', b"another's".to_vec(), None, None),
        ]);
        subscriber.call_direct(None, b"go").unwrap();
        let mut got = Vec::new();
        while got.len() < 3 {
            assert!(subscriber.wait(patience()));
            while let Some(event) = subscriber.take().unwrap() {
                got.push(event.data.to_vec());
            }
        }
        assert_eq!(got, [&b"soon"[..], b"later", b"none"]);
        assert_eq!(subscriber.flag(), 3);
        until("all are counted", || {
            let counts = host.counts("test").unwrap();
            (counts.raised, counts.delivered, counts.expired) == (5, 3, 1)
        });
    }
}

#[test]
fn bit_patterns_hold_the_newest_of_each_entry() {
    let (place, _host, notes) = start();
    let bits = Layout::Bits { entries: 8, size: 8 };
    let mut program = place.subscribe(SubscribeOptions {
        calls: bits,
        events: bits,
        ..SubscribeOptions::default()
    });
    notes.lock().unwrap().raise.extend([
        ('a', b"old".to_vec(), None, Some(5)),
        ('a', b"new".to_vec(), None, Some(5)),
        ('a', b"first".to_vec(), None, Some(0)),
    ]);
    // Values of which only the current one matters when the subscriber looks.
    for rate in [10_u64, 20, 30] {
        program.call_deferred(Deferral::BeforeDispatch, Some(2), &rate.to_ne_bytes()).unwrap();
    }
    program.call_direct(Some(7), b"go").unwrap();
    until("all have come", || program.flag() == 3);
    let first = program.take().unwrap().map(|event| (event.entry, event.data.to_vec()));
    assert_eq!(first, Some((Some(0), b"first".to_vec())));
    let second = program.take().unwrap().map(|event| (event.entry, event.data.to_vec()));
    assert_eq!(second, Some((Some(5), b"new".to_vec())));
    assert_eq!(program.take().unwrap(), None);
    let calls = calls(&notes);
    assert_eq!(calls.last(), Some(&(CallKind::Direct, b"go".to_vec())));
    assert!(calls.contains(&(CallKind::Deferred, 30_u64.to_ne_bytes().to_vec())));
    assert_eq!(program.call_fast(Some(8), b""), Err(PutError::Outside));
}

#[test]
fn one_in_turn_gets_an_event_for_one() {
    let (place, _host, notes) = start();
    let mut all: Vec<Subscription> =
        (0..3).map(|_| place.subscribe(SubscribeOptions::default())).collect();
    for n in 0..6 {
        notes.lock().unwrap().raise.push(('1', vec![n], None, None));
    }
    all[0].call_direct(None, b"go").unwrap();
    for subscriber in &mut all {
        until("two each", || subscriber.flag() == 2);
        assert!(subscriber.take().unwrap().is_some() && subscriber.take().unwrap().is_some());
    }
    drop(all);
    until("all have left", || notes.lock().unwrap().gone == 3);
}

#[test]
fn what_makes_no_sense_is_refused_or_ended() {
    let (place, host, _) = start();
    let path = place.0.join("test");
    for junk in [&[7][..], b"{\"v\":1,\"op\":\"dance\"}", &[0, 0], &[9; 5000], &[b' '; 20_000]] {
        let socket = seqpacket::connect_to(&path).unwrap();
        seqpacket::send(&socket, junk, &[]).unwrap();
        assert!(seqpacket::wait_readable(&socket, Duration::from_secs(30)));
        assert!(matches!(seqpacket::receive(&socket), Ok(seqpacket::Received::End)), "{junk:?}");
    }
    for up in [
        Layout::Bits { entries: 0, size: 8 },
        Layout::Bits { entries: 1 << 20, size: 8 },
        Layout::Bits { entries: 1000, size: u32::MAX },
        Layout::Ring { room: 1 << 30, bound: 4 },
    ] {
        let client = Client::open(&place.0, "test").unwrap();
        let refused =
            client.subscribe(SubscribeOptions { calls: up, ..SubscribeOptions::default() });
        assert!(matches!(refused, Err(ClientError::Control(ControlError::Refused(_)))), "{up:?}");
    }
    assert_eq!(host.counts("test").unwrap().subscribers, 0);
    assert_eq!(generic(&place.0, "test", b"fine").unwrap(), b"enif");
    let name = |name: &'static str| {
        struct Named(&'static str);
        impl Service for Named {
            fn name(&self) -> &str {
                self.0
            }
            fn call(&mut self, _: Instant, _: &Call<'_>, _: &mut Vec<u8>) -> Result<(), CallError> {
                Ok(())
            }
        }
        host.register(Box::new(Named(name)))
    };
    for wrong in ["", "../x", "a/b", ".hidden", "Big"] {
        assert!(matches!(name(wrong), Err(RegisterError::Name(_))), "{wrong}");
    }
    name("other").unwrap();
    assert_eq!(services(&place.0), ["other", "test"]);
}

#[test]
fn who_ended_and_who_is_silent_are_told_apart() {
    let place = Place::new();
    std::fs::create_dir_all(&place.0).unwrap();
    let listener = seqpacket::listen_at(&place.0.join("mute")).unwrap();
    let mut ended = Client::open(&place.0, "mute").unwrap();
    drop(seqpacket::accept(&listener).unwrap());
    assert!(matches!(ended.call(b""), Err(ClientError::Control(ControlError::Closed))));
    let mut waiting = Client::open(&place.0, "mute").unwrap();
    let other = seqpacket::accept(&listener).unwrap().unwrap();
    assert!(matches!(waiting.call(b""), Err(ClientError::Control(ControlError::TimedOut(_)))));
    // A late reply is not taken for the next answer.
    let _ = seqpacket::send(&other, b"late", &[]);
    assert!(matches!(waiting.call(b""), Err(ClientError::Control(ControlError::Closed))));
}

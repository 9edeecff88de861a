//! Channels inside one host: members that come and go, each wake-up method, each overflow rule.

mod kit;

use std::sync::atomic::{AtomicU64, Ordering};

use kit::{Place, patience, taken};
use selvedge_comm_local::{
    JoinError, PublishError, Sink, SinkOptions, SourceOptions, WaitOutcome, WakeMethod, channels,
};
use selvedge_control_event::{Continue, Handlers, Overflow, SharedBlocks, Wake};
use selvedge_os::clock::Clock;
use selvedge_os::signal;
use selvedge_tests_wait::until;
use selvedge_units::{Bytes, Duration, Instant};

fn of(full: Overflow, bound: usize) -> SinkOptions {
    SinkOptions { full, bound, ..SinkOptions::default() }
}

#[test]
fn members_meet_whoever_comes_first() {
    let place = Place::new();
    let mut early = place.sink(SinkOptions::default());
    let mut source = place.source(SourceOptions::default());
    assert_eq!(source.publish(b"one", None), Ok(1), "reached as soon as it has joined");
    let mut late = place.sink(SinkOptions::default());
    until("the late one is reached", || source.sinks().count() == 2);
    assert_eq!(source.publish(b"two", None), Ok(2));
    assert_eq!(channels(place.path()), [("load".to_owned(), 3)]);
    assert_eq!(early.receive(patience()).unwrap().bytes, b"one");
    assert_eq!(early.receive(patience()).unwrap().bytes, b"two");
    let event = late.receive(patience()).unwrap();
    assert_eq!((event.bytes, event.number), (&b"two"[..], 0));
    drop(early);
    until("it is gone", || source.sinks().count() == 1);
    assert_eq!(source.publish(b"three", None), Ok(1));
    drop(source);
    assert_eq!(late.receive(patience()).unwrap().bytes, b"three", "sent before it left");
    until("no source", || late.sources() == 0);
    assert_eq!(late.receive(Clock::shared().now()), None);
}

#[test]
fn events_of_all_sizes_arrive_in_batches_and_alone() {
    let place = Place::new();
    let mut sink = place.sink(of(Overflow::Block, 1024));
    let mut source = place.source(SourceOptions::default());
    let most = 256 * 1024 - 24;
    for size in [0, 1, 7, 8, 9, 100, 4096, 72 * 1024, most] {
        let bytes: Vec<u8> = (0..size).map(|n| n as u8).collect();
        assert_eq!(source.publish(&bytes, None), Ok(1));
        assert_eq!(taken(&mut sink), [bytes]);
    }
    assert_eq!(source.publish(&vec![0; most + 1], None), Ok(0), "it can't fit");
    for n in 0..64_u64 {
        source.enqueue(&n.to_ne_bytes(), None).unwrap();
    }
    assert!(!sink.has_events());
    source.flush();
    assert_eq!(taken(&mut sink).len(), 64);
    assert_eq!(sink.counts().missed, 1);
}

#[test]
fn a_full_sink_goes_by_its_own_rule_and_harms_no_other() {
    let place = Place::new();
    let mut all = place.sink(of(Overflow::DropNewest, 4096));
    let mut oldest = place.sink(of(Overflow::DropOldest, 4));
    let mut newest = place.sink(of(Overflow::DropNewest, 4));
    let mut latest = place.sink(of(Overflow::Latest, 1));
    let mut source = place.source(SourceOptions::default());
    for n in 0..100_u8 {
        let got = source.publish(&[n], None).unwrap();
        assert_eq!(got, if n < 4 { 4 } else { 3 }, "{n}");
    }
    assert_eq!(taken(&mut all).len(), 100);
    assert_eq!(taken(&mut oldest), [[96], [97], [98], [99]]);
    assert_eq!(taken(&mut newest), [[0], [1], [2], [3]]);
    assert_eq!(taken(&mut latest), [[99]]);
    assert_eq!((oldest.counts().missed, latest.counts().missed), (96, 99));
    assert_eq!(source.counts().dropped, 96);
    let mut reports = source.reports();
    reports.sort_by_key(|report| report.missed);
    assert_eq!(reports.iter().map(|report| report.missed).collect::<Vec<_>>(), [0, 0, 96, 99]);
    // The sink learns of its loss with the next event that it gets.
    source.publish(&[100], None).unwrap();
    assert_eq!((taken(&mut newest), newest.counts().missed), (vec![vec![100]], 96));
}

#[test]
fn one_that_blocks_holds_its_source_up_for_so_long_and_no_longer() {
    let place = Place::new();
    let mut blocks = place.sink(of(Overflow::Block, 2));
    let mut other = place.sink(SinkOptions::default());
    let patience = Duration::from_millis(5);
    let mut source = place.source(SourceOptions { wake: Wake::All, patience });
    assert_eq!((source.publish(&[0], None), source.publish(&[1], None)), (Ok(2), Ok(2)));
    let before = Clock::shared().now();
    assert!(matches!(source.publish(&[2], None), Err(PublishError::Blocked(_))));
    assert!(Clock::shared().now() - patience >= before);
    assert_eq!((source.counts().blocked, taken(&mut other).len()), (1, 2), "nobody got it");
    assert_eq!(blocks.take().unwrap().bytes, [0]);
    assert_eq!(source.publish(&[2], None), Ok(2));
    assert_eq!(taken(&mut blocks), [[1], [2]]);
}

#[test]
fn one_in_turn_gets_it_and_the_next_if_that_is_full() {
    let place = Place::new();
    let mut sinks: Vec<Sink> = (0..3).map(|_| place.sink(of(Overflow::DropNewest, 2))).collect();
    let mut source = place.source(SourceOptions { wake: Wake::One, ..SourceOptions::default() });
    for n in 0..3 {
        assert_eq!(source.publish(&[n], None), Ok(1));
    }
    assert!(sinks.iter_mut().all(|sink| taken(sink).len() == 1));
    for n in 0..7 {
        assert_eq!(source.publish(&[n], None), Ok(usize::from(n < 6)));
    }
    assert!(sinks.iter_mut().all(|sink| taken(sink).len() == 2));
}

#[test]
fn late_events_are_dropped_and_counted() {
    let place = Place::new();
    let mut sink = place.sink(SinkOptions::default());
    let mut source = place.source(SourceOptions::default());
    let now = Clock::shared().now();
    let later = now + Duration::from_secs(60);
    source.publish(b"late", Some(now - Duration::from_millis(1))).unwrap();
    source.publish(b"in time", Some(later)).unwrap();
    let event = sink.receive(patience()).unwrap();
    assert_eq!((event.bytes, event.deadline), (&b"in time"[..], Some(later)));
    assert_eq!(sink.counts().expired, 1);
}

/// A source publishes one event at a time, and waits until it was seen: a lost wake-up leaves both
/// waiting, which the end of patience turns into a failure.
fn each_call_arrives(options: SinkOptions) {
    const ROUNDS: u64 = 2000;
    let place = Place::new();
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (place, seen) = (&place, &seen);
        let thread = scope.spawn(move || {
            if let WakeMethod::Signal { number, .. } = options.wake_method {
                signal::block(number).unwrap();
            }
            let mut sink = place.sink(options);
            seen.store(1, Ordering::Release);
            for round in 2..ROUNDS {
                let event = sink.receive(patience()).expect("it is called");
                assert_eq!(event.bytes, round.to_ne_bytes());
                seen.store(round, Ordering::Release);
            }
        });
        until("it is there", || seen.load(Ordering::Acquire) == 1);
        let mut source = place.source(SourceOptions::default());
        for round in 2..ROUNDS {
            assert_eq!(source.publish(&round.to_ne_bytes(), None), Ok(1));
            let seen = || seen.load(Ordering::Acquire) == round || thread.is_finished();
            until("it was seen", seen);
        }
    });
}

#[test]
fn sleepers_are_called_by_futex() {
    each_call_arrives(SinkOptions::default());
    each_call_arrives(SinkOptions { spin: Duration::from_micros(20), ..SinkOptions::default() });
}

#[test]
fn sleepers_are_called_by_events() {
    each_call_arrives(SinkOptions { wake_method: WakeMethod::Event, ..SinkOptions::default() });
}

#[test]
fn sleepers_are_called_by_signals() {
    let number = libc::SIGRTMIN() + 3;
    // Signals go to the whole process: to any thread that does not block them. Tests run in threads that
    // this one did not start, so the signal is only sent while the receiver alone waits for it.
    signal::block(number).unwrap();
    let options = SinkOptions {
        wake_method: WakeMethod::Signal { number, every: false },
        ..SinkOptions::default()
    };
    // The signal would end other threads.
    ignore(number);
    let place = Place::new();
    let mut sink = place.sink(options);
    let mut source = place.source(SourceOptions::default());
    for round in 0..100_u64 {
        assert_eq!(sink.take(), None);
        assert!(sink.prepare_wait());
        assert_eq!(source.publish(&round.to_ne_bytes(), None), Ok(1));
        assert_eq!(sink.wait(patience()), WaitOutcome::Available);
        assert_eq!(sink.take().unwrap().bytes, round.to_ne_bytes());
    }
}

/// Gives a signal a handler that does nothing.
fn ignore(number: i32) {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(number, nothing as *const () as libc::sighandler_t) };
}

#[test]
fn a_loop_of_the_programs_own_waits_for_descriptors() {
    use rustix::event::{PollFd, PollFlags, poll};
    let place = Place::new();
    let mut sink =
        place.sink(SinkOptions { wake_method: WakeMethod::Event, ..SinkOptions::default() });
    let mut source = place.source(SourceOptions::default());
    let is_readable = |sink: &Sink| {
        let mut fds = [PollFd::from_borrowed_fd(sink.fd().unwrap(), PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).unwrap() == 1
    };
    until("the source is there", || sink.sources() == 1);
    for round in 0..5 {
        assert!(sink.prepare_wait() && !is_readable(&sink));
        source.publish(&[round], None).unwrap();
        assert!(is_readable(&sink));
        assert!(!sink.prepare_wait(), "there is something to take");
        assert_eq!(taken(&mut sink), [[round]]);
    }
}

#[test]
fn handlers_run_in_order_and_stop_the_next() {
    let place = Place::new();
    let mut sink = place.sink(SinkOptions::default());
    let mut source = place.source(SourceOptions::default());
    for n in 0..10_u8 {
        source.publish(&[n], None).unwrap();
    }
    let mut sum = 0_u32;
    let mut handlers = Handlers::default();
    handlers.add(|_, record| if record[0] % 2 == 0 { Continue::Next } else { Continue::Stop }).add(
        |_, record| {
            sum += u32::from(record[0]);
            Continue::Next
        },
    );
    assert_eq!(sink.handle(100, &mut handlers, &mut SharedBlocks::default()), 10);
    assert_eq!(handlers.counts(), [(10, 5), (5, 0)]);
    drop(handlers);
    assert_eq!(sum, 20);
}

#[test]
fn wrong_names_directories_and_options_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let join = |name: &str, options| Sink::join(place.path(), name, options).map(|_| ());
    let long = "x".repeat(65);
    assert!(matches!(join("", SinkOptions::default()), Err(JoinError::Name(0))));
    assert!(matches!(join(&long, SinkOptions::default()), Err(JoinError::Name(65))));
    assert!(join("any/thing ä", SinkOptions::default()).is_ok());
    assert!(matches!(join("x", of(Overflow::Latest, 0)), Err(JoinError::Bound)));
    let wake_method = WakeMethod::Signal { number: libc::SIGTERM, every: false };
    let wrong = SinkOptions { wake_method, ..SinkOptions::default() };
    assert!(matches!(join("x", wrong), Err(JoinError::Signal(15))));
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(matches!(join("x", SinkOptions::default()), Err(JoinError::Foreign(_))));
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let small = SinkOptions { room: Bytes(1), ..SinkOptions::default() };
    let mut sink = place.sink(small);
    let mut source = place.source(SourceOptions::default());
    assert_eq!(source.publish(&[0; 100], None), Ok(1));
    assert_eq!(sink.receive(Instant::MAX).unwrap().bytes.len(), 100);
}

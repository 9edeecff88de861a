//! Changes really pass through the kernel. Posted ones have the effects of system calls, in order;
//! the kernel refuses and counts invalid ones. Where BPF may not be loaded, the tests state so.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration as StdDuration;

use super::*;
use crate::catalog::Service;
use crate::layout::Tally;
use crate::watch::{WatchOptions, now};
use selvedge_os_bpf::ProgramError;
use selvedge_tests_wait::until;

/// Threads that do not run: their numbers are above those of any test machine.
const FIRST: u32 = 4_000_000;
/// The number of records of 24 bytes in a ring of 4096.
const ROOM: u64 = 170;

fn start(service: Service, way: ChangePath) -> Option<Watch> {
    let kinds = match service {
        Service::Sched => vec!["miss".to_owned()],
        _ => vec!["data".to_owned()],
    };
    let mut wish = WatchOptions { kinds, pid: Some(u32::MAX), ..WatchOptions::new(service) };
    if service == Service::Socket {
        wish.pid = None;
    }
    started(wish, way)
}

fn started(wish: WatchOptions, way: ChangePath) -> Option<Watch> {
    match Watch::start_by(wish, way) {
        Ok(watch) => Some(watch),
        Err(
            error @ (ServiceError::PidNamespace
            | ServiceError::Program(ProgramError::NotPermitted | ProgramError::NoTypes(_))),
        ) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Watches data that arrives at an address.
fn data_at(to: SocketAddr) -> WatchOptions {
    let kinds = vec!["data".to_owned()];
    WatchOptions { kinds, port: Some(to.port()), ..WatchOptions::new(Service::Socket) }
}

/// Waits until the kernel's program has read all posted changes by itself.
fn taken(watch: &Watch) -> Tally {
    let waits = || watch.change_ring.as_ref().is_some_and(|change_ring| change_ring.waiting() > 0);
    until("the taking of posts", || !waits());
    watch.tally()
}

/// Posts a malformed record.
fn scribble(watch: &mut Watch, record: &[u8]) {
    assert!(watch.change_ring.as_mut().unwrap().put(record));
    watch.notify_kernel();
}

fn record(kind: u32, thread: u32, value: u64) -> Vec<u8> {
    let head = [kind, thread].into_iter().flat_map(u32::to_ne_bytes);
    head.chain(value.to_ne_bytes()).collect()
}

fn changes() -> Vec<Change> {
    let mut changes = Vec::new();
    for at in 0..400_u32 {
        let thread = FIRST + at * 7 % 60;
        let within = Duration(u64::from(at) * 1000 + 1);
        changes.push(Change::Job { thread, within });
        match at % 5 {
            1 => changes.push(Change::NoJob { thread }),
            3 => changes.push(Change::Threshold(u64::from(at))),
            4 => changes.push(Change::Interval(Duration::from_millis(u64::from(at) + 500))),
            _ => {}
        }
    }
    changes
}

fn settings(watch: &Watch) -> (u64, u64) {
    let at = |at| watch.settings.atomic(at).load(Ordering::Acquire);
    (at(Settings::THRESHOLD), at(Settings::INTERVAL))
}

#[test]
fn posted_changes_do_what_system_calls_do() {
    let Some(mut posted) = start(Service::Sched, ChangePath::Posted) else { return };
    let Some(mut called) = start(Service::Sched, ChangePath::SystemCall) else { return };
    assert_eq!(
        (posted.change_path(), called.change_path()),
        (ChangePath::Posted, ChangePath::SystemCall)
    );
    let changes = changes();
    for (number, change) in changes.iter().enumerate() {
        called.post(*change).unwrap();
        while let Err(error) = posted.post(*change) {
            assert!(matches!(error, ServiceError::Full { .. }), "{error}");
            taken(&posted);
        }
        if number % 97 == 0 {
            taken(&posted);
            assert_eq!(posted.jobs().unwrap(), called.jobs().unwrap(), "after {number}");
        }
    }
    let tally = taken(&posted);
    assert_eq!(posted.jobs().unwrap(), called.jobs().unwrap());
    assert!(posted.jobs().unwrap().len() > 30);
    assert_eq!(settings(&posted), settings(&called));
    assert_eq!((tally.posted, tally.refused), (changes.len() as u64, 0));
    assert_eq!((called.tally().posted, called.tally().refused), (0, 0));
}

#[test]
fn the_last_of_many_for_a_thread_holds() {
    let Some(mut watch) = start(Service::Sched, ChangePath::Posted) else { return };
    for round in 0..200_u64 {
        for step in 0..100 {
            let change = match step % 3 {
                2 => Change::NoJob { thread: FIRST },
                _ => Change::Job { thread: FIRST, within: Duration(round * 100 + step + 1) },
            };
            watch.post(change).unwrap();
        }
        let tally = taken(&watch);
        assert_eq!((tally.posted, tally.refused), ((round + 1) * 100, 0));
        assert_eq!(watch.jobs().unwrap(), [(FIRST, Duration(round * 100 + 100))]);
    }
}

#[test]
fn the_kernel_refuses_what_makes_no_sense() {
    let Some(mut watch) = start(Service::Sched, ChangePath::Posted) else { return };
    let good = record(2, FIRST, 5);
    let bad = [
        vec![],
        good[..1].to_vec(),
        good[..15].to_vec(),
        [&good[..], &[0]].concat(),
        vec![2; 200],
        // An unknown kind.
        record(4, FIRST, 5),
        record(u32::MAX, 0, 0),
        // Impossible threads, and spans that would wrap.
        record(2, 0, 5),
        record(2, THREAD_MAX + 1, 5),
        record(2, u32::MAX, 5),
        record(2, FIRST, SPAN_MAX.0 + 1),
        record(1, 0, u64::MAX),
        // A thread where none belongs, a value where none belongs, and a thread without a deadline.
        record(0, 7, 1),
        record(1, 7, 1),
        record(3, FIRST, 9),
        record(3, FIRST + 1, 0),
    ];
    for (number, bad) in bad.iter().enumerate() {
        scribble(&mut watch, &good);
        scribble(&mut watch, bad);
        let tally = taken(&watch);
        assert_eq!((tally.posted, tally.refused), (number as u64 + 1, number as u64 + 1));
        assert_eq!(watch.jobs().unwrap(), [(FIRST, Duration(5))], "{bad:?}");
        assert_eq!(settings(&watch), (0, 0));
    }
    // More than there is room for: the kernel reports it once the map is full.
    for thread in 1..=1100 {
        while watch.post(Change::Job { thread, within: Duration(9) }).is_err() {
            taken(&watch);
        }
    }
    let (tally, before) = (taken(&watch), bad.len() as u64);
    let jobs = watch.jobs().unwrap();
    assert!(jobs.len() >= 1000 && jobs.len() <= 1024, "{}", jobs.len());
    assert_eq!(tally.posted + tally.refused, 2 * before + 1100);
    assert!(tally.refused > before);
}

#[test]
fn a_scribbled_ring_stops_no_occurrence() {
    let Some(mut watch) = start(Service::Sched, ChangePath::Posted) else { return };
    let change_ring = watch.change_ring.as_mut().unwrap();
    // An oversized length, then an invalid position: neither is read, and nothing hangs.
    assert!(change_ring.put(&record(2, FIRST, 5)));
    change_ring.corrupt_length(1 << 29);
    watch.notify_kernel();
    watch.tick().unwrap();
    until("a refusal", || watch.tally().refused > 0);
    assert_eq!(watch.jobs().unwrap(), []);
    watch.change_ring.as_mut().unwrap().corrupt_length(POST as u64);
    watch.notify_kernel();
    assert_eq!(taken(&watch).posted, 1, "and put right it goes on");
    assert_eq!(watch.jobs().unwrap(), [(FIRST, Duration(5))]);
}

#[test]
fn what_user_space_knows_to_be_wrong_is_not_posted() {
    for way in [ChangePath::Posted, ChangePath::SystemCall] {
        let Some(mut watch) = start(Service::Sched, way) else { return };
        for change in [
            Change::Job { thread: 0, within: Duration(1) },
            Change::Job { thread: THREAD_MAX + 1, within: Duration(1) },
            Change::Job { thread: 1, within: Duration(u64::MAX) },
            Change::NoJob { thread: 0 },
            Change::Interval(Duration(u64::MAX)),
        ] {
            assert!(matches!(watch.post(change), Err(ServiceError::Change { .. })), "{change:?}");
        }
        assert!(watch.add_job(0, Duration(1)).is_err());
        let mut socket = start(Service::Socket, way).unwrap();
        let error = socket.post(Change::NoJob { thread: 1 }).unwrap_err();
        assert!(matches!(error, ServiceError::NoThreads { .. }), "{error}");
        assert!(socket.jobs().is_err());
        watch.tick().unwrap();
        assert_eq!((watch.tally().posted, watch.tally().refused), (0, 0));
    }
}

#[test]
fn a_full_ring_is_told_and_loses_nothing() {
    // Nothing occurs on an unused port, so no change is read.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = silent.local_addr().unwrap();
    let Some(mut watch) = started(data_at(to), ChangePath::Posted) else { return };
    for value in 1..=ROOM {
        watch.post(Change::Threshold(value)).unwrap();
    }
    for _ in 0..3 {
        let error = watch.post(Change::Threshold(9999)).unwrap_err();
        assert!(matches!(error, ServiceError::Full { waiting: ROOM }), "{error}");
    }
    assert_eq!((settings(&watch).0, watch.tally().posted), (0, 0));
    // One tick applies all changes in order; then there is room again.
    watch.tick().unwrap();
    assert_eq!((settings(&watch).0, watch.tally().posted), (ROOM, ROOM));
    // A threshold applies to the very next occurrence.
    watch.post(Change::Threshold(1 << 40)).unwrap();
    silent.send_to(b"less than that", to).unwrap();
    until("the first", || watch.tally().occurred == 1);
    assert_eq!((watch.tally().posted, watch.tally().raised), (ROOM + 1, 0));
    watch.post(Change::Threshold(0)).unwrap();
    silent.send_to(b"enough", to).unwrap();
    until("the second", || watch.tally().raised == 1);
    assert_eq!(watch.tally().posted, ROOM + 2);
    assert_eq!(watch.poll(now()).unwrap().count, 2);
}

#[test]
fn an_interval_that_is_posted_is_kept_by_the_timer() {
    for way in [ChangePath::Posted, ChangePath::SystemCall] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = socket.local_addr().unwrap();
        let Some(mut watch) = started(data_at(to), way) else { return };
        watch.post(Change::Interval(Duration::from_millis(150))).unwrap();
        for _ in 0..6 {
            socket.send_to(b"all at once", to).unwrap();
        }
        let (mut counts, began) = (Vec::new(), std::time::Instant::now());
        while counts.iter().sum::<u64>() < 6 {
            assert!(began.elapsed() < StdDuration::from_secs(20), "{counts:?}");
            watch.wait(Duration::from_millis(10)).unwrap();
            counts.extend(std::iter::from_fn(|| watch.poll(now())).map(|event| event.count));
        }
        assert!(counts.len() > 1 && counts[0] == 1, "{counts:?}");
        // Longer intervals also take effect by the timer, though nothing occurs.
        watch.post(Change::Interval(Duration::from_secs(3600))).unwrap();
        taken(&watch);
        assert_eq!(settings(&watch).1, Duration::from_secs(3600).0, "{way}");
    }
}

/// Prints the cost of a change by each path, in one run: `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn what_a_posted_change_costs() {
    const ROUNDS: usize = 2000;
    const BATCH: u64 = 128;
    let Some(mut watch) = start(Service::Sched, ChangePath::Posted) else { return };
    let (mut posted, mut whole, mut called) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let job = |at: u64| (FIRST + at as u32, Duration(at + 1));
        let began = now();
        for at in 0..BATCH {
            let (thread, within) = job(at);
            // Read at thread switches meanwhile, or by the tick.
            watch.post(Change::Job { thread, within }).unwrap();
        }
        posted.push(now().since(began).0 as f64 / BATCH as f64);
        watch.tick().unwrap();
        whole.push(now().since(began).0 as f64 / BATCH as f64);
        let began = now();
        for at in 0..BATCH {
            let (thread, within) = job(at);
            watch.add_job(thread, within).unwrap();
        }
        called.push(now().since(began).0 as f64 / BATCH as f64);
    }
    let median = |all: &mut Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (posted, whole, called) = (median(&mut posted), median(&mut whole), median(&mut called));
    println!(
        "ns a change, medians of {ROUNDS} batches of {BATCH}: posted {posted:.1}, posted and done by a \
         tick {whole:.1}, map update {called:.1}; ratio {:.3}",
        posted / called
    );
    assert_eq!(watch.tally().refused, 0);
}

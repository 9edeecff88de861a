//! Handlers in the kernel: they decide, gather, are replaced, and fail without harm. Nothing stays
//! when a service ends.

mod machine;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use machine::{permitted, programs};
use selvedge_comm_services::ProgramError;
use selvedge_comm_services::{
    Event, Service, ServiceError, Target, Watch, WatchOptions, now, program,
};
use selvedge_tests_wait::until_some;
use selvedge_units::{Duration, Instant};

/// A socket and its address.
struct Loop {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Loop {
    fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = socket.local_addr().unwrap();
        Self { socket, to }
    }
}

fn all(watch: &mut Watch) -> Vec<Event> {
    std::iter::from_fn(|| watch.poll(now())).collect()
}

/// Sends datagrams that are never read, so that the owner of the socket stays unknown.
fn strike(sender: &UdpSocket, to: SocketAddr, times: usize) {
    for _ in 0..times {
        sender.send_to(&[0; 10], to).unwrap();
    }
}

fn unread(source: &str, more: impl FnOnce(&mut WatchOptions)) -> (Watch, UdpSocket, Loop) {
    let one = Loop::new();
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut wish = WatchOptions::new(Service::Socket);
    wish.kinds = vec!["data".to_owned()];
    wish.port = Some(one.to.port());
    if !source.is_empty() {
        wish.handler = Some(program("test", source, Service::Socket).unwrap());
    }
    more(&mut wish);
    (Watch::start(wish).unwrap(), sender, one)
}

#[test]
fn a_handler_gathers_and_raises_now_and_then() {
    if !permitted() {
        return;
    }
    let source = "{
        static long seen;
        static long bytes;
        seen += input.count;
        bytes += input.value;
        if (seen < 10) return 0;
        output.data[0] = seen;
        output.data[1] = bytes;
        output.value = 77;
        output.deadline = 60000000000;
        output.prefer = 1;
        output.pid = 4711;
        seen = 0;
        bytes = 0;
        return 1;
    }";
    let (mut watch, sender, one) = unread(source, |_| {});
    strike(&sender, one.to, 35);
    let events = all(&mut watch);
    assert_eq!(events.len(), 3, "{:?}", watch.tally());
    for event in &events {
        assert_eq!((event.data[0], event.value, event.pid), (10, 77, 4711));
        assert!(event.prefer && event.data[1] > 0);
        assert_eq!(event.deadline, Some(event.at + Duration::from_secs(60)));
    }
    assert_eq!(watch.tally().occurred, 35);
    assert_eq!(watch.tally().raised, 3);
}

#[test]
fn without_a_handler_threshold_and_interval_gather() {
    if !permitted() {
        return;
    }
    // Longer than the machine has been up; the first event must not wait for it.
    let years = Duration::from_secs(100 * 365 * 86_400);
    let (mut watch, sender, one) = unread("", |wish| wish.interval = years);
    strike(&sender, one.to, 20);
    assert_eq!(all(&mut watch).len(), 1, "one in a hundred years");
    let (mut watch, sender, one) = unread("", |wish| wish.threshold = u64::MAX);
    strike(&sender, one.to, 20);
    assert_eq!(all(&mut watch).len(), 0);
    assert_eq!(watch.tally().occurred, 20);
}

#[test]
fn handlers_are_replaced_while_occurrences_go_on() {
    if !permitted() {
        return;
    }
    let (mut watch, sender, one) = unread("{ output.value = 1; return 1; }", |_| {});
    let to = one.to;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    one.socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let striker = std::thread::spawn(move || {
        let mut sent = 0_u64;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            strike(&sender, to, 1);
            // The queue must not fill, or the socket does not become ready.
            one.socket.recv(&mut [0; 16]).unwrap();
            sent += 1;
        }
        sent
    });
    for value in 2..40 {
        let source = format!("{{ static long own = {value}; output.value = own; return 1; }}");
        watch.set_handler(program("next", &source, Service::Socket).unwrap()).unwrap();
        // From here on only the new handler raises events.
        until_some("the new handler", || {
            all(&mut watch);
            let at = now();
            watch.wait(Duration::from_millis(5)).unwrap();
            let events = all(&mut watch);
            assert!(events.iter().all(|event| event.at < at || event.value == value));
            watch.tick().unwrap();
            all(&mut watch).iter().any(|event| event.value == value).then_some(())
        });
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    striker.join().unwrap();
    assert_eq!(watch.tally().faults, 0);
}

#[test]
fn a_handler_that_goes_wrong_harms_nobody() {
    if !permitted() {
        return;
    }
    let (mut watch, sender, one) = unread("{ for (;;) { } }", |_| {});
    strike(&sender, one.to, 5);
    assert_eq!(all(&mut watch).len(), 0);
    assert_eq!(watch.tally().faults, 5);
    let fault = watch.fault().unwrap();
    assert!(fault.starts_with("test:1:3: ") && fault.contains("budget"), "{fault}");
    let source = "{ long a[4]; a[input.value] = 1; return 1; }";
    watch.set_handler(program("index", source, Service::Socket).unwrap()).unwrap();
    strike(&sender, one.to, 1);
    let fault = watch.fault().unwrap();
    assert!(fault.starts_with("index:1:") && fault.contains("bounds"), "{fault}");
    // A handler with doubles is refused, and the old one stays.
    let doubles = program("doubles", "{ double a = 1.5; return a > 1.0; }", Service::Socket);
    let error = watch.set_handler(doubles.unwrap()).unwrap_err();
    assert!(matches!(error, ServiceError::Handler(_)), "{error}");
    strike(&sender, one.to, 1);
    assert_eq!(watch.tally().faults, 7);
}

#[test]
fn deadlines_order_and_expire() {
    if !permitted() {
        return;
    }
    // Later occurrences have earlier deadlines.
    let source = "{ static long left = 100000000000; left -= 1000000000; output.deadline = left; return 1; }";
    let (mut watch, sender, one) = unread(source, |_| {});
    strike(&sender, one.to, 10);
    let deadlines: Vec<_> = all(&mut watch).iter().map(|event| event.deadline.unwrap()).collect();
    assert_eq!(deadlines.len(), 10);
    assert!(deadlines.is_sorted(), "{deadlines:?}");
    strike(&sender, one.to, 3);
    let late = Instant(now().0 + 3_600_000_000_000);
    assert_eq!(watch.poll(late), None);
    assert_eq!(watch.dropped_counts(), (3, 0));
}

#[test]
fn a_signal_carries_the_value() {
    if !permitted() {
        return;
    }
    let (mut watch, sender, one) = unread("{ output.value = 4242; return 1; }", |_| {});
    let signal = libc::SIGRTMIN() + 5;
    // Another process, which receives the signals.
    let child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let mut child = machine::Running(child);
    watch.set_signal(Some(Target::new(child.0.id(), signal).unwrap()));
    strike(&sender, one.to, 1);
    assert_eq!(all(&mut watch).len(), 1);
    let status = child.end("the end by a signal");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal));
    // The process is gone: signals are lost, and counted.
    strike(&sender, one.to, 1);
    assert_eq!(all(&mut watch).len(), 1);
    assert_eq!(watch.dropped_counts(), (0, 1));
}

#[test]
fn unknown_kinds_and_places_are_told() {
    let mut wish = WatchOptions::new(Service::Net);
    wish.kinds = vec!["dorp".to_owned()];
    let error = Watch::start(wish).unwrap_err();
    assert!(
        matches!(
            error,
            ServiceError::PidNamespace | ServiceError::Program(ProgramError::NoTypes(_))
        ) || error.to_string()
            == "the service net has no events \"dorp\"; it has drop, queue, retransmit",
        "{error}"
    );
    let mut wish = WatchOptions::new(Service::Memory);
    wish.cgroup = Some("/tmp".into());
    let error = Watch::start(wish).unwrap_err();
    assert!(
        matches!(
            error,
            ServiceError::PidNamespace
                | ServiceError::Program(ProgramError::NoTypes(_))
                | ServiceError::Cgroup { .. }
        ),
        "{error}"
    );
}

/// The programs of this name end with their owner, though not at once.
#[test]
fn nothing_stays_in_the_kernel() {
    if !permitted() {
        return;
    }
    let before = programs("failed");
    let mut wish = WatchOptions::new(Service::Socket);
    wish.kinds = vec!["error".to_owned()];
    let watch = Watch::start(wish).unwrap();
    let during = programs("failed");
    let own: Vec<_> = during.iter().filter(|id| !before.contains(id)).copied().collect();
    assert!(!own.is_empty());
    drop(watch);
    until_some("the programs' end", || {
        programs("failed").iter().all(|id| !own.contains(id)).then_some(())
    });
}

#[test]
fn a_killed_owner_leaves_nothing() {
    if !permitted() {
        return;
    }
    if std::env::var_os("SELVEDGE_SERVICES_OWNER").is_some() {
        // The child: it loads, reports that, and waits to be killed.
        let source = "{ return 0; }";
        let mut wish = WatchOptions::new(Service::Memory);
        wish.kinds = vec!["victim".to_owned()];
        wish.handler = Some(program("own", source, Service::Memory).unwrap());
        let _watch = Watch::start(wish).unwrap();
        until_some("being killed", || None::<()>);
        return;
    }
    let before = programs("victim");
    let owner = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_owner_leaves_nothing", "--nocapture"])
        .env("SELVEDGE_SERVICES_OWNER", "1")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut owner = machine::Running(owner);
    let own = until_some("the owner's programs", || {
        let new: Vec<_> =
            programs("victim").into_iter().filter(|id| !before.contains(id)).collect();
        (!new.is_empty()).then_some(new)
    });
    owner.0.kill().unwrap();
    owner.end("the owner's end");
    until_some("the programs' end", || {
        programs("victim").iter().all(|id| !own.contains(id)).then_some(())
    });
}

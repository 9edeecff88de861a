//! A device that has the qdisc: unmodified programs, filters, deadlines, pacing, and faults, by the command
//! as a user runs it. These tests need a kernel that has BPF qdiscs, and root, and a loopback of their own:
//! `tools/kernel.sh test` boots one and runs them.

#![allow(clippy::disallowed_methods, reason = "tests look at real clocks and devices")]

mod faults;
mod machine;
mod node;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration as StdDuration, Instant};

use machine::{Loopback, contract, qdiscs, received, receiver, run, selvedge, setup, stream};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};
use selvedge_data_sched::{Discipline, Tree, TreeNode};
use selvedge_data_stream::{Contract, Late, Window};
use selvedge_place_kernel::{Attached, Filter, OpenError, Setup, StreamSetup};
use selvedge_units::{Bitrate, Duration};

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn unmodified_programs_get_streams_by_port_and_by_cgroup() {
    let cgroup = "/sys/fs/cgroup/media";
    std::fs::create_dir_all(format!("{cgroup}/inner")).unwrap();
    let (socket, at) = receiver("127.0.0.1:0");
    let (other, other_at) = receiver("127.0.0.1:0");
    let (six, six_at) = receiver("[::1]:0");
    let by_cgroup: Filter = format!("cgroup={cgroup}").parse().unwrap();
    let lo = Loopback::with(&setup(vec![
        stream("port", contract(100), &[Filter::Port(at.port())]),
        stream("six", contract(100), &[Filter::Port(six_at.port())]),
        stream("group", contract(100), &[by_cgroup]),
        stream("from", contract(100), &[Filter::SourcePort(40_001)]),
    ]));
    // util-linux's logger sends a syslog datagram, and knows nothing of Selvedge.
    let log = |place: &str, at: SocketAddr| {
        let (host, port) = (at.ip(), at.port());
        let line = format!("{place} exec bsdlogger -d -n {host} -P {port} --rfc3164 hello");
        let done = run("dash", &["-c", &line]);
        assert!(done.status.success(), "{line}: {done:?}");
    };
    let hello = |socket: &UdpSocket| {
        let got = String::from_utf8(received(socket)).unwrap();
        assert!(got.ends_with("hello"), "{got}");
    };
    log("", at);
    hello(&socket);
    log("", six_at);
    hello(&six);
    // In a cgroup below the one that has the stream, to a port that has none.
    log(&format!("echo $$ > {cgroup}/inner/cgroup.procs;"), other_at);
    hello(&other);
    UdpSocket::bind("127.0.0.1:40001").unwrap().send_to(b"from", other_at).unwrap();
    assert_eq!(received(&other), b"from");
    for name in ["port", "six", "group", "from"] {
        let stream = lo.stream(name);
        assert_eq!((stream.counters.sent, stream.waiting), (1, 0), "{name}: {stream:?}");
        assert!(stream.bytes.0 > 40, "{name}");
    }
    lo.give_back();
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn filters_are_bound_while_it_runs() {
    let (socket, at) = receiver("127.0.0.1:0");
    let lo = Loopback::with(&setup(vec![
        stream("a", contract(100), &[]),
        stream("b", contract(100), &[Filter::Port(9)]),
    ]));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let cookie = sockopt::socket_cookie(&sender).unwrap();
    sender.send_to(b"1", at).unwrap();
    received(&socket);
    assert_eq!(lo.stream("a").counters.sent, 0);
    let qdisc = Attached::open("lo").unwrap();
    qdisc.bind("a", Filter::Cookie(cookie)).unwrap();
    sender.send_to(b"2", at).unwrap();
    received(&socket);
    assert_eq!(lo.stream("a").counters.sent, 1);
    assert_eq!(lo.stream("a").filters, [Filter::Cookie(cookie)]);
    assert!(matches!(qdisc.bind("b", Filter::Cookie(cookie)), Err(OpenError::Taken { .. })));
    assert!(matches!(qdisc.bind("c", Filter::Mark(1)), Err(OpenError::NoStream { .. })));
    qdisc.unbind(Filter::Cookie(cookie)).unwrap();
    assert!(matches!(qdisc.unbind(Filter::Cookie(cookie)), Err(OpenError::NoFilter(_))));
    sender.send_to(b"3", at).unwrap();
    received(&socket);
    assert_eq!(lo.stream("a").counters.sent, 1);
    lo.give_back();
}

/// Enables times on this clock with each packet (rustix does not know `CLOCK_TAI`).
fn state_times(socket: &UdpSocket, clock: libc::clockid_t) {
    let option = libc::sock_txtime { clockid: clock, flags: 0 };
    // SAFETY: the option is read for its length only, and outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TXTIME,
            (&raw const option).cast(),
            size_of_val(&option) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Sends with a time of that clock from now.
fn send_at(
    socket: &UdpSocket,
    to: SocketAddr,
    payload: &[u8],
    clock: libc::clockid_t,
    from_now: i64,
) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec, which the call writes.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut now) }, 0);
    let at = (now.tv_sec * 1_000_000_000 + now.tv_nsec + from_now) as u64;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(TxTime(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::TxTime(at)));
    let payload = [IoSlice::new(payload)];
    rustix::net::sendmsg_addr(socket, &to, &payload, &mut ancillary, SendFlags::empty()).unwrap();
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn a_stated_time_is_the_deadline() {
    let (socket, at) = receiver("127.0.0.1:0");
    for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_TAI] {
        let lo =
            Loopback::with(&setup(vec![stream("a", contract(100), &[Filter::Port(at.port())])]));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        state_times(&sender, clock);
        // A deadline that has passed: dropped, counted, against the window of 1/2.
        send_at(&sender, at, b"late", clock, -1_000_000_000);
        let counters = lo.stream("a").counters;
        assert_eq!(
            (counters.missed, counters.dropped, counters.violations),
            (1, 1, 0),
            "{clock:?}"
        );
        send_at(&sender, at, b"late", clock, -1_000_000_000);
        assert_eq!(lo.stream("a").counters.violations, 1, "{clock:?}");
        // A deadline in an hour: the packet is sent.
        send_at(&sender, at, b"early", clock, 3_600_000_000_000);
        assert_eq!(received(&socket), b"early");
        assert_eq!(lo.stream("a").counters.sent, 1);
        lo.give_back();
    }
}

/// A link that is busy for a second with its first packet, and the packets after it.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn the_earlier_deadline_goes_first_and_the_queue_has_an_end() {
    let (socket, at) = receiver("127.0.0.1:0");
    let sender = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let (far, near, first) = (sender(), sender(), sender());
    let source = |socket: &UdpSocket| Filter::SourcePort(socket.local_addr().unwrap().port());
    let keep = |period| Contract { late: Late::Send, ..contract(period) };
    let setup = Setup {
        rate: Some(Bitrate(8 * 1028)),
        burst: Duration::ZERO,
        ..setup(vec![
            StreamSetup { limit: 2, ..stream("far", keep(900_000), &[source(&far)]) },
            stream("near", keep(800_000), &[source(&near)]),
            stream("first", keep(800_000), &[source(&first)]),
        ])
    };
    // On a machine that stalls for half a second in between, it tries again.
    let done = (0..20).any(|_| {
        let lo = Loopback::with(&setup);
        first.send_to(&[0; 1000], at).unwrap();
        let began = Instant::now();
        for packet in [b"far 1", b"far 2", b"far 3"] {
            // The third finds the queue full, which may be returned to the sender.
            let _ = far.send_to(packet, at);
        }
        near.send_to(b"near", at).unwrap();
        let busy = began.elapsed() < StdDuration::from_millis(500);
        assert_eq!(received(&socket).len(), 1000);
        let order: Vec<Vec<u8>> = (0..3).map(|_| received(&socket)).collect();
        if busy {
            assert_eq!(order, [b"near".to_vec(), b"far 1".to_vec(), b"far 2".to_vec()]);
            assert_eq!(lo.stream("far").overflow, 1);
        }
        lo.give_back();
        busy
    });
    assert!(done);
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn the_watchdog_paces_and_holds() {
    let (socket, at) = receiver("127.0.0.1:0");
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let keep = Contract { late: Late::Send, ..contract(1000) };
    let streams = vec![stream("a", keep, &[Filter::Port(at.port())])];
    // 1250 bytes of IP at 1 Mbit/s: 10 ms each, the first at once.
    let paced = Setup { rate: Some(Bitrate(1_000_000)), burst: Duration::ZERO, ..setup(streams) };
    // Idle time is not caught up on.
    for catch_up in [Duration::ZERO, Duration::from_secs(5)] {
        let lo = Loopback::with(&Setup { catch_up, ..paced.clone() });
        let began = Instant::now();
        for _ in 0..20 {
            sender.send_to(&[0; 1222], at).unwrap();
        }
        for _ in 0..20 {
            received(&socket);
        }
        assert!(began.elapsed() >= StdDuration::from_millis(190), "{:?}", began.elapsed());
        lo.give_back();
    }
    // A stream that may not be early: its frames come a period apart.
    let steady = Contract { work_conserving: false, late: Late::Send, ..contract(30) };
    for discipline in Discipline::ALL {
        let streams = vec![stream("a", steady, &[Filter::Port(at.port())])];
        let lo = Loopback::with(&Setup { discipline, ..setup(streams) });
        let began = Instant::now();
        for _ in 0..5 {
            sender.send_to(b"x", at).unwrap();
        }
        for _ in 0..5 {
            received(&socket);
        }
        assert!(began.elapsed() >= StdDuration::from_millis(120), "{:?}", began.elapsed());
        assert_eq!(lo.stream("a").counters.sent, 5, "{discipline}");
        lo.give_back();
    }
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn node_files_and_traces_are_taken_as_they_are() {
    let before = qdiscs();
    let (code, out, err) = selvedge(&["attach", "lo", "--node", "/scenarios/studio.toml"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("3 Mbit/s: 5 streams"), "{out}");
    let report = Attached::open("lo").unwrap().report().unwrap();
    assert_eq!(report.discipline, Discipline::Dwcs);
    let (first, speech) = (&report.streams[0], &report.streams[4]);
    assert_eq!(
        (first.name.as_str(), first.filters.as_slice()),
        ("lobby", &[Filter::Port(5004)][..])
    );
    assert_eq!(
        (first.window(), report.rate),
        (Window { lose: 1, of: 5 }, Some(Bitrate(3_000_000)))
    );
    assert_eq!(speech.contract.delay, Some(Duration::from_millis(200)));
    assert_eq!(selvedge(&["detach", "lo"]).0, 0);
    assert_eq!(qdiscs(), before);
    for name in ["16-dwcs-send-late-backlogged", "105-hwfq-paced-backlogged"] {
        let vector = format!("/vectors/{name}");
        let output =
            run("selvedge", &["trace", "replay", &format!("{vector}.json"), "--engine", "kernel"]);
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(lines, std::fs::read_to_string(format!("{vector}.jsonl")).unwrap());
    }
}

/// The output of a link that is busy while two streams of the weights 3 and 1 fill their queues.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn shares_are_by_weight() {
    const QUEUED: usize = 30;
    const COUNTED: usize = 32;
    let (socket, at) = receiver("127.0.0.1:0");
    let senders = [3, 1].map(|weight| (weight, UdpSocket::bind("127.0.0.1:0").unwrap()));
    let keep = Contract { late: Late::Send, ..contract(1000) };
    let streams = senders.iter().map(|(weight, sender)| {
        let source = Filter::SourcePort(sender.local_addr().unwrap().port());
        let contract = Contract { weight: *weight, parent: 2, ..keep };
        stream(&weight.to_string(), contract, &[source])
    });
    let node = |parent, weight| TreeNode { parent, weight };
    // 1028 bytes of IP at 1 Mbit/s: 8.2 ms each.
    let setup = Setup {
        rate: Some(Bitrate(1_000_000)),
        burst: Duration::ZERO,
        tree: Tree::new(vec![node(0, 1), node(1, 5)], None).unwrap(),
        ..setup(streams.collect())
    };
    for discipline in [Discipline::Wfq, Discipline::Sfq, Discipline::Drr, Discipline::Hwfq] {
        let setup = Setup { discipline, ..setup.clone() };
        // On a machine that stalls in between, it tries again.
        let done = (0..20).any(|_| {
            let lo = Loopback::with(&setup);
            assert_eq!(lo.report().discipline, discipline);
            let began = Instant::now();
            for _ in 0..QUEUED {
                for (weight, sender) in &senders {
                    sender.send_to(&[*weight as u8; 1000], at).unwrap();
                }
            }
            let busy = began.elapsed() < StdDuration::from_millis(40);
            let order: Vec<u8> = (0..2 * QUEUED).map(|_| received(&socket)[0]).collect();
            let heavy = order[..COUNTED].iter().filter(|&&weight| weight == 3).count();
            assert!(!busy || heavy.abs_diff(24) <= 2, "{discipline}: {order:?}");
            lo.give_back();
            busy
        });
        assert!(done, "{discipline}");
    }
}

//! A device that has the qdisc: unmodified programs, filters, deadlines, pacing, and all that can go
//! wrong, by the command as a user has it. These need a kernel that has BPF qdiscs, and root, and a
//! loopback of their own: `tools/kernel.sh test` boots one and runs them.

#![allow(clippy::disallowed_methods, reason = "tests look at real clocks and devices")]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};
use selvedge_kernel::{Attached, Filter, OpenError, Report, Setup, StreamReport, StreamSetup};
use selvedge_stream::{Contract, Late, Window};
use selvedge_units::{Bitrate, Span};

const PATIENCE: Duration = Duration::from_secs(10);

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The command; its exit status, and what it printed to either side.
fn selvedge(arguments: &[&str]) -> (i32, String, String) {
    let output = run("selvedge", &[&["kernel"], arguments].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The command without any right.
fn as_nobody(what: &str) -> Output {
    let mut command = Command::new("selvedge");
    command.args(["kernel", what, "lo"]).uid(65_534).gid(65_534).stdin(Stdio::null());
    command.output().unwrap()
}

fn tc(arguments: &[&str]) -> String {
    let output = run("tc", arguments);
    assert!(output.status.success(), "tc {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn qdiscs() -> String {
    tc(&["qdisc", "show"])
}

/// The loopback with the qdisc; given back at the end, also of a test that fails.
struct Loopback {
    before: String,
}

impl Loopback {
    fn with(setup: &Setup) -> Self {
        let before = qdiscs();
        selvedge_kernel::attach("lo", setup).unwrap();
        Self { before }
    }

    fn report(&self) -> Report {
        Attached::open("lo").unwrap().report().unwrap()
    }

    fn stream(&self, name: &str) -> StreamReport {
        self.report().streams.into_iter().find(|stream| stream.name == name).unwrap()
    }

    fn give_back(self) {
        selvedge_kernel::detach("lo").unwrap();
        assert_eq!(qdiscs(), self.before);
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let _ = selvedge_kernel::detach("lo");
    }
}

fn contract(period_ms: u64) -> Contract {
    Contract::new(Span::from_millis(period_ms), Window { lose: 1, of: 2 })
}

fn stream(name: &str, contract: Contract, filters: &[Filter]) -> StreamSetup {
    StreamSetup { filters: filters.to_vec(), ..StreamSetup::new(name, contract) }
}

fn setup(streams: Vec<StreamSetup>) -> Setup {
    Setup { streams, ..Setup::default() }
}

fn receiver(address: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let at = socket.local_addr().unwrap();
    (socket, at)
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut packet = [0; 2000];
    let got = socket.recv(&mut packet).unwrap();
    packet[..got].to_vec()
}

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
    // util-linux's logger sends a syslog datagram, and knows nothing of us.
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

/// Asks for times on this clock with each packet (rustix does not know `CLOCK_TAI`).
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
        // One in an hour: it goes.
        send_at(&sender, at, b"early", clock, 3_600_000_000_000);
        assert_eq!(received(&socket), b"early");
        assert_eq!(lo.stream("a").counters.sent, 1);
        lo.give_back();
    }
}

/// A link that is busy for a second with its first packet, and what comes out after it.
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
        burst: Span::ZERO,
        ..setup(vec![
            StreamSetup { limit: 2, ..stream("far", keep(900_000), &[source(&far)]) },
            stream("near", keep(800_000), &[source(&near)]),
            stream("first", keep(800_000), &[source(&first)]),
        ])
    };
    // On a machine that stands still for half a second in between, it tries again.
    let done = (0..20).any(|_| {
        let lo = Loopback::with(&setup);
        first.send_to(&[0; 1000], at).unwrap();
        let began = Instant::now();
        for packet in [b"far 1", b"far 2", b"far 3"] {
            // The third finds the queue full, which the sender may be told.
            let _ = far.send_to(packet, at);
        }
        near.send_to(b"near", at).unwrap();
        let busy = began.elapsed() < Duration::from_millis(500);
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
    let paced = Setup { rate: Some(Bitrate(1_000_000)), burst: Span::ZERO, ..setup(streams) };
    let lo = Loopback::with(&paced);
    let began = Instant::now();
    for _ in 0..20 {
        sender.send_to(&[0; 1222], at).unwrap();
    }
    for _ in 0..20 {
        received(&socket);
    }
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
    lo.give_back();
    // A stream that may not be early: its frames come a period apart.
    let steady = Contract { work_conserving: false, late: Late::Send, ..contract(30) };
    let lo = Loopback::with(&setup(vec![stream("a", steady, &[Filter::Port(at.port())])]));
    let began = Instant::now();
    for _ in 0..5 {
        sender.send_to(b"x", at).unwrap();
    }
    for _ in 0..5 {
        received(&socket);
    }
    assert!(began.elapsed() >= Duration::from_millis(120), "{:?}", began.elapsed());
    assert_eq!(lo.stream("a").counters.sent, 5);
    lo.give_back();
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn what_cannot_be_says_why_and_changes_nothing() {
    let before = qdiscs();
    let fails = |arguments: &[&str], status: i32, words: &[&str]| {
        let (code, out, err) = selvedge(arguments);
        assert_eq!((code, out.as_str()), (status, ""), "{arguments:?}: {err}");
        for word in words {
            assert!(err.contains(word), "{arguments:?}: {err}");
        }
    };
    fails(&["attach", "nodev0"], 2, &["no device \"nodev0\"", "lo"]);
    fails(&["detach", "lo"], 2, &["does not have Selvedge's qdisc", "noqueue"]);
    fails(&["show", "lo"], 2, &["does not have Selvedge's qdisc"]);
    fails(
        &["attach", "lo", "--stream", "a,port=1", "--stream", "b,port=1"],
        2,
        &["port=1", "\"b\""],
    );
    fails(&["attach", "lo", "--discipline", "wfq"], 2, &["\"wfq\"", "dwcs"]);
    assert_eq!(qdiscs(), before);
    // Somebody's own qdisc is not replaced.
    tc(&["qdisc", "add", "dev", "lo", "root", "fq_codel", "limit", "77"]);
    let own = qdiscs();
    fails(&["attach", "lo"], 2, &["fq_codel", "tc qdisc del dev lo root"]);
    assert_eq!(qdiscs(), own);
    tc(&["qdisc", "del", "dev", "lo", "root"]);
    // Twice.
    assert_eq!(selvedge(&["attach", "lo", "--stream", "a,port=5004"]).0, 0);
    let once = qdiscs();
    fails(&["attach", "lo"], 2, &["already", "selvedge kernel detach lo"]);
    assert_eq!(qdiscs(), once);
    // Without the right: neither look nor touch.
    for what in ["attach", "detach", "show"] {
        let refused = as_nobody(what);
        let err = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && !err.is_empty(), "{what}: {err}");
        if what != "attach" {
            assert!(err.contains("right") || err.contains("ermission"), "{what}: {err}");
        }
    }
    assert_eq!(qdiscs(), once);
    let (code, out, err) = selvedge(&["show", "lo", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("\"name\":\"a\"") && out.contains("\"port=5004\""), "{out}");
    assert_eq!(selvedge(&["detach", "lo"]), (0, String::new(), String::new()));
    assert_eq!(qdiscs(), before);
    let refused = as_nobody("attach");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("right"), "{refused:?}");
    assert_eq!(qdiscs(), before);
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

/// Frames that are no packets, cut short or lying about their lengths, straight to the device: they are
/// the rest's, and harm nobody.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn garbage_is_sent_on_and_harms_nobody() {
    let (socket, at) = receiver("127.0.0.1:0");
    let lo = Loopback::with(&setup(vec![stream("a", contract(100), &[Filter::Port(at.port())])]));
    // SAFETY: no pointers.
    let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(raw >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just made, and nobody else's.
    let raw = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: plain data, for which all bytes zero are a valid value; the name is a C string.
    let (mut to, lo_index): (libc::sockaddr_ll, u32) =
        unsafe { (std::mem::zeroed(), libc::if_nametoindex(c"lo".as_ptr())) };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = lo_index as i32;
    let mut random = selvedge_sched::trace::generate::Random::new(7);
    let mut sent = 0;
    for n in 0..3000_u64 {
        let len = random.within(14, 80) as usize;
        let mut frame: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        frame[..12].fill(0);
        let kind = random.pick(&[0x0800_u16, 0x86dd, 0x0806, 0x88a8, 0x1234]);
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        // Every other one claims to be UDP.
        for (place, value) in [(14, 0x45), (23, 17), (20, 17)] {
            if n % 2 == 0 && place < len {
                frame[place] = value;
            }
        }
        to.sll_protocol = kind.to_be();
        // SAFETY: the kernel reads the frame and an address of that length, which live through it.
        let done = unsafe {
            libc::sendto(
                raw.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        sent += u64::from(done == len as isize);
    }
    assert!(sent > 2000, "{sent}");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"through", at).unwrap();
    assert_eq!(received(&socket), b"through");
    let report = lo.report();
    assert_eq!(report.streams[0].counters.sent, 1, "{report:?}");
    assert!(report.streams[1].counters.sent >= sent, "{report:?}");
    assert_eq!((report.unknown, report.streams[1].waiting), (0, 0));
    lo.give_back();
}

/// The command is killed at any moment of attaching; then either it is attached and works, or it
/// is not; and the next command finds everything in order.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn a_loader_that_is_killed_leaves_a_device_that_works() {
    let before = qdiscs();
    let (socket, at) = receiver("127.0.0.1:0");
    let streams = format!("a,period=100ms,port={}", at.port());
    let works = || {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"through", at).unwrap();
        assert_eq!(received(&socket), b"through");
    };
    let (mut attached, mut not) = (0, 0);
    for step in 0..12 {
        let mut loader = Command::new("selvedge")
            .args(["kernel", "attach", "lo", "--stream", &streams])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Up to what attaching takes, and at the end beyond it.
        let until = Instant::now() + Duration::from_millis(60 * step);
        while Instant::now() < until && loader.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        if step == 11 {
            loader.wait().unwrap();
        }
        let _ = loader.kill();
        loader.wait().unwrap();
        works();
        if qdiscs() == before {
            not += 1;
        } else {
            attached += 1;
            works();
            let report = Attached::open("lo").unwrap().report().unwrap();
            assert!(report.streams[0].counters.sent >= 1, "{report:?}");
            selvedge_kernel::detach("lo").unwrap();
        }
        assert_eq!(qdiscs(), before);
        works();
    }
    assert!(attached > 0 && not > 0, "{attached} attached, {not} not");
    // Whatever they left is swept up by the next one.
    let lo = Loopback::with(&setup(vec![]));
    lo.give_back();
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

/// The same qdisc on a second device would take the first one's packets; and a device may go.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn a_qdisc_is_of_one_device_which_may_vanish() {
    if !std::path::Path::new("/sys/class/net/dummy0").exists() {
        println!("SKIPPED: there is no second device: this kernel came without the module dummy");
        return;
    }
    let (socket, at) = receiver("127.0.0.1:0");
    selvedge_kernel::attach("lo", &setup(vec![])).unwrap();
    let second = run("tc", &["qdisc", "add", "dev", "dummy0", "root", "selvedge0"]);
    assert!(!second.status.success(), "{second:?}");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"through", at).unwrap();
    assert_eq!(received(&socket), b"through");
    assert!(run("ip", &["link", "set", "dummy0", "up"]).status.success());
    selvedge_kernel::attach("dummy0", &setup(vec![])).unwrap();
    assert_eq!(Attached::open("dummy0").unwrap().report().unwrap().qdisc, "selvedge1");
    assert!(run("rmmod", &["dummy"]).status.success());
    assert!(std::path::Path::new("/sys/fs/bpf/selvedge/1").exists());
    selvedge_kernel::detach("lo").unwrap();
    // The next one sweeps up after the device that is gone.
    let lo = Loopback::with(&setup(vec![]));
    assert_eq!(lo.report().qdisc, "selvedge0");
    lo.give_back();
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

/// Somebody removes the qdisc without us: the next attach sweeps up and works.
#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn a_qdisc_removed_by_others_is_swept_up() {
    let before = qdiscs();
    selvedge_kernel::attach("lo", &setup(vec![])).unwrap();
    tc(&["qdisc", "del", "dev", "lo", "root"]);
    assert_eq!(qdiscs(), before);
    assert!(std::path::Path::new("/sys/fs/bpf/selvedge/0").exists());
    let lo = Loopback::with(&setup(vec![]));
    assert_eq!(lo.report().qdisc, "selvedge0");
    lo.give_back();
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn node_files_and_traces_are_taken_as_they_are() {
    let before = qdiscs();
    let (code, out, err) = selvedge(&["attach", "lo", "--node", "/scenarios/studio.toml"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("3 Mbit/s: 5 streams"), "{out}");
    let report = Attached::open("lo").unwrap().report().unwrap();
    let (first, speech) = (&report.streams[0], &report.streams[4]);
    assert_eq!(
        (first.name.as_str(), first.filters.as_slice()),
        ("lobby", &[Filter::Port(5004)][..])
    );
    assert_eq!((first.window, report.rate), (Window { lose: 1, of: 5 }, Some(Bitrate(3_000_000))));
    assert_eq!(speech.delay, Some(Span::from_millis(200)));
    assert_eq!(selvedge(&["detach", "lo"]).0, 0);
    assert_eq!(qdiscs(), before);
    let vector = "/vectors/16-dwcs-send-late-backlogged";
    let schedule = |engine: &str| {
        let output = run("selvedge", &["schedule", &format!("{vector}.json"), "--engine", engine]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(schedule("kernel"), std::fs::read_to_string(format!("{vector}.jsonl")).unwrap());
    let wfq = [
        "schedule",
        "/vectors/102-wfq-paced-backlogged.json",
        "--discipline",
        "wfq",
        "--engine",
        "kernel",
    ];
    let refused = run("selvedge", &wfq);
    assert!(refused.stdout.is_empty(), "{refused:?}");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("no discipline \"wfq\""),
        "{refused:?}"
    );
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn the_doctor_tries_the_qdisc_and_leaves_nothing() {
    let before = qdiscs();
    let output = run("selvedge", &["doctor", "--json"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    for placement in ["kernel packets", "kernel CPU", "inline"] {
        let works = format!("\"placement\":\"{placement}\",\"works\":true}}");
        assert!(said.contains(&works), "{placement}: {said}");
    }
    assert_eq!(qdiscs(), before);
    let nobody = Command::new("selvedge").arg("doctor").uid(65_534).gid(65_534).output().unwrap();
    let said = String::from_utf8(nobody.stdout).unwrap();
    assert!(
        nobody.status.success() && said.contains("kernel packets, BPF qdisc: run as root"),
        "{said}"
    );
}

//! What breaks: producers that are killed, a coprocessor that is killed, memory and messages that
//! make no sense. Whatever happens to one stream, another one's frames all arrive.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use selvedge_coprocessor::client::{Attachment, ClientError, Connection, Program};
use selvedge_coprocessor::message::{Envelope, PROTOCOL, Request, StreamSpec};
use selvedge_coprocessor::segment::{Doorbell, StreamSegment};
use selvedge_coprocessor::server::Local;
use selvedge_host::inlet::Inlet;
use selvedge_stream::{Descriptor, DropReason, Kind, Region, Window, Windows};
use selvedge_units::{Bitrate, Bytes};

use support::{
    add, coprocessor, ended, link, numbers, offer, receive_until, receiver, spec, until,
};

const AMPLE: Bitrate = Bitrate::from_mbps(100);

/// A well-behaved stream, which must not notice anything.
struct Witness {
    attachment: Attachment,
    inlet: Inlet,
    receiver: std::net::UdpSocket,
    sent: u32,
}

impl Witness {
    fn new(socket: &Path) -> Self {
        let attachment = Attachment::new("witness", socket.to_owned(), None).unwrap();
        let (receiver, to) = receiver();
        let (_, inlet) = add(&attachment, "witness", to);
        Self { attachment, inlet, receiver, sent: 0 }
    }

    /// One more frame crosses.
    fn proves(&mut self) {
        offer(&mut self.inlet, Kind::Still, self.sent, 10).unwrap();
        receive_until(&self.receiver, |bytes| {
            assert_eq!(numbers(bytes).0, self.sent);
            true
        });
        self.sent += 1;
    }

    /// All that ever was offered has been sent, on time.
    fn proves_unharmed(mut self) {
        self.proves();
        until("all are counted", || {
            let report = self.attachment.report();
            let stream = &report.streams[0];
            assert_eq!(stream.counters.missed, 0);
            stream.totals.on_time == u64::from(self.sent)
        });
        let statistics = self.attachment.statistics().unwrap();
        let own = statistics.streams.iter().find(|stream| stream.name == "witness").unwrap();
        assert!(own.refused.is_empty(), "{own:?}");
    }
}

/// The producer in C, built from the example.
fn producer_in_c() -> std::path::PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/producer.c");
    let program = support::socket().with_extension("producer");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    let (code, _, said) = ended(compiler.arg(&program).arg(source));
    assert_eq!(code, Some(0), "{said}");
    program
}

#[test]
fn a_producer_killed_while_it_writes_leaves_only_what_it_had_written() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let mut witness = Witness::new(&socket);
    let (receiver, to) = receiver();
    let program = producer_in_c();
    // It is started again at once, and killed again.
    for _life in 0..3 {
        let mut child = Command::new(&program)
            .args([socket.to_str().unwrap(), &to.to_string(), "40", "0", "die-while-writing"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line);
            // Whoever waited for it may have given up.
            let _ = tell.send(line);
        });
        let line = told.recv_timeout(support::SOON);
        child.kill().unwrap();
        assert_eq!(line.as_deref(), Ok("writing\n"), "what it says within a minute");
        child.wait().unwrap();
        // Every frame whose descriptor was published is sent; the half-written one is nobody's.
        let mut next = 0;
        receive_until(&receiver, |bytes| {
            assert_eq!(bytes.len(), 100);
            assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()), next);
            next += 1;
            next == 40
        });
    }
    std::fs::remove_file(program).unwrap();
    until("its stream is gone", || witness.attachment.statistics().unwrap().streams.len() == 1);
    assert!(receiver.recv(&mut [0; 200]).is_err(), "nothing follows");
    witness.proves();
    witness.proves_unharmed();
}

#[test]
fn what_waits_survives_the_coprocessor() {
    let socket = support::socket();
    // 100 bytes take 4 ms: most of the frames wait when it is killed.
    let slow = link(Bitrate(200_000));
    let more = ["--class", "fair", "--no-lock"];
    let program = Program::new(&slow, socket.clone(), &more);
    let attachment = Attachment::new("test", socket.clone(), Some(program)).unwrap();
    let (receiver, to) = receiver();
    let (place, mut inlet) = add(&attachment, "lecture", to);
    assert!(attachment.set_priority(place, 42));
    assert!(attachment.set_windows(place, Windows::Whole(Window { lose: 3, of: 8 })));
    for number in 0..100 {
        offer(&mut inlet, Kind::Still, number, 40).unwrap();
    }
    let mut came = BTreeSet::new();
    let mut told = 0;
    for round in 0..3_usize {
        let wanted = 5 + 10 * round;
        receive_until(&receiver, |bytes| {
            came.insert(numbers(bytes).0);
            came.len() >= wanted
        });
        let totals = attachment.report().streams[place].totals.clone();
        assert!(totals.sent >= told && totals.frames <= 100, "after {told}: {totals:?}");
        told = totals.sent;
        let pid = Pid::from_raw(attachment.link().pid.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        until("it is back", || attachment.returns() == round as u64 + 1);
        assert_ne!(attachment.link().pid, pid.as_raw_nonzero().get().cast_unsigned());
    }
    // Nothing is lost; what was on its way may come twice.
    let mut twice = 0;
    receive_until(&receiver, |bytes| {
        twice += usize::from(!came.insert(numbers(bytes).0));
        came.len() == 100
    });
    assert_eq!(came, (0..100).collect());
    assert!(twice <= 3 * 2, "{twice} frames came twice");
    // It goes on, with the contract as it was turned.
    offer(&mut inlet, Kind::Still, 100, 40).unwrap();
    receive_until(&receiver, |bytes| numbers(bytes).0 == 100);
    // Counters go on over its deaths, but for what was settled just before each.
    let sent = || attachment.report().streams[place].totals.sent;
    until("counters go on", || sent() > told);
    let contract = attachment.report().streams[place].contract;
    assert_eq!(contract.priority, 42);
    assert_eq!(contract.windows, Windows::Whole(Window { lose: 3, of: 8 }));
    drop(attachment);
    assert!(!socket.exists(), "a coprocessor that ends in order takes its socket away");
}

/// The attachment never asked the one that is killed what it had counted: it is in the stream's memory.
#[test]
fn what_was_counted_and_loaded_survives_the_coprocessor() {
    let socket = support::socket();
    let more = ["--class", "fair", "--no-lock"];
    let program = Program::new(&link(Bitrate(8_000_000)), socket.clone(), &more);
    let attachment = Attachment::new("test", socket.clone(), Some(program)).unwrap();
    let (receiver, to) = receiver();
    let (place, mut inlet) = add(&attachment, "lecture", to);
    let source = "{ if (input.kind == KIND_B) output.discard = 1; }";
    let load = |name: &str, extension: &str, arguments| Request::Load {
        name: name.into(),
        extension: extension.into(),
        point: "arrival".into(),
        arguments,
    };
    attachment.ask(load("thin", "code", serde_json::json!({ "source": source }))).unwrap();
    attachment.ask(load("idle", "none", serde_json::Value::Null)).unwrap();
    attachment.ask(load("gone", "none", serde_json::Value::Null)).unwrap();
    attachment.ask(Request::Unload { name: "gone".into() }).unwrap();
    let mut number = 0;
    for round in 1..=3_u64 {
        // A frame of each ten is discarded by the step; the link sees the gap.
        for n in 0..10 {
            let kind = if n == 5 { Kind::Bidirectional } else { Kind::Still };
            offer(&mut inlet, kind, number, 40).unwrap();
            number += 1;
        }
        let mut came = 0;
        receive_until(&receiver, |_| {
            came += 1;
            came == 9
        });
        // Another asks whether all is settled: the attachment was told nothing.
        let mut other = Connection::open(&socket).unwrap();
        until("all is settled", || other.statistics().unwrap().streams[0].sent == 9);
        let pid = Pid::from_raw(attachment.link().pid.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        until("it is back", || attachment.returns() == round);
        let report = attachment.report();
        let stream = &report.streams[place];
        assert_eq!((stream.totals.sent, stream.counters.sent), (9 * round, 9 * round));
        assert_eq!((stream.totals.frames, stream.totals.on_time), (10 * round, 9 * round));
        assert!(stream.sent_bytes >= Bytes(9 * round * 100), "{:?}", stream.sent_bytes);
        assert!(report.sent_bytes >= stream.sent_bytes && report.could_send >= report.sent_bytes);
        let steps = attachment.statistics().unwrap().extensions;
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["thin", "idle"]);
    }
    drop(attachment);
    let left = socket.with_extension("sock.steps");
    assert!(!left.exists(), "a coprocessor that ends in order takes its steps away");
}

#[test]
fn a_ring_that_nobody_empties_gives_frames_back() {
    let socket = support::socket();
    let (receiver, to) = receiver();
    let local = Local::start(support::options(AMPLE, socket.clone())).unwrap();
    let attachment = Attachment::new("test", socket.clone(), None).unwrap();
    let (_, mut inlet) = add(&attachment, "lecture", to);
    offer(&mut inlet, Kind::Still, 0, 10).unwrap();
    receive_until(&receiver, |bytes| numbers(bytes).0 == 0);
    drop(local);
    let taken = (1..1000).take_while(|&n| offer(&mut inlet, Kind::Still, n, 10).is_ok()).count();
    assert!((100..=128).contains(&taken), "the ring has 128 slots: {taken}");
    for n in 0..10_000 {
        assert_eq!(offer(&mut inlet, Kind::Still, n, 10), Err(DropReason::Full));
    }
    // The next coprocessor finds what waits, though it never saw it come.
    let _local = Local::start(support::options(AMPLE, socket)).unwrap();
    let mut came = 0;
    receive_until(&receiver, |bytes| {
        came += 1;
        assert_eq!(numbers(bytes).0, came);
        came as usize == taken
    });
}

/// A connection that is attached, with its doorbell.
fn attached(socket: &Path) -> (Connection, Doorbell) {
    let mut connection = Connection::open(socket).unwrap();
    let (_, fds) = connection.ask(Request::Attach { name: "stranger".into() }, &[]).unwrap();
    let [file, event] = <[OwnedFd; 2]>::try_from(fds).unwrap();
    (connection, Doorbell::open(file, event).unwrap())
}

/// Adds a stream by hand.
fn added(connection: &mut Connection, to: std::net::SocketAddr) -> (usize, usize, StreamSegment) {
    let request = Request::Add { stream: spec("stranger", to), bit: None };
    let (reply, fds) = connection.ask(request, &[]).unwrap();
    let [file] = <[OwnedFd; 1]>::try_from(fds).unwrap();
    (reply.stream.unwrap(), reply.bit.unwrap(), StreamSegment::open(file).unwrap())
}

/// Writes bytes anywhere into a segment.
fn poke(region: &dyn Region, at: usize, bytes: &[u8]) {
    for (n, &byte) in bytes.iter().enumerate() {
        assert!(at + n < region.len());
        // SAFETY: within the region.
        unsafe { region.base().add(at + n).write_volatile(byte) };
    }
}

/// The bytes of a descriptor.
fn bytes_of(it: &Descriptor) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(it.seq.to_ne_bytes());
    bytes.extend(it.packets.to_ne_bytes());
    bytes.extend([it.kind, it.flags]);
    bytes.extend(it.near.to_ne_bytes());
    bytes.extend(it.far.to_ne_bytes());
    bytes.extend(it.len.to_ne_bytes());
    for word in [it.start, it.arrival, it.deadline].into_iter().chain(it.reserved) {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

#[test]
fn descriptors_that_make_no_sense_are_refused_by_reason() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let witness = Witness::new(&socket);
    let (receiver, to) = receiver();
    let (mut connection, bell) = attached(&socket);
    let (number, bit, segment) = added(&mut connection, to);
    let region = &*segment.region;
    let pool = segment.pool_at() + 256;
    // An arrival in the future is now.
    let arrival = u64::MAX;
    let good =
        Descriptor { packets: 1, kind: 5, len: 12, start: 16, arrival, ..Descriptor::default() };
    let cases = [
        ("span", Descriptor { start: u64::MAX, ..good }),
        ("span", Descriptor { start: 1 << 40, ..good }),
        ("span", Descriptor { len: u32::MAX, ..good }),
        ("span", Descriptor { len: 0, ..good }),
        ("kind", Descriptor { kind: 200, ..good }),
        ("packets", Descriptor { packets: 0, start: 16 + 32, ..good }),
        ("packets", Descriptor { packets: 2, start: 16 + 64, ..good }),
        ("packet-size", Descriptor { flags: 2, start: 16 + 96, ..good }),
        ("deadline", Descriptor { deadline: 1, start: 16 + 128, ..good }),
        ("reserved", Descriptor { reserved: [1, 0, 0], start: 16 + 160, ..good }),
    ];
    for (n, (_, case)) in cases.iter().enumerate() {
        // A packet of 10 bytes wherever a case may point.
        poke(region, pool + 16 + 32 * n, &[10, 0]);
        poke(region, segment.ring_at() + 384 + 64 * n, &bytes_of(case));
    }
    let last = Descriptor { start: 16 + 32 * 8, ..good };
    poke(region, segment.ring_at() + 384 + 64 * cases.len(), &bytes_of(&last));
    poke(region, segment.ring_at() + 128, &(cases.len() as u32 + 1).to_ne_bytes());
    bell.ring(bit);
    // The good one behind them is sent.
    receive_until(&receiver, |bytes| bytes.len() == 10);
    // A counter from nowhere.
    poke(region, segment.ring_at() + 128, &0x8000_0000_u32.to_ne_bytes());
    bell.ring(bit);
    until("all are counted", || {
        let all = witness.attachment.statistics().unwrap();
        let stranger = all.streams.iter().find(|stream| stream.stream == number).unwrap();
        let refused = &stranger.refused;
        let count = |why: &str| refused.get(why).copied().unwrap_or(0);
        count("ring") >= 1
            && ["span", "kind", "packets", "packet-size", "deadline", "reserved"].iter().all(
                |why| count(why) == cases.iter().filter(|(case, _)| case == why).count() as u64,
            )
    });
    witness.proves_unharmed();
}

#[test]
fn segments_and_doorbells_of_strangers_are_refused() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let witness = Witness::new(&socket);
    let (_receiver, to) = receiver();
    let (mut connection, bell) = attached(&socket);
    let mut refused = |fds: &[std::os::fd::BorrowedFd<'_>], words: &str| {
        let request = Request::Add { stream: spec("bad", to), bit: None };
        match connection.ask(request, fds) {
            Err(ClientError::Refused(why)) => assert!(why.contains(words), "{why} ({words})"),
            other => panic!("{words}: {other:?}"),
        }
    };
    let memfd = |len: u64, flags| {
        let file = memfd_create("stranger", flags).unwrap();
        ftruncate(&file, len).unwrap();
        file
    };
    let unsealed = memfd(1 << 20, MemfdFlags::ALLOW_SEALING);
    refused(&[unsealed.as_fd()], "not sealed");
    refused(&[memfd(1 << 20, MemfdFlags::empty()).as_fd()], "not sealed");
    refused(&[std::io::stdin().as_fd()], "not sealed");
    refused(&[bell.file().as_fd()], "begins with other bytes");
    let make = || StreamSegment::create("stranger", 64, Bytes(4096)).unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let segment = make();
        poke(&*segment.region, at, bytes);
        segment
    };
    refused(&[changed(0, b"ELF").file().as_fd()], "begins with other bytes");
    refused(&[changed(8, &[9]).file().as_fd()], "layout version 9");
    refused(&[changed(12, &[3]).file().as_fd()], "the ring's capacity is 3");
    refused(&[changed(12, &[128]).file().as_fd()], "its length");
    refused(&[changed(23, &[255]).file().as_fd()], "the pool's capacity");
    // Laid out by nobody: the ring's header is empty.
    refused(&[make().file().as_fd()], "header is corrupt");
    let mut second = Connection::open(&socket).unwrap();
    let fds = [bell.file().as_fd(), unsealed.as_fd()];
    let ours = Request::Attach { name: "x".into() };
    assert!(matches!(second.ask(ours.clone(), &fds[..1]), Err(ClientError::Refused(_))));
    let reversed = [unsealed.as_fd(), bell.event()];
    assert!(matches!(second.ask(ours.clone(), &reversed), Err(ClientError::Refused(_))));
    assert!(matches!(connection_of(&mut second, Request::Statistics {}), Ok(())));
    witness.proves_unharmed();
}

fn connection_of(connection: &mut Connection, request: Request) -> Result<(), ClientError> {
    connection.ask(request, &[]).map(|_| ())
}

#[test]
fn messages_that_make_no_sense_are_refused_with_a_remedy() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let mut witness = Witness::new(&socket);
    let (_receiver, to) = receiver();
    let (mut connection, _bell) = attached(&socket);
    let mut said = |bytes: &[u8]| match connection.exchange(bytes, &[]) {
        Err(ClientError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(said(b"hello").contains("not JSON"));
    assert!(said(b"{\"v\":2,\"op\":\"statistics\"}").contains("protocol version 2 is not 1"));
    assert!(said(b"{\"op\":\"statistics\"}").contains("protocol version null"));
    assert!(said(b"{\"v\":1,\"op\":\"dance\"}").contains("not a request"));
    assert!(said(b"{\"v\":1,\"op\":\"attach\",\"name\":\"again\"}").contains("attached already"));
    assert!(said(&[b' '; 20_000]).contains("longer than 16 kB"));
    let good = spec("bad", to);
    for (bad, words) in [
        (support::spec("", to), "the name's length"),
        (StreamSpec { period_ns: 5, ..good.clone() }, "period_ns is 5"),
        (StreamSpec { windows: vec![], ..good.clone() }, "number of windows is 0"),
        (StreamSpec { windows: vec![(2, 1)], ..good.clone() }, "a window is 2/1"),
        (StreamSpec { ring: 1, ..good.clone() }, "ring is 1"),
        (StreamSpec { pool: 1 << 40, ..good.clone() }, "pool is"),
        (StreamSpec { pool: 1 << 30, ..good.clone() }, "a larger --memory"),
        (StreamSpec { weight: 0, ..good.clone() }, "weight is 0"),
        (StreamSpec { class: "best".into(), ..good.clone() }, "class is best"),
    ] {
        let request = Request::Add { stream: bad, bit: None };
        let text = serde_json::to_vec(&Envelope { v: PROTOCOL, request }).unwrap();
        let why = said(&text);
        assert!(why.contains(words), "{why}");
    }
    let read = Request::Read { stream: good.clone(), file: "here".into(), repeat: false, ssrc: 1 };
    for (request, words) in [
        (
            Request::Add { stream: good.clone(), bit: Some(4096) },
            "bit 4096: a doorbell has 0 to 4095",
        ),
        (read, "\"here\" is no absolute path"),
    ] {
        let why = said(&serde_json::to_vec(&Envelope { v: PROTOCOL, request }).unwrap());
        assert!(why.contains(words), "{why}");
    }
    witness.proves();
    witness.proves_unharmed();
}

#[test]
fn only_one_listens_at_a_path() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let mut second = Command::new(env!("CARGO_BIN_EXE_selvedge-coproc"));
    second.args(["--rate", "1 Mbit/s", "--class", "fair", "--no-lock", "--socket"]).arg(&socket);
    let (code, _, said) = ended(&mut second);
    assert_eq!(code, Some(1));
    assert!(said.contains("can't listen at"), "{said}");
    for (arguments, words) in [
        (&["--rate", "0 bit/s"][..], "out of range"),
        (&["--rate", "6"], "the unit is missing"),
        (&["--rate", "1 Mbit/s", "--mtu", "10 B"], "576 B to 65535 B"),
        (&["--rate", "1 Mbit/s", "--discipline", "best"], "use one of"),
        (&["--rate", "1 Mbit/s", "--class", "best"], "use fifo, deadline or fair"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_selvedge-coproc"));
        let (code, _, said) = ended(command.args(arguments));
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(said.contains(words), "{said}");
    }
    Witness::new(&socket).proves_unharmed();
}

/// One coprocessor for all cases: it must survive them all.
#[test]
fn nothing_that_a_producer_writes_or_says_harms_another() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let witness = std::cell::RefCell::new(Witness::new(&socket));
    let (_receiver, to) = receiver();
    let writes = prop::collection::vec((any::<u32>(), any::<u64>(), any::<bool>()), 1..300);
    let said = prop::collection::vec(any::<u8>(), 0..200);
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() };
    proptest!(config, |(writes in writes, said in said, cut in any::<prop::sample::Index>())| {
        let (mut connection, bell) = attached(&socket);
        let (_, bit, segment) = added(&mut connection, to);
        let region = &*segment.region;
        for &(at, word, ring) in &writes {
            // Half of them hit the headers and the first slots, where they hurt most.
            let span = if ring { 2048 } else { region.len() - 8 };
            poke(region, at as usize % span, &word.to_ne_bytes());
            if ring {
                bell.bits((word % 64) as usize).store(word, std::sync::atomic::Ordering::Release);
                bell.ring(bit);
            }
        }
        // Bytes, and a message that was cut or changed somewhere.
        let _ = connection.exchange(&said, &[]);
        let request = Request::Add { stream: spec("mutant", to), bit: Some(said.len()) };
        let mut text = serde_json::to_vec(&Envelope { v: PROTOCOL, request }).unwrap();
        let at = cut.index(text.len());
        if said.first().is_some_and(|byte| byte % 2 == 0) {
            text.truncate(at);
        } else {
            text[at] = said.first().copied().unwrap_or(b'"');
        }
        let _ = connection.exchange(&text, &[]);
        witness.borrow_mut().proves();
    });
    let witness = witness.into_inner();
    until("the mutants are gone", || witness.attachment.statistics().unwrap().streams.len() == 1);
    witness.proves_unharmed();
}

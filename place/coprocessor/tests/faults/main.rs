//! Faults: producers that are killed, a coprocessor that is killed, invalid memory and messages. Whatever
//! happens to one stream, another one's frames all arrive.

mod hostile;
#[path = "../support/mod.rs"]
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
use selvedge_data_memory::Region;
use selvedge_data_stream::rtp::Packet;
use selvedge_data_stream::{Descriptor, DropReason, Kind, Window, Windows};
use selvedge_os::control::{ControlError, encode};
use selvedge_os::seqpacket;
use selvedge_place_coprocessor::client::{Attachment, ClientError, Connection, Program};
use selvedge_place_coprocessor::message::{Reply, Request};
use selvedge_place_coprocessor::segment::{Doorbell, StreamSegment};
use selvedge_place_coprocessor::server::LocalCoprocessor;
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_units::{Bitrate, Bytes, Duration};

use support::{
    add, coprocessor, ended, enqueue, link, numbers, receive_until, receiver, spec, until,
};

const AMPLE: Bitrate = Bitrate::from_mbps(100);

/// A well-behaved stream, which must not be affected.
struct Witness {
    attachment: Attachment,
    frame_producer: FrameProducer,
    receiver: std::net::UdpSocket,
    sent: u32,
}

impl Witness {
    fn new(socket: &Path) -> Self {
        let attachment = Attachment::new("witness", socket.to_owned(), None).unwrap();
        let (receiver, to) = receiver();
        let (_, frame_producer) = add(&attachment, "witness", to);
        Self { attachment, frame_producer, receiver, sent: 0 }
    }

    /// Sends one more frame through.
    fn proves(&mut self) {
        enqueue(&mut self.frame_producer, Kind::Still, self.sent, 10).unwrap();
        receive_until(&self.receiver, |bytes| {
            assert_eq!(numbers(bytes).0, self.sent);
            true
        });
        self.sent += 1;
    }

    /// Checks that all offered frames have been sent, on time.
    fn proves_unharmed(mut self) {
        self.proves();
        until("all are counted", || {
            let report = self.attachment.report();
            let stream = &report.streams[0];
            assert_eq!(stream.counts.counters.missed, 0);
            stream.counts.totals.on_time == u64::from(self.sent)
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
            // The receiver may have given up.
            let _ = tell.send(line);
        });
        let line = told.recv_timeout(support::TIMEOUT);
        child.kill().unwrap();
        assert_eq!(line.as_deref(), Ok("writing\n"), "what it says within a minute");
        child.wait().unwrap();
        // Every frame whose descriptor was published is sent; the half-written one is lost.
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
    let (place, mut frame_producer) = add(&attachment, "lecture", to);
    assert!(attachment.set_priority(place, 42));
    assert!(attachment.set_windows(place, Windows::Whole(Window { lose: 3, of: 8 })));
    for number in 0..100 {
        enqueue(&mut frame_producer, Kind::Still, number, 40).unwrap();
    }
    let mut came = BTreeSet::new();
    let mut told = 0;
    for round in 0..3_usize {
        let wanted = 5 + 10 * round;
        receive_until(&receiver, |bytes| {
            // Each frame is one packet. Its number follows the last one of the coprocessor before.
            let number = numbers(bytes).0;
            assert_eq!(u32::from(Packet::parse(bytes).unwrap().header.sequence), number);
            came.insert(number);
            came.len() >= wanted
        });
        let totals = attachment.report().streams[place].counts.totals.clone();
        assert!(totals.sent >= told && totals.frames <= 100, "after {told}: {totals:?}");
        told = totals.sent;
        let pid = Pid::from_raw(attachment.link().pid.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        until("it is back", || attachment.returns() == round as u64 + 1);
        assert_ne!(attachment.link().pid, pid.as_raw_nonzero().get().cast_unsigned());
    }
    // Nothing is lost; packets that were on their way may arrive twice.
    let mut twice = 0;
    receive_until(&receiver, |bytes| {
        twice += usize::from(!came.insert(numbers(bytes).0));
        came.len() == 100
    });
    assert_eq!(came, (0..100).collect());
    assert!(twice <= 3 * 2, "{twice} frames came twice");
    // It continues, with the changed contract.
    enqueue(&mut frame_producer, Kind::Still, 100, 40).unwrap();
    receive_until(&receiver, |bytes| numbers(bytes).0 == 100);
    // Counters continue over its deaths, except for frames that were settled just before each.
    let sent = || attachment.report().streams[place].counts.totals.sent;
    until("counters go on", || sent() > told);
    let contract = attachment.report().streams[place].contract;
    assert_eq!(contract.priority, 42);
    assert_eq!(contract.windows, Windows::Whole(Window { lose: 3, of: 8 }));
    drop(attachment);
    assert!(!socket.exists(), "a coprocessor that ends in order takes its socket away");
}

/// The attachment never requested the counts of the killed coprocessor: they are in the stream's memory.
#[test]
fn what_was_counted_and_loaded_survives_the_coprocessor() {
    let socket = support::socket();
    let more = ["--class", "fair", "--no-lock"];
    let program = Program::new(&link(Bitrate(8_000_000)), socket.clone(), &more);
    let attachment = Attachment::new("test", socket.clone(), Some(program)).unwrap();
    let (receiver, to) = receiver();
    let (place, mut frame_producer) = add(&attachment, "lecture", to);
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
        // One frame of every ten is discarded by the extension; the link sees the gap.
        for n in 0..10 {
            let kind = if n == 5 { Kind::Bidirectional } else { Kind::Still };
            enqueue(&mut frame_producer, kind, number, 40).unwrap();
            number += 1;
        }
        let mut came = 0;
        receive_until(&receiver, |_| {
            came += 1;
            came == 9
        });
        // Another connection checks whether all frames are settled: the attachment got no report.
        let mut other = Connection::open(&socket).unwrap();
        until("all is settled", || other.statistics().unwrap().streams[0].sent == 9);
        let pid = Pid::from_raw(attachment.link().pid.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        until("it is back", || attachment.returns() == round);
        let report = attachment.report();
        let stream = &report.streams[place];
        assert_eq!(
            (stream.counts.totals.sent, stream.counts.counters.sent),
            (9 * round, 9 * round)
        );
        assert_eq!(
            (stream.counts.totals.frames, stream.counts.totals.on_time),
            (10 * round, 9 * round)
        );
        assert!(
            stream.counts.sent_bytes >= Bytes(9 * round * 100),
            "{:?}",
            stream.counts.sent_bytes
        );
        assert!(
            report.sent_bytes >= stream.counts.sent_bytes && report.could_send >= report.sent_bytes
        );
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
    let local = LocalCoprocessor::start(support::options(AMPLE, socket.clone())).unwrap();
    let attachment = Attachment::new("test", socket.clone(), None).unwrap();
    let (_, mut frame_producer) = add(&attachment, "lecture", to);
    enqueue(&mut frame_producer, Kind::Still, 0, 10).unwrap();
    receive_until(&receiver, |bytes| numbers(bytes).0 == 0);
    drop(local);
    let taken =
        (1..1000).take_while(|&n| enqueue(&mut frame_producer, Kind::Still, n, 10).is_ok()).count();
    assert!((100..=128).contains(&taken), "the ring has 128 slots: {taken}");
    for n in 0..10_000 {
        assert_eq!(enqueue(&mut frame_producer, Kind::Still, n, 10), Err(DropReason::Full));
    }
    // The next coprocessor finds the waiting frames, though it never saw them arrive.
    let _local = LocalCoprocessor::start(support::options(AMPLE, socket)).unwrap();
    let mut came = 0;
    receive_until(&receiver, |bytes| {
        came += 1;
        assert_eq!(numbers(bytes).0, came);
        came as usize == taken
    });
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

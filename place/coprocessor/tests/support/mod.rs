//! Shared parts of the placement's tests: a coprocessor in this process, a receiver, frames.
#![allow(dead_code, reason = "each test uses a part")]

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration as StdDuration, Instant};

use rustix::net::sockopt;
use selvedge_control_config::LinkConfig;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::Spec;
use selvedge_data_stream::rtp::Packet;
use selvedge_data_stream::{Contract, DropReason, Kind, Window};
use selvedge_place_coprocessor::client::{Attachment, producer_params};
use selvedge_place_coprocessor::realtime::{RealtimeRequest, SchedClass};
use selvedge_place_coprocessor::server::{LocalCoprocessor, Options};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
pub(crate) use selvedge_tests_wait::until;
use selvedge_units::{Bitrate, Bytes, Duration};

pub(crate) const TIMEOUT: StdDuration = StdDuration::from_secs(60);

/// A path that no other test uses.
pub(crate) fn socket() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("selvedge-test-{}-{n}.sock", std::process::id()))
}

pub(crate) fn link(rate: Bitrate) -> LinkConfig {
    LinkConfig::new("test", rate, Discipline::Dwcs)
}

/// The settings of a test's coprocessor.
pub(crate) fn options(rate: Bitrate, socket: PathBuf) -> Options {
    let realtime_request = RealtimeRequest { core: None, lock: false, class: SchedClass::Fair };
    let (watch, memory) = (Duration::from_micros(20), Bytes(50_000_000));
    Options { link: link(rate), socket, realtime_request, watch, memory, alone: None }
}

/// A coprocessor on threads of this process.
pub(crate) fn coprocessor(rate: Bitrate) -> (LocalCoprocessor, PathBuf) {
    let socket = socket();
    (LocalCoprocessor::start(options(rate, socket.clone())).unwrap(), socket)
}

pub(crate) fn receiver() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(StdDuration::from_millis(100))).unwrap();
    // Room for everything that a test sends, however long its thread waits for a processor meanwhile.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, 8 << 20));
    let to = socket.local_addr().unwrap();
    (socket, to)
}

/// Due in five minutes: nothing is late, however slow the machine.
pub(crate) fn spec(name: &str, to: SocketAddr) -> Spec {
    let window = Window { lose: 1, of: 5 };
    let contract = Contract {
        delay: Some(Duration::from_secs(300)),
        ..Contract::new(Duration::from_millis(20), window)
    };
    let spec = Spec { ring: 128, pool: Bytes(200_000), ..Spec::new(name, to) };
    spec.with_contract(contract)
}

pub(crate) fn add(attachment: &Attachment, name: &str, to: SocketAddr) -> (usize, FrameProducer) {
    let spec = spec(name, to);
    let params = producer_params(&spec, Bytes(1500), 7);
    attachment.add(spec, &params, None).unwrap()
}

/// Enqueues a frame of one packet whose payload is its number and `more` bytes.
pub(crate) fn enqueue(
    frame_producer: &mut FrameProducer,
    kind: Kind,
    number: u32,
    more: usize,
) -> Result<u32, DropReason> {
    let mut packet = vec![0; 12 + 4 + more];
    packet[..2].copy_from_slice(&[0x80, 0x80 | 96]);
    packet[12..16].copy_from_slice(&number.to_be_bytes());
    let offer = FrameMetadata::alone(kind);
    frame_producer.enqueue(offer, &[&packet])
}

/// The number in a packet's payload, and that of its frame.
pub(crate) fn numbers(bytes: &[u8]) -> (u32, u32) {
    let packet = Packet::parse(bytes).unwrap();
    let number = u32::from_be_bytes(packet.payload[..4].try_into().unwrap());
    (number, packet.tag.unwrap().seq)
}

/// Receives until `done` returns true.
pub(crate) fn receive_until(socket: &UdpSocket, mut done: impl FnMut(&[u8]) -> bool) {
    let end = Instant::now() + TIMEOUT;
    let mut buffer = [0; 2000];
    loop {
        match socket.recv(&mut buffer) {
            Ok(len) if done(&buffer[..len]) => return,
            _ => assert!(Instant::now() < end, "waited for a packet for a minute"),
        }
    }
}

/// Runs a program to its end, which is within a minute; returns its status, and its standard output and
/// error.
pub(crate) fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (pid, (tell, told)) = (child.id(), std::sync::mpsc::channel());
    let end = Instant::now() + TIMEOUT;
    std::thread::scope(|scope| {
        // Both are read concurrently, so that the program never waits for a reader.
        let read = |mut from: Box<dyn std::io::Read + Send>| {
            let tell = tell.clone();
            scope.spawn(move || {
                let mut text = String::new();
                let _ = from.read_to_string(&mut text);
                let _ = tell.send(());
                text
            })
        };
        let out = read(Box::new(child.stdout.take().unwrap()));
        let err = read(Box::new(child.stderr.take().unwrap()));
        let in_time = (0..2)
            .all(|_| told.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok());
        if !in_time {
            // Killed, so that its output is closed and the readers end.
            child.kill().unwrap();
        }
        let (out, err) = (out.join().unwrap(), err.join().unwrap());
        let status = child.wait().unwrap();
        assert!(in_time, "{command:?}, process {pid}, still ran after a minute: {out} {err}");
        (status.code(), out, err)
    })
}

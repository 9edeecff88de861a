//! Outputs on the wire: received by FFmpeg over the loopback and counted, each datagram with the kernel's
//! stamp, while the stream needs more than its link carries.

#![cfg(feature = "gstreamer")]

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use selvedge_control_config::view::NodeView;
use selvedge_node::{Node, NodeOptions, StartError, wait_until};
use selvedge_os::batch::{BATCH, Batch};
use selvedge_os::socket::{Buffer, open_bound, set_buffer, set_int};
use selvedge_units::{Bitrate, Bytes, Duration};

/// Longer than anything takes on a slow machine.
const SOON: Duration = Duration::from_secs(60);
/// The link's rate, and the bytes that may leave at once: a burst of one packet, and `catch_up`.
const RATE: Bitrate = Bitrate::from_kbps(800);
const AT_ONCE: Bytes = Bytes(1500 + 3000);
/// How long the wire is watched.
const WATCHED: Duration = Duration::from_secs(6);
/// How many reports of a link are compared with the wire.
const REPORTS: usize = 24;
/// IPv4 and UDP headers.
const HEADERS: u64 = 28;

/// A datagram on the wire: when, in nanoseconds, and how large with its headers.
type Seen = (u64, u64);
/// All datagrams, and their contents.
type Noted = Arc<Mutex<(Vec<Seen>, Vec<u8>)>>;

/// A socket on the loopback that records arriving datagrams, and forwards them from its own address. Of
/// those from the node, each datagram whose number `loses` selects is lost.
struct Wire {
    at: SocketAddr,
    noted: Noted,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    fn to(receiver: SocketAddr, loses: fn(usize) -> bool) -> Self {
        let open = || {
            let (socket, at) = open_bound(([127, 0, 0, 1], 0).into()).unwrap();
            set_buffer(&socket, Buffer::Receive, Bytes(4_000_000));
            set_int(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).unwrap();
            (socket, at)
        };
        let ((front, at), (back, _)) = (open(), open());
        let (noted, stop) = (Noted::default(), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (noted, stop) = (noted.clone(), Arc::clone(&stop));
            move || pass_on([&front, &back], receiver, loses, &noted, &stop)
        });
        Self { at, noted, stop, thread: Some(thread) }
    }

    fn seen(&self) -> Vec<Seen> {
        self.noted.lock().unwrap().0.clone()
    }

    /// Waits until it has seen traffic for this long, from one datagram on, and returns all.
    fn watched(&self, from: usize) -> Vec<Seen> {
        let seen = || self.seen().split_off(from);
        let span = |seen: &[Seen]| Duration(seen.last().map_or(0, |last| last.0 - seen[0].0));
        assert!(wait_until(SOON, || span(&seen()) >= WATCHED), "{:?}", span(&seen()));
        seen()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn pass_on(
    [front, back]: [&OwnedFd; 2],
    receiver: SocketAddr,
    loses: fn(usize) -> bool,
    noted: &Noted,
    stop: &AtomicBool,
) {
    let mut batch = Batch::of(BATCH, true);
    let mut sender = None;
    let senders = [front, back].map(|socket| UdpSocket::from(socket.try_clone().unwrap()));
    let [to_sender, to_receiver] = &senders;
    while !stop.load(Ordering::Relaxed) {
        let count = batch.receive(front);
        for datagram in batch.datagrams(count) {
            sender = datagram.from;
            let (seen, bytes) = &mut *noted.lock().unwrap();
            bytes.extend(datagram.bytes);
            seen.push((datagram.stamp.expect("asked for"), datagram.bytes.len() as u64 + HEADERS));
            if !loses(seen.len()) {
                let _ = to_receiver.send_to(datagram.bytes, receiver);
            }
        }
        let answers = batch.receive(back);
        for answer in batch.datagrams(answers) {
            if let Some(sender) = sender {
                let _ = to_sender.send_to(answer.bytes, sender);
            }
        }
        if count + answers == 0 {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }
}

/// The most by which any interval exceeds the bytes that the rate allows for it; and the rate of the
/// whole.
fn measure(seen: &[Seen]) -> (u64, Bitrate) {
    let (mut level, mut most, mut last) = (0.0, 0.0_f64, seen[0].0);
    for &(at, size) in seen {
        let allowed = RATE.0 as f64 / 8e9 * at.saturating_sub(last) as f64;
        level = f64::max(level - allowed, 0.0) + size as f64;
        (most, last) = (most.max(level), at);
    }
    let all: u64 = seen.iter().map(|(_, size)| size).sum();
    (most as u64, Bytes(all) / Duration(last - seen[0].0))
}

/// A folder with a clip by FFmpeg: moving noise, 25 pictures a second, about 1.5 Mbit/s.
struct Made(tempfile::TempDir);

const X264: &[&str] = &["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2"];

impl Made {
    fn new(seconds: &str, codec: &[&str]) -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let card = "testsrc2=size=320x240:rate=25,noise=alls=30:allf=t";
        let sound = "sine=frequency=440:sample_rate=48000";
        let input = ["-f", "lavfi", "-i", card, "-f", "lavfi", "-i", sound, "-c:a", "aac"];
        let rate = ["-b:v", "1500k", "-maxrate", "1500k", "-bufsize", "750k", "-g", "25"];
        let clip = made.path("clip.mp4");
        ffmpeg(&[&input[..], codec, &rate, &["-threads", "1", "-t", seconds, &clip]].concat());
        made
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A node that sends the clip over a link of this rate.
    fn node(&self, rate: Bitrate, of_clip: &str, to: &str) -> Node {
        let clip = self.path("clip.mp4") + of_clip;
        let text = format!(
            "[link.up]\nrate = \"{} bit/s\"\ncatch_up = \"3000 B\"\n[stream.clip]\n\
             source = \"file:{clip}\"\nto = \"{to}\"\nthumbnail = false\n",
            rate.0
        );
        Node::start(&text, NodeOptions::default()).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn ffmpeg(args: &[&str]) {
    let done = Command::new("ffmpeg").args(["-y", "-nostdin", "-v", "error"]).args(args).status();
    assert!(done.as_ref().is_ok_and(|done| done.success()), "{args:?}: {done:?}");
}

/// How many frames FFmpeg decodes from a file, and its warnings.
fn decoded(file: &str) -> (usize, String) {
    let args = ["-nostdin", "-v", "warning", "-i", file, "-f", "framecrc", "-"];
    let done = Command::new("ffmpeg").args(args).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let frames = text.lines().filter(|line| !line.starts_with('#')).count();
    (frames, String::from_utf8_lossy(&done.stderr).into_owned())
}

fn nobody() -> SocketAddr {
    ([127, 0, 0, 1], 9).into()
}

#[test]
fn a_transport_stream_keeps_the_rate_on_the_wire_and_is_decoded() {
    let (made, wire) = (Made::new("10", X264), Wire::to(nobody(), |_| true));
    let node = made.node(RATE, "?loop", &format!("udp://{}", wire.at));
    let (most, rate) = measure(&wire.watched(0));
    let totals = node.counts("clip").unwrap().totals;
    drop(node.stop());
    assert!(most <= AT_ONCE.0, "{most} B beyond {RATE}");
    assert!(rate.0 > RATE.0 / 5, "{rate} of {RATE}");
    std::fs::write(made.path("sent.ts"), &wire.noted.lock().unwrap().1).unwrap();
    let (frames, warnings) = decoded(&made.path("sent.ts"));
    assert!(totals.sent < totals.frames, "the link carries only a part: {totals:?}");
    let sent = totals.decodable as usize;
    assert!(frames.abs_diff(sent) <= 10 && sent > 30, "{frames} of {sent}: {warnings}");
    assert!(!warnings.contains("Continuity"), "dropped frames leave no gap: {warnings}");
}

#[test]
fn each_encoding_of_a_transport_stream_is_received_whole() {
    let x265 = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=0"];
    let encodings = [X264, &x265, &["-c:v", "mpeg2video", "-bf", "2"], X264];
    for (n, codec) in encodings.into_iter().enumerate() {
        let (made, wire) = (Made::new("2", codec), Wire::to(nobody(), |_| true));
        let of_clip = if n == 3 { "?sound" } else { "" };
        let node = made.node(Bitrate::from_mbps(20), of_clip, &format!("udp://{}", wire.at));
        assert!(wait_until(SOON, || node.is_over() && node.wait_sent(SOON, || false)));
        let snapshot = node.stop().snapshot;
        let bytes = || wire.noted.lock().unwrap().1.len() as u64;
        let mut before = 0;
        assert!(wait_until(SOON, || std::mem::replace(&mut before, bytes()) == bytes()));
        std::fs::write(made.path("sent.ts"), &wire.noted.lock().unwrap().1).unwrap();
        let (frames, warnings) = decoded(&made.path("sent.ts"));
        let sent = snapshot.streams[0].sent as usize;
        assert!(
            sent >= 50 && frames == sent && warnings.is_empty(),
            "{frames} of {sent}: {warnings}"
        );
    }
}

#[test]
fn an_encoding_that_an_output_does_not_carry_is_named_with_its_line() {
    let text = "[link.up]\nrate = \"6 Mbit/s\"\n[stream.a]\nsource = \"test:jpeg\"\n\
                to = \"udp://127.0.0.1:9\"\n";
    let options = NodeOptions { file: "own.toml".into(), ..NodeOptions::default() };
    let Err(StartError::File(errors)) = Node::start(text, options) else {
        panic!("JPEG has no place in a transport stream")
    };
    let errors = errors.to_string();
    assert!(
        errors.starts_with("own.toml:5:6: stream.a.to: udp:// does not carry JPEG"),
        "{errors}"
    );
}

/// A port of the loopback for UDP that was free a moment ago.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// FFmpeg, which writes the received data into a file, and ends with the test.
struct Receiver(Child);

impl Receiver {
    fn start(from: &str, file: &str) -> Self {
        let probe = ["-probesize", "100k", "-analyzeduration", "500k", "-i", from];
        let mut command = Command::new("ffmpeg");
        command.args(["-y", "-nostdin", "-v", "fatal"]).args(probe);
        command.args(["-c", "copy", "-flush_packets", "1", "-f", "mpegts", file]);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Watches a stream that calls by SRT over a wire that loses datagrams; returns by how many bytes the wire got
/// ahead of what the link was charged for.
fn called(loses: fn(usize) -> bool) -> i64 {
    let (made, receiver) = (Made::new("10", X264), free());
    let wire = Wire::to(receiver, loses);
    let file = made.path("received.ts");
    let _receiver = Receiver::start(&format!("srt://{receiver}?mode=listener"), &file);
    let node = made.node(RATE, "?loop", &format!("srt://{}", wire.at));
    let is_open = || node.snapshot().streams[0].detail.is_empty();
    assert!(wait_until(SOON, is_open), "{}", node.snapshot().streams[0].detail);
    let begun = wire.seen().len();
    let charged = || node.counts("clip").unwrap().sent_bytes.0;
    let (mut last, mut ahead) = (charged(), Vec::new());
    // The link reports every 250 ms what it charged.
    assert!(wait_until(SOON, || {
        let now = charged();
        if std::mem::replace(&mut last, now) != now {
            let sent: u64 = wire.seen().iter().map(|(_, size)| size).sum();
            ahead.push(sent.cast_signed() - now.cast_signed());
        }
        ahead.len() >= REPORTS
    }));
    let (_, rate) = measure(&wire.seen()[begun..]);
    assert!(rate.0 > RATE.0 / 5, "{rate} of {RATE}");
    let received = || decoded(&file).0;
    assert!(wait_until(SOON, || received() > 30), "{} received", received());
    // A thread that wakes up late falls behind and catches up, which moves no median.
    let third = ahead.len() / 3;
    median(&ahead[2 * third..]) - median(&ahead[..third])
}

fn median(of: &[i64]) -> i64 {
    let mut of = of.to_vec();
    of.sort_unstable();
    of[of.len() / 2]
}

#[test]
fn srt_keeps_the_rate_with_all_that_it_sends() {
    // Answers alone would make it 12 kB. Retransmitted packets leave at once, and the link is charged
    // for them afterwards.
    let wires: [fn(usize) -> bool; 2] = [|_| false, |n| n > 50 && n % 20 == 0];
    for loses in wires {
        let ahead = called(loses);
        assert!(ahead <= AT_ONCE.0.cast_signed(), "{ahead} B that the link was not charged for");
    }
}

#[test]
fn srt_waits_for_who_calls_with_the_passphrase() {
    let (made, at) = (Made::new("10", X264), free());
    let to = format!("srt://{at}?mode=listener&passphrase=0123456789abc");
    let node = made.node(Bitrate::from_mbps(20), "?loop", &to);
    let shown = || node.snapshot().streams[0].clone();
    assert_eq!(shown().to, format!("srt://{at}?mode=listener&passphrase=***"));
    assert!(wait_until(SOON, || shown().detail.contains("nobody is connected")));
    let file = made.path("received.ts");
    let _receiver = Receiver::start(&format!("srt://{at}?passphrase=0123456789abc"), &file);
    assert!(wait_until(SOON, || shown().detail.is_empty()), "{}", shown().detail);
    assert!(wait_until(SOON, || decoded(&file).0 > 30), "{}", decoded(&file).1);
    let wrong = made.node(RATE, "?loop", &format!("srt://{at}?passphrase=not-the-right"));
    let detail = || wrong.snapshot().streams[0].detail.clone();
    assert!(wait_until(SOON, || detail().contains("does not answer, or refuses")), "{}", detail());
}

#[test]
fn an_output_that_breaks_off_is_opened_again_and_hurts_no_other() {
    let (made, at, wire) = (Made::new("10", X264), free(), Wire::to(nobody(), |_| true));
    let clip = made.path("clip.mp4");
    let stream = |name, to| {
        format!(
            "[stream.{name}]\nsource = \"file:{clip}?loop\"\nto = \"{to}\"\nthumbnail = false\n"
        )
    };
    let text = "[link.up]\nrate = \"20 Mbit/s\"\n".to_owned()
        + &stream("srt", format!("srt://{at}"))
        + &stream("udp", format!("udp://{}", wire.at));
    let node = Node::start(&text, NodeOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let detail = |n: usize| node.snapshot().streams[n].detail.clone();
    for (n, name) in ["first.ts", "second.ts"].into_iter().enumerate() {
        assert!(wait_until(SOON, || detail(0).contains("nothing is carried")), "{n}");
        let file = made.path(name);
        let _receiver = Receiver::start(&format!("srt://{at}?mode=listener"), &file);
        assert!(wait_until(SOON, || detail(0).is_empty()), "{n}: {}", detail(0));
        assert!(wait_until(SOON, || decoded(&file).0 > 30), "{n}: {}", decoded(&file).1);
    }
    assert_eq!(detail(1), "");
    let udp = node.counts("udp").unwrap();
    assert_eq!((udp.send_errors, udp.totals.dropped.iter().sum()), (0, 0_u64));
    drop(node.stop());
}

//! A node with a hundred receivers of one stream, on one processor, in real time: one player is stopped, one receiver has a
//! link of 1 kB/s, and one asks and leaves ten times a second. The others get everything, and memory is flat.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use selvedge_tests_wait::holds_within;
use serde_json::Value;
use support::{Folder, Running, TIMEOUT, free_port, http, until};

const TOKEN: &str = "of-those-who-ask-for-it";
/// Receivers beside the three that are bad.
const OTHERS: usize = 97;
const TICK: Duration = Duration::from_millis(100);

/// How long, and how much.
struct Run {
    selvedge: String,
    rate_kbps: u32,
    warm: Duration,
    lasts: Duration,
    stopped: Duration,
}

/// The node file of such a stream.
fn text(page: SocketAddr, rtsp: SocketAddr, rate_kbps: u32, others: &[SocketAddr]) -> String {
    let source = format!(
        "launch:videotestsrc is-live=true pattern=snow ! video/x-raw,width=320,height=240,framerate=25/1 ! \
         x264enc bitrate={rate_kbps} tune=zerolatency speed-preset=ultrafast key-int-max=25 threads=1 ! h264parse"
    );
    let mut text = format!(
        "[node]\nlisten = \"{page}\"\n[link.fast]\nrate = \"1 Gbit/s\"\n[link.slow]\nrate = \"8 kbit/s\"\n\
         [stream.cam]\nsource = \"{source}\"\nlink = \"fast\"\ndelay = \"2 s\"\nthumbnail = false\n\
         receivers = {{ token = \"{TOKEN}\" }}\n[stream.cam.receiver.slow]\nlink = \"slow\"\n\
         to = \"rtp://{}\"\n[stream.cam.receiver.stopped]\nto = \"rtsp://{rtsp}/cam\"\n",
        free_port()
    );
    for (n, to) in others.iter().enumerate() {
        text += &format!("[stream.cam.receiver.r{n}]\nto = \"rtp://{to}\"\n");
    }
    text
}

/// Asks for the stream, or leaves; the status.
fn restless(page: SocketAddr, method: &str, path: &str, body: &str) -> u16 {
    let mut stream = TcpStream::connect(page).expect("the node listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    let len = body.len();
    let head = format!(
        "{method} /api/v1/streams/cam/receivers{path} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\nContent-Length: {len}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it closes");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

/// A player in its connection, which reads nothing by itself.
struct Player(TcpStream);

impl Player {
    fn start(rtsp: SocketAddr) -> Self {
        let mut player = Self(TcpStream::connect(rtsp).expect("it serves"));
        player.0.set_read_timeout(Some(TIMEOUT)).expect("not zero");
        let set_up = format!(
            "SETUP rtsp://{rtsp}/cam/track0 RTSP/1.0\r\nTransport: RTP/AVP/TCP;interleaved=0-1"
        );
        for request in [&*set_up, &format!("PLAY rtsp://{rtsp}/cam RTSP/1.0")] {
            player.0.write_all(format!("{request}\r\n\r\n").as_bytes()).expect("it reads");
        }
        player
    }

    /// Whether so many bytes come.
    fn reads(&mut self, bytes: usize) -> bool {
        self.0.read_exact(&mut vec![0; bytes]).is_ok()
    }
}

/// Memory of a process, in bytes.
fn resident(process: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{process}/statm")).expect("it runs");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

fn median(of: &[u64]) -> u64 {
    let mut of = of.to_vec();
    of.sort_unstable();
    of[of.len() / 2]
}

/// Frames of each of the others: offered, and sent on time.
fn counts(page: SocketAddr) -> Vec<[u64; 2]> {
    let node = http::node(&page.to_string());
    let is_other =
        |one: &&Value| one["name"].as_str().is_some_and(|name| name.starts_with("cam/r"));
    let count = |one: &Value, key: &str| one[key].as_u64().expect("a count");
    let streams = node["streams"].as_array().expect("a list").iter().filter(is_other);
    streams.map(|one| ["frames", "on_time"].map(|key| count(one, key))).collect()
}

/// Packets that came at a socket, and those missing between them.
#[derive(Default)]
struct Came {
    packets: u64,
    missing: u64,
    next: Option<u16>,
}

impl Came {
    /// Reads until no more comes.
    fn read(mut self, socket: &UdpSocket) -> Self {
        let mut bytes = [0; 2000];
        while let Ok(len) = socket.recv(&mut bytes) {
            assert!(len > 12, "RTP");
            let number = u16::from_be_bytes([bytes[2], bytes[3]]);
            self.missing += u64::from(number.wrapping_sub(self.next.unwrap_or(number)));
            self.next = Some(number.wrapping_add(1));
            self.packets += 1;
        }
        self
    }
}

fn run(run: &Run) {
    let (folder, page, rtsp) = (Folder::new(), free_port(), free_port());
    let mut sockets: Vec<UdpSocket> =
        (0..OTHERS).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
    let others: Vec<_> = sockets.iter().map(|one| one.local_addr().expect("bound")).collect();
    let one = sockets.swap_remove(0);
    let reader = std::thread::spawn(move || {
        one.set_read_timeout(Some(TIMEOUT)).expect("not zero");
        one.peek(&mut [0]).expect("the node sends");
        one.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");
        Came::default().read(&one)
    });
    let path = folder.write("node.toml", text(page, rtsp, run.rate_kbps, &others));
    // On one processor, with its encoder.
    let mut command = Command::new("taskset");
    let node =
        Running::start(command.args(["-c", "0", &run.selvedge, "run"]).arg(Path::new(&path)));
    let is_up =
        || TcpStream::connect(page).is_ok() && counts(page).iter().all(|[_, sent]| *sent > 0);
    until("all are sent to", is_up);
    let mut player = Player::start(rtsp);
    assert!(player.reads(10_000), "it plays");
    let (began, mut before, mut memory) = (Instant::now(), None, Vec::new());
    let (mut turns, mut returned) = (0, false);
    while began.elapsed() < run.warm + run.lasts {
        let due = began + TICK * turns;
        holds_within(TIMEOUT, || Instant::now() >= due);
        let asked = restless(page, "POST", "", "{\"port\": 9}");
        let left = restless(page, "DELETE", "/9", "");
        assert_eq!((asked, left), (200, 200));
        turns += 1;
        let since = began.elapsed();
        if since >= run.warm {
            before.get_or_insert_with(|| counts(page));
            memory.push(resident(node.id()));
        }
        if since >= run.warm + run.stopped && !returned {
            // A player that takes nothing for too long was dropped, and comes again.
            player = Player::start(rtsp);
            assert!(player.reads(10_000), "it plays again");
            returned = true;
        }
    }
    let before = before.expect("it ran for longer than that");
    let after = counts(page);
    node.signal("INT");
    assert_eq!(node.end(TIMEOUT).code, Some(0));
    let came = reader.join().expect("it reads");
    let shares = after.into_iter().zip(before).map(|(now, before)| {
        let [offered, sent] = [0, 1].map(|n| now[n] - before[n]);
        assert!(offered > 0, "the source goes on");
        sent * 1000 / offered
    });
    let shares: Vec<u64> = shares.collect();
    let third = memory.len() / 3;
    let (first, last) = (median(&memory[..third]), median(&memory[2 * third..]));
    let grew = last.abs_diff(first);
    let (least, most) = (memory.iter().min(), memory.iter().max());
    println!(
        "fan-out at {} kbit/s: {} others, {turns} times asked and left, sent on time {} to {} of 1000, one read {} \
         packets and lacks {}, memory {least:?} to {most:?} bytes, from third to third {grew} bytes",
        run.rate_kbps,
        shares.len(),
        shares.iter().min().expect("some"),
        shares.iter().max().expect("some"),
        came.packets,
        came.missing
    );
    assert_eq!(shares.len(), OTHERS);
    assert!(returned && shares.iter().all(|share| *share >= 990), "{shares:?}");
    assert!(came.packets > 100 && came.missing * 100 <= came.packets, "{}", came.missing);
    assert!(grew < 1_000_000, "{first} and {last} bytes, {memory:?}");
}

#[test]
fn no_receiver_of_a_hundred_holds_up_another() {
    let selvedge = env!("CARGO_BIN_EXE_selvedge").to_owned();
    let [warm, lasts, stopped] = [3, 8, 5].map(Duration::from_secs);
    run(&Run { selvedge, rate_kbps: 600, warm, lasts, stopped });
}

#[test]
#[ignore = "takes minutes; make soak runs it"]
fn a_hundred_receivers_of_6_megabits_for_long() {
    let lasts = std::env::var("SOAK_SECONDS").map_or(600, |text| text.parse().expect("a number"));
    let selvedge = std::env::var("SOAK_SELVEDGE").expect("the program, built with optimisation");
    let [warm, lasts, stopped] = [20, lasts, 30].map(Duration::from_secs);
    run(&Run { selvedge, rate_kbps: 6000, warm, lasts, stopped });
}

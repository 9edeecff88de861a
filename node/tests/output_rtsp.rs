//! Streams that a node serves by RTSP: FFmpeg and GStreamer play them, from a picture that needs no other;
//! both sides may restart; clients that hang, send garbage, guess logins or come by the hundred harm nobody.

#![cfg(feature = "gstreamer")]

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Instant;

use selvedge_control_config::view::NodeView;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_units::Duration;

/// Longer than anything takes on a slow machine.
const SOON: Duration = Duration::from_secs(60);
const CLIP: &str = "one-by-one-person-detection.mp4";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A node that serves a clip, over and over, at each of these.
fn node(to: &[&str]) -> Node {
    let mut text = "[link.up]\nrate = \"100 Mbit/s\"\n".to_owned();
    for (n, to) in to.iter().enumerate() {
        let source = format!("source = \"file:{CLIP}?loop\"\nthumbnail = false");
        writeln!(text, "[stream.s{n}]\n{source}\nto = \"{to}\"").unwrap();
    }
    let base = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../clips");
    let options = NodeOptions { base, file: "own.toml".to_owned(), ..NodeOptions::default() };
    let node = Node::start(&text, options).unwrap_or_else(|error| panic!("{error}"));
    // Open, and described.
    let waits = |node: &Node| {
        node.snapshot().streams.iter().all(|one| one.detail.ends_with("nobody plays it"))
    };
    assert!(wait_until(SOON, || waits(&node)), "{:?}", node.snapshot().streams);
    node
}

/// Ended after a minute, whatever it waits for.
fn bounded(program: &str, args: &[&str]) -> Output {
    Command::new("timeout").args(["60", program]).args(args).output().unwrap()
}

/// Plays this many pictures by FFmpeg; returns what it complains of.
fn ffmpeg(url: &str, transport: &str, pictures: &str) -> Result<(), String> {
    let input = ["-nostdin", "-v", "error", "-rtsp_transport", transport, "-i", url];
    let output = ["-frames:v", pictures, "-f", "framecrc", "-"];
    let done = bounded("ffmpeg", &[&input[..], &output].concat());
    let came = String::from_utf8_lossy(&done.stdout);
    let came = came.lines().filter(|line| !line.starts_with('#')).count();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    let is_whole = done.status.success() && came.to_string() == pictures && errors.is_empty();
    if is_whole { Ok(()) } else { Err(format!("{came} of {pictures}: {errors}")) }
}

#[test]
fn ffmpeg_and_gstreamer_play_it_either_way_also_when_a_side_restarts() {
    let port = free_port();
    let url = format!("rtsp://127.0.0.1:{port}/studio/cam");
    for round in 0..2 {
        let node = node(&[&url]);
        for transport in ["udp", "tcp"] {
            ffmpeg(&url, transport, "25").unwrap_or_else(|e| panic!("{round} {transport}: {e}"));
            let line = format!(
                "rtspsrc location={url} protocols={transport} ! rtph264depay ! h264parse ! \
                 fakesink num-buffers=25"
            );
            let words: Vec<&str> = line.split_whitespace().collect();
            let done = bounded("gst-launch-1.0", &[&["-q"], &words[..]].concat());
            assert!(done.status.success(), "{round} {transport}: {done:?}");
        }
        let left = || node.snapshot().streams[0].detail.ends_with("nobody plays it");
        assert!(wait_until(SOON, left), "{:?}", node.snapshot().streams);
        // A player sees the end, and does not wait for ever.
        let mut player = Raw::plays(port, "studio/cam");
        drop(node);
        assert!(player.ends());
    }
}

/// A connection without a library.
struct Raw(TcpStream);

impl Raw {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(SOON.into())).unwrap();
        Self(stream)
    }

    fn ask(&mut self, text: &str) -> String {
        self.0.write_all(format!("{text}\r\n\r\n").as_bytes()).unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") && self.0.read(&mut byte).is_ok_and(|len| len > 0) {
            answer.extend(byte);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// One that plays a mount's picture in its connection.
    fn plays(port: u16, mount: &str) -> Self {
        let mut raw = Self::new(port);
        let set_up = "RTSP/1.0\r\nTransport: RTP/AVP/TCP;interleaved=0-1";
        assert!(raw.ask(&format!("SETUP rtsp://h/{mount}/track0 {set_up}")).contains("200 OK"));
        assert!(raw.ask(&format!("PLAY rtsp://h/{mount} RTSP/1.0")).contains("200 OK"));
        raw
    }

    /// Reads packets for this long; returns how many, and the longest time between two.
    fn packets(&mut self, until: Instant) -> (usize, Duration) {
        let (mut count, mut last, mut longest) = (0, Instant::now(), Duration::ZERO);
        while Instant::now() < until {
            let mut head = [0; 4];
            self.0.read_exact(&mut head).unwrap();
            assert_eq!(head[0], b'$');
            let mut packet = vec![0; u16::from_be_bytes([head[2], head[3]]).into()];
            self.0.read_exact(&mut packet).unwrap();
            count += 1;
            longest = longest.max(last.elapsed().into());
            last = Instant::now();
        }
        (count, longest)
    }

    /// Whether the other end closes the connection.
    fn ends(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
    }
}

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_login_is_asked_for_and_guessers_wait() {
    let port = free_port();
    let _node = node(&[
        &format!("rtsp://me:p%40ss@127.0.0.1:{port}/closed"),
        &format!("rtsp://127.0.0.1:{port}/open"),
    ]);
    let with = |login: &str| ffmpeg(&format!("rtsp://{login}@127.0.0.1:{port}/closed"), "tcp", "5");
    with("me:p%40ss").unwrap();
    let wrong = with("me:pass").unwrap_err();
    assert!(wrong.contains("401"), "{wrong}");
    let began = Instant::now();
    let mut guessers: Vec<Raw> = (0..4).map(|_| Raw::new(port)).collect();
    for guesser in &mut guessers {
        let digest = "Digest username=\"me\", nonce=\"a\", uri=\"b\", response=\"c\"";
        let asked = format!("DESCRIBE rtsp://h/closed RTSP/1.0\r\nAuthorization: {digest}\r\n\r\n");
        guesser.0.write_all(asked.as_bytes()).unwrap();
    }
    // The other stream of the address is not guarded, and nobody waits there for a guesser.
    ffmpeg(&format!("rtsp://127.0.0.1:{port}/open"), "udp", "5").unwrap();
    let refused = |raw: &mut Raw| raw.ask("").contains("401");
    assert!(guessers.iter_mut().all(refused));
    let waited: Duration = began.elapsed().into();
    assert!(waited >= Duration::from_secs(4), "four guesses in {waited}");
}

#[test]
fn hundreds_that_hang_or_send_garbage_harm_no_player_and_memory_is_flat() {
    let port = free_port();
    let _node = node(&[&format!("rtsp://127.0.0.1:{port}/cam")]);
    let mut player = Raw::plays(port, "cam");
    let (before, _) = player.packets(Instant::now() + Duration::from_secs(2).to_std());
    let memory = resident();
    // This one reads nothing.
    let stuck = Raw::plays(port, "cam");
    let attack = std::thread::spawn(move || {
        let mut hanging = Vec::new();
        for n in 0..600 {
            let mut raw = Raw::new(port);
            let _ = match n % 4 {
                0 => raw.0.write_all(&[n as u8; 3000]),
                1 => raw.0.write_all(b"PLAY rtsp://h/cam RTSP/1.0\r\nContent-Length: 8000\r\n\r\n"),
                2 => raw.0.write_all(b"$\0\xff\xff"),
                _ => Ok(()),
            };
            hanging.push(raw);
        }
        // A newcomer finds a place among those that hang.
        ffmpeg(&format!("rtsp://127.0.0.1:{port}/cam"), "tcp", "5").unwrap();
        hanging
    });
    let (during, longest) = player.packets(Instant::now() + Duration::from_secs(4).to_std());
    let hanging = attack.join().unwrap();
    assert_eq!(hanging.len(), 600);
    assert!(during > before, "{before} packets in 2 s, then {during} in 4 s");
    assert!(longest < Duration::from_secs(2), "no packet for {longest}");
    let grown = resident().saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} bytes more");
    drop((stuck, hanging));
}

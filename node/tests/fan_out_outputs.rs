//! One source to outputs of several kinds at once: each is played, and one that stops harms no other. Who joins begins with a
//! picture that the encoder makes for that.

#![cfg(feature = "gstreamer")]

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};

use selvedge_control_config::view::{NodeView, StreamSnapshot};
use selvedge_data_stream::rtp::Packet;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_units::Duration;

/// Longer than anything takes on a slow machine.
const SOON: Duration = Duration::from_secs(60);
const LINKS: &str = "[link.wan]\nrate = \"8 Mbit/s\"\n[link.hall]\nrate = \"20 Mbit/s\"\n";
/// An intra picture at the start, and others on request only.
const RARE: &str = "launch:videotestsrc is-live=true ! video/x-raw,width=320,height=240,framerate=25/1 ! \
                    x264enc bitrate=500 tune=zerolatency speed-preset=ultrafast key-int-max=100000 ! h264parse";
const TOKEN: &str = "of-those-who-ask-for-it";

fn start(text: &str, base: &Path) -> Node {
    let options = NodeOptions { base: base.to_owned(), ..NodeOptions::default() };
    Node::start(text, options).unwrap_or_else(|error| panic!("{error}"))
}

/// A port of the loopback that was free a moment ago.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn stream(node: &Node, name: &str) -> StreamSnapshot {
    let streams = node.snapshot().streams;
    streams.into_iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name}"))
}

/// FFmpeg, which ends with the test.
struct Running(Child);

impl Running {
    /// Writes what it receives into a file.
    fn copy(from: &[&str], file: &str) -> Self {
        let probe =
            ["-y", "-nostdin", "-v", "fatal", "-probesize", "100k", "-analyzeduration", "500k"];
        let out = ["-c", "copy", "-flush_packets", "1", "-f", "mpegts", file];
        let child = Command::new("ffmpeg").args(probe).args(from).args(out).spawn();
        Self(child.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many pictures FFmpeg decodes from a file.
fn decoded(file: &str) -> u64 {
    let args = ["-v", "error", "-count_frames", "-select_streams", "v:0", "-show_entries"];
    let mut probe = Command::new("ffprobe");
    probe.args(args).args(["stream=nb_read_frames", "-of", "csv=p=0", file]);
    let text = String::from_utf8(probe.output().unwrap().stdout).unwrap();
    text.lines().next().and_then(|line| line.trim_matches(',').parse().ok()).unwrap_or(0)
}

/// Plays by RTSP, until this many pictures have come.
fn plays(url: &str, pictures: &str) -> bool {
    let input = ["60", "ffmpeg", "-nostdin", "-v", "error", "-rtsp_transport", "tcp", "-i", url];
    let output = ["-frames:v", pictures, "-f", "framecrc", "-"];
    let done = Command::new("timeout").args(input).args(output).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let came = text.lines().filter(|line| !line.starts_with('#')).count();
    done.status.success() && came.to_string() == pictures
}

#[test]
fn one_source_goes_to_outputs_of_all_kinds_and_one_that_stops_harms_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (rtp, [srt, rtsp]) = (UdpSocket::bind("127.0.0.1:0").unwrap(), [(); 2].map(|()| free()));
    let ts = UdpSocket::bind("127.0.0.1:0").unwrap();
    let receivers = [
        ("live", "hall", format!("rtp://{}", rtp.local_addr().unwrap())),
        ("archive", "hall", "file:rec.mp4".to_owned()),
        ("guard", "wan", format!("rtsp://{rtsp}/cam")),
        ("partner", "wan", format!("srt://{srt}?mode=listener")),
        ("wall", "wan", format!("udp://{}", ts.local_addr().unwrap())),
    ];
    let text = |left_out: &str| {
        let head = format!("{LINKS}[stream.cam]\nsource = \"test:video\"\nlink = \"hall\"\n");
        let left = receivers.iter().filter(|(name, ..)| *name != left_out).zip(1..);
        let table = |((name, link, to), n): (&(&str, &str, String), u32)| {
            let delay = 400 + 100 * n;
            format!(
                "[stream.cam.receiver.{name}]\nlink = \"{link}\"\nto = \"{to}\"\ndelay = \"{delay} ms\"\n"
            )
        };
        head + &left.map(table).collect::<String>()
    };
    let node = start(&text(""), folder.path());
    let player = Running::copy(&["-i", &format!("srt://{srt}")], &path("partner.ts"));
    assert!(plays(&format!("rtsp://{rtsp}/cam"), "25"), "{:?}", stream(&node, "cam/guard"));
    let came = |name: &str| decoded(&path(name));
    assert!(wait_until(SOON, || came("partner.ts") > 25), "{:?}", stream(&node, "cam/partner"));
    let mut bytes = [0; 2000];
    assert!(rtp.recv(&mut bytes).is_ok_and(|len| Packet::parse(&bytes[..len]).is_ok()));
    assert!(ts.recv(&mut bytes).is_ok_and(|len| len % 188 == 0 && bytes[0] == 0x47));
    // One stops without a word, and another is taken away.
    drop(player);
    let before = stream(&node, "cam/archive");
    node.reload_text(&text("wall"), "x.toml").unwrap();
    assert!(plays(&format!("rtsp://{rtsp}/cam"), "25"), "{:?}", stream(&node, "cam/guard"));
    for name in ["cam/live", "cam/archive"] {
        assert!(stream(&node, name).sent >= before.sent + 25, "{name}");
    }
    // It comes again, into the running stream; and so does a player of SRT.
    node.reload_text(&text(""), "x.toml").unwrap();
    let _player = Running::copy(&["-i", &format!("srt://{srt}")], &path("again.ts"));
    assert!(wait_until(SOON, || came("again.ts") > 25), "{:?}", stream(&node, "cam/partner"));
    let is_sent = |name: &str| stream(&node, name).sent > 25;
    assert!(wait_until(SOON, || is_sent("cam/wall")), "{:?}", stream(&node, "cam/wall"));
    let recorded = stream(&node, "cam/archive");
    let lost = recorded.dropped.values().sum::<u64>() + recorded.missed;
    assert_eq!(lost, 0, "{recorded:?}");
    drop(node);
    let frames = decoded(&path("rec.mp4"));
    assert!(frames >= recorded.sent && !folder.path().join("rec-2.mp4").exists(), "{frames}");
}

/// SRT's own program, which writes what it is sent into a file.
fn srt_live_transmit(from: SocketAddr, file: &str) -> Running {
    let mut command = Command::new("srt-live-transmit");
    command.args(["-q", &format!("srt://{from}"), "file://con"]);
    let into = std::fs::File::create(file).unwrap();
    let child = command.stdout(into).spawn();
    Running(child.expect("the package srt-tools is installed"))
}

#[test]
fn srt_live_transmit_plays_it_also_when_a_side_restarts() {
    let (folder, srt) = (tempfile::tempdir().unwrap(), free());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let rtp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "{LINKS}[stream.cam]\nsource = \"test:video\"\nlink = \"hall\"\nto = \"rtp://{}\"\n\
         [stream.cam.receiver.partner]\nto = \"srt://{srt}?mode=listener\"\n",
        rtp.local_addr().unwrap()
    );
    let mut node = start(&text, folder.path());
    let player = srt_live_transmit(srt, &path("first.ts"));
    let came = |name: &str| decoded(&path(name));
    assert!(wait_until(SOON, || came("first.ts") > 25), "{:?}", stream(&node, "cam/partner"));
    drop(player);
    let player = srt_live_transmit(srt, &path("second.ts"));
    assert!(wait_until(SOON, || came("second.ts") > 25), "{:?}", stream(&node, "cam/partner"));
    let before = came("second.ts");
    drop(node);
    node = start(&text, folder.path());
    let is_more = || came("second.ts") > before + 25;
    assert!(wait_until(SOON, is_more), "{before} {:?}", stream(&node, "cam/partner"));
    drop(player);
}

#[test]
fn who_joins_gets_a_picture_at_once() {
    let (rtsp, folder) = (free(), tempfile::tempdir().unwrap());
    let [first, asks] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let text = format!(
        "{LINKS}[stream.cam]\nsource = \"{RARE}\"\nlink = \"hall\"\nto = \"rtp://{}\"\n\
         receivers = {{ token = \"{TOKEN}\" }}\n[stream.cam.receiver.guard]\nto = \"rtsp://{rtsp}/cam\"\n",
        first.local_addr().unwrap()
    );
    let node = start(&text, folder.path());
    // At the rate of 25 a second, a player that waits for the next group would wait for more than an hour.
    let sent = || stream(&node, "cam").sent;
    for round in 1..=2 {
        assert!(wait_until(SOON, || sent() >= 50 * round), "{:?}", stream(&node, "cam"));
        assert!(plays(&format!("rtsp://{rtsp}/cam"), "10"), "{:?}", stream(&node, "cam/guard"));
    }
    asks.set_read_timeout(Some(SOON.into())).unwrap();
    let before = sent();
    let to = asks.local_addr().unwrap();
    node.ask("cam", to, None, Duration::from_secs(60)).unwrap();
    let mut bytes = [0; 2000];
    let len = asks.recv(&mut bytes).expect("a picture comes");
    let tag = Packet::parse(&bytes[..len]).unwrap().tag.unwrap();
    assert!(u64::from(tag.seq) < before + 5 * 50, "picture {} after {before}", tag.seq);
}

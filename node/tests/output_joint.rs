//! A picture and a sound that name the same destination: one transport stream, one recording, one publication,
//! in step, and neither waits for the other.

#![cfg(feature = "gstreamer")]

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::Instant;

use selvedge_control_config::view::NodeView;
use selvedge_node::{Node, NodeOptions, StartError, wait_until};
use selvedge_units::Duration;

/// Longer than anything takes on a slow machine.
const SOON: Duration = Duration::from_secs(60);

/// A folder with a clip by FFmpeg, 25 pictures a second and sound for four seconds; and one second of each alone.
struct Made(tempfile::TempDir);

impl Made {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        // Every other second is black and silent.
        let card = "testsrc2=size=320x240:rate=25,noise=alls=20:allf=t,\
                    drawbox=color=black:t=fill:enable='gte(mod(t,2),1)'";
        let sound = "sine=frequency=440:sample_rate=48000,volume='lt(mod(t,2),1)':eval=frame";
        let input = ["-f", "lavfi", "-i", card, "-f", "lavfi", "-i", sound, "-c:a", "aac"];
        let x264 = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "25"];
        let rate = ["-b:v", "1M", "-threads", "1"];
        ffmpeg(&[&input[..], &x264, &rate, &["-t", "4", &made.path("clip.mp4")]].concat());
        ffmpeg(&["-f", "lavfi", "-i", sound, "-c:a", "aac", "-t", "1", &made.path("short.m4a")]);
        ffmpeg(&[
            "-i",
            &made.path("clip.mp4"),
            "-an",
            "-c",
            "copy",
            "-t",
            "1",
            &made.path("short.mp4"),
        ]);
        made
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A node that sends this picture and this sound to one destination.
    fn node(&self, picture: &str, sound: &str, to: &str) -> Result<Node, StartError> {
        let stream = |name, of: &str| {
            let is_file = !of.contains(':');
            let source = if is_file { format!("file:{}", self.path(of)) } else { of.to_owned() };
            format!("[stream.{name}]\nsource = \"{source}\"\nto = \"{to}\"\nthumbnail = false\n")
        };
        let link = "[link.up]\nrate = \"20 Mbit/s\"\n".to_owned();
        let text = link + &stream("picture", picture) + &stream("sound", sound);
        let base = self.0.path().to_owned();
        let file = "own.toml".to_owned();
        Node::start(&text, NodeOptions { base, file, ..NodeOptions::default() })
    }
}

fn ffmpeg(args: &[&str]) {
    let done = Command::new("ffmpeg").args(["-y", "-nostdin", "-v", "error"]).args(args).status();
    assert!(done.as_ref().is_ok_and(|done| done.success()), "{args:?}: {done:?}");
}

/// When the frames of a file's picture and sound are shown, in seconds.
fn shown(file: &str) -> [Vec<f64>; 2] {
    ["v:0", "a:0"].map(|track| {
        let entries = ["-show_entries", "frame=best_effort_timestamp_time", "-of", "csv=p=0"];
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "fatal", "-select_streams", track]).args(entries).arg(file);
        let text = String::from_utf8(probe.output().unwrap().stdout).unwrap();
        text.lines().filter_map(|line| line.trim_matches(',').parse().ok()).collect()
    })
}

/// How far the picture is behind the sound wherever both go dark, in milliseconds.
fn steps(file: &str) -> Vec<f64> {
    let filters = ["-vf", "blackdetect=d=0.3:pix_th=0.2", "-af", "silencedetect=d=0.3:n=-40dB"];
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-i", file]).args(filters).args(["-f", "null", "-"]);
    let text = String::from_utf8_lossy(&command.output().unwrap().stderr).replace('\r', "\n");
    let moments = |name: &str| {
        let found =
            text.lines().filter_map(|line| line.split_once(name)?.1.split_whitespace().next());
        found.filter_map(|at| at.parse().ok()).collect::<Vec<f64>>()
    };
    let (dark, silent) = (moments("black_start:"), moments("silence_start: "));
    let nearest = |dark: &f64| {
        silent.iter().map(|at| (dark - at) * 1e3).min_by(|a, b| a.abs().total_cmp(&b.abs()))
    };
    // The first picture may be dark already.
    dark.iter().filter(|at| **at > dark[0] || dark.len() == 1).filter_map(nearest).collect()
}

/// Asserts that picture and sound are as far apart as in the clip, within 40 ms.
fn assert_in_step(made: &Made, file: &str) {
    let (there, here) = (steps(&made.path("clip.mp4")), steps(file));
    println!("{file}: {here:?} ms, in the clip {there:?} ms");
    assert!(!there.is_empty() && !here.is_empty());
    assert!(here.iter().all(|here| (here - there[0]).abs() < 40.0), "{here:?} and {there:?}");
}

/// Programs, and streams in them, of a transport stream.
fn programs(file: &str) -> String {
    let mut probe = Command::new("ffprobe");
    probe.args(["-v", "fatal", "-show_entries", "program=nb_streams,pcr_pid", "-of", "csv=p=0"]);
    let out = probe.arg(file).output().unwrap().stdout;
    String::from_utf8(out).unwrap().split_whitespace().next().unwrap_or_default().to_owned()
}

/// Sends the clip once to a destination, to its end.
fn sent_whole(made: &Made, to: &str) {
    let node = made.node("clip.mp4", "clip.mp4?sound", to).unwrap_or_else(|e| panic!("{e}"));
    let detail = || node.snapshot().streams.iter().map(|s| s.detail.clone()).collect::<String>();
    assert!(wait_until(SOON, || node.is_over() && node.wait_sent(SOON, || false)), "{}", detail());
    let streams = node.stop().snapshot.streams;
    let sent: Vec<u64> = streams.iter().map(|stream| stream.sent).collect();
    assert!(sent[0] == 100 && sent[1] > 180, "{streams:?}");
}

#[test]
fn a_recording_has_both_in_step() {
    let made = Made::new();
    for name in ["day.mkv", "day.mp4"] {
        sent_whole(&made, &format!("file:{name}"));
        assert_in_step(&made, &made.path(name));
        let counts = shown(&made.path(name)).map(|times| times.len());
        assert!(counts[0] == 100 && counts[1] > 180, "{name}: {counts:?}");
    }
}

#[test]
fn a_player_by_rtsp_gets_both_in_step() {
    let made = Made::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("rtsp://127.0.0.1:{port}/talk");
    let node = made.node("clip.mp4?loop", "clip.mp4?sound&loop", &url).unwrap();
    // Both are described once they are known.
    assert!(wait_until(SOON, || {
        let options = ["-v", "fatal", "-show_entries", "stream=codec_type", "-of", "csv=p=0", &url];
        let found = Command::new("ffprobe").args(options).output().unwrap().stdout;
        found == b"video\naudio\n"
    }));
    for transport in ["tcp", "udp"] {
        let file = made.path(&format!("{transport}.mkv"));
        // RTP does not say when pictures are decoded, which a copy would need.
        let encoded = ["-t", "6", "-c:v", "mjpeg", "-c:a", "pcm_s16le", &file];
        ffmpeg(&[&["-rtsp_transport", transport, "-i", &url], &encoded[..]].concat());
        assert_in_step(&made, &file);
    }
    drop(node);
}

/// The data that arrive over UDP, up to a datagram that is too short for a transport packet.
struct Received {
    at: SocketAddr,
    reading: JoinHandle<Vec<u8>>,
}

impl Received {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let reading = std::thread::spawn(move || {
            let (mut all, mut datagram) = (Vec::new(), [0; 2000]);
            while let Ok(len @ 2..) = socket.recv(&mut datagram) {
                all.extend(&datagram[..len]);
            }
            all
        });
        Self { at, reading }
    }

    /// Writes all received data into a file.
    fn end(self, file: &str) -> Vec<u8> {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[0], self.at).unwrap();
        let all = self.reading.join().unwrap();
        std::fs::write(file, &all).unwrap();
        all
    }
}

/// The steps of a transport stream's clock, in milliseconds; the clock belongs to the stream that the
/// program names last.
fn clock_steps(stream: &[u8]) -> Vec<f64> {
    let mut of = 0;
    let mut moments = Vec::new();
    for packet in stream.chunks_exact(188) {
        let id = u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff;
        if id == 0x1000 {
            of = u16::from_be_bytes([packet[13], packet[14]]) & 0x1fff;
        }
        if id == of && packet[3] & 0x20 != 0 && packet[4] > 6 && packet[5] & 0x10 != 0 {
            let high = u32::from_be_bytes(packet[6..10].try_into().unwrap());
            moments.push(f64::from(high) * 2.0 + f64::from(packet[10] >> 7));
        }
    }
    moments.windows(2).map(|pair| (pair[1] - pair[0]) / 90.0).collect()
}

/// Asserts that the clock continues for this many seconds, never goes back and is never missing for
/// more than 100 ms and a block of sound.
fn assert_clock_goes(stream: &[u8], seconds: f64) {
    let steps = clock_steps(stream);
    let (sum, longest) = (steps.iter().sum::<f64>(), steps.iter().copied().fold(0.0, f64::max));
    println!("clock: {} steps in {sum:.0} ms, the longest {longest:.1} ms", steps.len());
    assert!(sum > seconds * 1e3 && longest < 125.0 && steps.iter().all(|step| *step > 0.0));
}

#[test]
fn a_transport_stream_has_both_in_step_and_one_clock() {
    let made = Made::new();
    let received = Received::start();
    sent_whole(&made, &format!("udp://{}", received.at));
    assert_clock_goes(&received.end(&made.path("sent.ts")), 3.8);
    assert_in_step(&made, &made.path("sent.ts"));
    let counts = shown(&made.path("sent.ts")).map(|times| times.len());
    assert!(counts[0] == 100 && counts[1] > 180, "{counts:?}");
    assert!(programs(&made.path("sent.ts")).starts_with("2,256"));
}

#[test]
fn a_picture_that_falls_silent_leaves_its_clock_to_the_sound() {
    let made = Made::new();
    let received = Received::start();
    let to = format!("udp://{}", received.at);
    let node = made.node("short.mp4", "clip.mp4?sound&loop", &to).unwrap();
    let sent = |name| node.counts(name).map_or(0, |counts| counts.totals.sent);
    assert!(wait_until(SOON, || sent("sound") > 200), "{}", sent("sound"));
    drop(node.stop());
    assert_clock_goes(&received.end(&made.path("sent.ts")), 4.0);
    let counts = shown(&made.path("sent.ts")).map(|times| times.len());
    assert!((25..30).contains(&counts[0]) && counts[1] > 190, "{counts:?}");
}

/// A port that was free a moment ago.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// FFmpeg as a camera that sends the clip's picture, and its sound if there is a place for it.
fn camera(made: &Made, picture: SocketAddr, sound: Option<SocketAddr>) -> Ffmpeg {
    let mut command = Command::new("ffmpeg");
    command.args(["-y", "-nostdin", "-v", "fatal", "-re", "-stream_loop", "-1", "-i"]);
    command.arg(made.path("clip.mp4")).args(["-map", "0:v", "-c:v", "libx264", "-g", "25"]);
    command.args(["-preset", "ultrafast", "-x264-params", "repeat-headers=1", "-f", "rtp"]);
    command.arg(format!("rtp://{picture}"));
    if let Some(sound) = sound {
        command.args(["-map", "0:a", "-c:a", "aac", "-f", "rtp", &format!("rtp://{sound}")]);
    }
    Ffmpeg(command.args(["-sdp_file", &made.path("camera.sdp")]).spawn().unwrap())
}

#[test]
fn a_picture_that_comes_late_joins_the_sound() {
    let made = Made::new();
    for to in ["udp", "day.mkv", "day.mp4"] {
        let (received, at) = (Received::start(), free());
        let place =
            if to == "udp" { format!("udp://{}", received.at) } else { format!("file:{to}") };
        let picture = format!("rtp://{at}?encoding=H264");
        let node = made.node(&picture, "clip.mp4?sound&loop", &place).unwrap();
        let sent = |name| node.counts(name).map_or(0, |counts| counts.totals.sent);
        assert!(wait_until(SOON, || sent("sound") > 100), "{}", sent("sound"));
        let _camera = camera(&made, at, None);
        // A container names its tracks in front, so that pictures begin another.
        let second = made.path(&to.replace("day", "day-2"));
        assert!(
            wait_until(SOON, || to == "udp" || Path::new(&second).exists()),
            "{to}: no second file"
        );
        let enough = sent("picture") + 120;
        assert!(wait_until(SOON, || sent("picture") > enough), "{}", sent("picture"));
        drop(node.stop());
        let stream = received.end(&made.path("sent.ts"));
        if to == "udp" {
            assert_clock_goes(&stream, 4.0);
            let counts = shown(&made.path("sent.ts")).map(|times| times.len());
            assert!(counts[0] > 40 && counts[1] > 180, "{counts:?}");
        } else {
            let [first, second] = [made.path(to), second].map(|file| shown(&file).map(|t| t.len()));
            println!("{to}: {first:?}, then {second:?}");
            assert!(first[0] == 0 && first[1] > 60, "{first:?}");
            assert!(second[0] > 10 && second[1] > 20, "{second:?}");
        }
    }
}

/// FFmpeg, for as long as a test takes.
struct Ffmpeg(Child);

impl Drop for Ffmpeg {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_publication_has_both_in_step() {
    let made = Made::new();
    let at: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (to, file) = (format!("rtmp://{at}/live/key"), made.path("got.ts"));
    let mut command = Command::new("ffmpeg");
    command.args(["-y", "-nostdin", "-v", "fatal", "-f", "flv", "-listen", "1", "-i", &to]);
    // A server of RTMP for one publication.
    let _server = Ffmpeg(
        command.args(["-c", "copy", "-flush_packets", "1", "-f", "mpegts", &file]).spawn().unwrap(),
    );
    let node = made.node("clip.mp4?loop", "clip.mp4?sound&loop", &to).unwrap();
    let got = || shown(&file).map(|times| times.len());
    let detail = || node.snapshot().streams[0].detail.clone();
    assert!(wait_until(SOON, || got()[0] > 130 && got()[1] > 240), "{:?} {}", got(), detail());
    assert_in_step(&made, &file);
}

#[test]
fn a_sound_that_falls_silent_holds_no_picture_back() {
    let made = Made::new();
    for name in ["day.mkv", "day.mp4"] {
        let node = made.node("clip.mp4?loop", "short.m4a", &format!("file:{name}")).unwrap();
        let sent = || node.counts("picture").map_or(0, |counts| counts.totals.sent);
        let mut sent_at = Vec::new();
        let began = Instant::now();
        wait_until(Duration::from_secs(4), || {
            sent_at.push((began.elapsed().as_secs_f64(), sent()));
            false
        });
        let [picture, sound] = shown(&made.path(name));
        let now = began.elapsed().as_secs_f64();
        let before = sent_at.iter().rfind(|(at, _)| *at < 4.0 - 1.0).expect("it ran").1 as usize;
        println!("{name}: {} of {before} at {now} s, {} of sound", picture.len(), sound.len());
        assert!(before > 50 && picture.len() >= before && (40..60).contains(&sound.len()));
        drop(node.stop());
    }
}

#[test]
fn two_pictures_are_refused_and_named() {
    let made = Made::new();
    let Err(StartError::File(errors)) = made.node("clip.mp4", "clip.mp4?loop", "file:day.mkv")
    else {
        panic!("one output has one picture")
    };
    let errors = errors.to_string();
    assert!(errors.starts_with("own.toml:9:6: stream.sound.to: "), "{errors}");
    assert!(errors.contains("\"picture\" goes there, too, and both are pictures"), "{errors}");
    assert!(!made.0.path().join("day.mkv").exists());
}

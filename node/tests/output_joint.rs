//! A picture and a sound that name the same destination: one transport stream, one recording, one publication,
//! in step, and neither waits for the other.

#![cfg(feature = "gstreamer")]

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command};
use std::time::Instant;

use selvedge_control_config::view::NodeView;
use selvedge_node::{Node, NodeOptions, StartError, wait_until};
use selvedge_units::Duration;

/// No slowness of the machine takes so long.
const SOON: Duration = Duration::from_secs(60);

/// A folder with a clip by FFmpeg, 25 pictures a second and sound for four seconds; and one second of sound.
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
        made
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A node that sends this picture and this sound to one destination.
    fn node(&self, picture: &str, sound: &str, to: &str) -> Result<Node, StartError> {
        let stream = |name, of: &str| {
            let source = self.path(of);
            format!(
                "[stream.{name}]\nsource = \"file:{source}\"\nto = \"{to}\"\nthumbnail = false\n"
            )
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
    // It may have begun in the dark.
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
fn a_transport_stream_has_both_in_step_and_one_clock() {
    let made = Made::new();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let reader = socket.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let (mut all, mut datagram) = (Vec::new(), [0; 2000]);
        // One that is too short for a transport packet says that there is no more.
        while let Ok(len @ 2..) = reader.recv(&mut datagram) {
            all.extend(&datagram[..len]);
        }
        all
    });
    let at = socket.local_addr().unwrap();
    sent_whole(&made, &format!("udp://{at}"));
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[0], at).unwrap();
    std::fs::write(made.path("sent.ts"), reading.join().unwrap()).unwrap();
    assert_in_step(&made, &made.path("sent.ts"));
    let counts = shown(&made.path("sent.ts")).map(|times| times.len());
    assert!(counts[0] == 100 && counts[1] > 180, "{counts:?}");
    assert!(programs(&made.path("sent.ts")).starts_with("2,256"));
}

/// FFmpeg as a server of RTMP for one publication, which it writes into a file.
struct Server(Child);

impl Drop for Server {
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
    let _server = Server(
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

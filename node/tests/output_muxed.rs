//! Outputs that GStreamer muxes: recordings of nodes that are killed at any moment, and RTMP to FFmpeg
//! as the server, with the bytes over the loopback counted.

#![cfg(feature = "gstreamer")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use selvedge_control_config::view::NodeView;
use selvedge_node::{Node, NodeOptions, StartError, wait_until};
use selvedge_units::{Bytes, Duration};

/// Longer than anything takes on a slow machine.
const SOON: Duration = Duration::from_secs(60);
/// Where a node that will be killed writes to.
const RECORDS_TO: &str = "SELVEDGE_TEST_RECORDS_TO";

/// A folder with a clip by FFmpeg: moving noise, 25 pictures a second, two seconds a group, and sound.
struct Made(tempfile::TempDir);

impl Made {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let card = "testsrc2=size=320x240:rate=25,noise=alls=20:allf=t";
        let sound = "sine=frequency=440:sample_rate=48000";
        let input = ["-f", "lavfi", "-i", card, "-f", "lavfi", "-i", sound, "-c:a", "aac"];
        let x264 = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "50"];
        let rate = ["-b:v", "1M", "-maxrate", "1M", "-bufsize", "500k", "-threads", "1"];
        let done = Command::new("ffmpeg")
            .args(["-y", "-nostdin", "-v", "error"])
            .args([&input[..], &x264, &rate, &["-t", "10", &made.path("clip.mp4")]].concat())
            .status();
        assert!(done.unwrap().success());
        made
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn node(&self, rate: &str, of_clip: &str, to: &str) -> Node {
        let clip = self.path("clip.mp4") + of_clip;
        let text = format!(
            "[link.up]\nrate = \"{rate}\"\n[stream.clip]\nsource = \"file:{clip}\"\n\
             to = \"{to}\"\nthumbnail = false\n"
        );
        let options = NodeOptions { base: self.0.path().to_owned(), ..NodeOptions::default() };
        Node::start(&text, options).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// How many frames FFmpeg decodes from the first track of a kind (`v` or `a`) in a file.
fn decoded(file: &str, kind: &str) -> u64 {
    let args = ["-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames"];
    let mut probe = Command::new("ffprobe");
    probe.args(args).args(["-select_streams", &format!("{kind}:0"), "-of", "csv=p=0", file]);
    // FFmpeg prints it twice for a transport stream.
    let text = String::from_utf8(probe.output().unwrap().stdout).unwrap();
    text.lines().next().and_then(|line| line.trim_matches(',').parse().ok()).unwrap_or(0)
}

/// Records until it is killed, and prints how many frames have been sent; only if this process was
/// started for that.
fn records_until_killed() -> bool {
    let Some(folder) = std::env::var_os(RECORDS_TO) else { return false };
    let folder = std::path::PathBuf::from(folder);
    let text = std::fs::read_to_string(folder.join("node.toml")).unwrap();
    let node = Node::start(&text, NodeOptions { base: folder, ..NodeOptions::default() }).unwrap();
    let mut last = Vec::new();
    wait_until(SOON, || {
        let streams = node.snapshot().streams;
        let sent: Vec<u64> = streams.iter().map(|stream| stream.sent).collect();
        if sent != last {
            println!("sent {}", sent.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
            last = sent;
        }
        false
    });
    true
}

/// For each track of a recording, in a process of its own that is killed `after` its first frame was
/// sent: the frames sent a second before, and the frames that can be read.
fn killed(made: &Made, name: &str, kinds: &str, after: Duration) -> Vec<(u64, u64)> {
    let folder = made.0.path().join(format!("of-{name}"));
    std::fs::create_dir(&folder).unwrap();
    let stream = |kind| {
        let (clip, of) = (made.path("clip.mp4"), if kind == 'a' { "sound&" } else { "" });
        let source = format!("source = \"file:{clip}?{of}loop\"");
        format!("[stream.{kind}]\n{source}\nto = \"file:{name}\"\nthumbnail = false\n")
    };
    let streams: String = kinds.chars().map(stream).collect();
    let text = format!("[link.up]\nrate = \"3 Mbit/s\"\n{streams}");
    std::fs::write(folder.join("node.toml"), text).unwrap();
    let test = "of_a_killed_recording_all_but_the_last_second_is_read";
    let mut node = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(RECORDS_TO, &folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(node.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut seen: Vec<(Instant, Vec<u64>)> = Vec::new();
    for line in lines {
        let Some(sent) = line.strip_prefix("sent ") else { continue };
        let sent: Vec<u64> = sent.split(' ').map(|sent| sent.parse().unwrap()).collect();
        seen.extend(sent.iter().any(|sent| *sent > 0).then(|| (Instant::now(), sent)));
        if seen.first().is_some_and(|(first, _)| first.elapsed() > after.to_std()) {
            break;
        }
    }
    node.kill().unwrap();
    let end = Instant::now();
    node.wait().unwrap();
    let before = seen.into_iter().rfind(|(at, _)| (end - *at).as_secs_f64() > 1.0);
    let sent = before.expect("it ran for more than a second").1;
    let file = folder.join(name).display().to_string();
    sent.into_iter()
        .zip(kinds.chars())
        .map(|(n, kind)| (n, decoded(&file, &kind.to_string())))
        .collect()
}

#[test]
fn of_a_killed_recording_all_but_the_last_second_is_read() {
    if records_until_killed() {
        return;
    }
    let made = Made::new();
    // Moments by a fixed seed.
    let moments = (0..12_u64).map(|n| 1500 + (n * 2_654_435_761 + 7) % 3500);
    let results: Vec<_> = std::thread::scope(|scope| {
        let made = &made;
        let runs = moments.enumerate().map(|(n, ms)| {
            let name = format!("{n}.{}", if n % 2 == 0 { "mkv" } else { "mp4" });
            // A picture alone, and with its sound.
            let kinds = if n % 4 < 2 { "v" } else { "va" };
            scope.spawn(move || (killed(made, &name, kinds, Duration::from_millis(ms)), ms, name))
        });
        runs.collect::<Vec<_>>().into_iter().map(|run| run.join().unwrap()).collect()
    });
    println!("{results:?}");
    for (tracks, ms, name) in results {
        for (sent, read) in tracks {
            assert!(sent > 5 && read >= sent, "{name}, killed after {ms} ms: {read} of {sent}");
        }
    }
}

#[test]
fn a_recording_that_ends_is_whole_and_overwrites_none() {
    let made = Made::new();
    for (to, name) in [("day.mkv", "day.mkv"), ("day.mkv", "day-2.mkv"), ("day.mp4", "day.mp4")] {
        let node = made.node("20 Mbit/s", "", &format!("file:{to}"));
        assert!(wait_until(SOON, || node.is_over() && node.wait_sent(SOON, || false)));
        let ended = node.stop();
        let sent = ended.snapshot.streams[0].sent;
        assert_eq!(ended.snapshot.streams[0].detail, "");
        assert_eq!((decoded(&made.path(name), "v"), sent), (250, 250), "{name}");
    }
}

/// FFmpeg as a server of RTMP for one stream, which it writes into a file.
struct Server(Child);

impl Server {
    fn start(at: SocketAddr, file: &str) -> Self {
        let from = format!("rtmp://{at}/live/hush-hush");
        let mut command = Command::new("ffmpeg");
        command.args(["-y", "-nostdin", "-v", "fatal", "-f", "flv", "-listen", "1", "-i", &from]);
        command.args(["-c", "copy", "-flush_packets", "1", "-f", "mpegts", file]);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of the loopback that was free a moment ago.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Passes one connection on as soon as there is a server, and counts the bytes to it.
fn counted(server: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, count) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        let mut node = listener.accept().unwrap().0;
        let mut there = None;
        wait_until(SOON, || {
            there = TcpStream::connect(server).ok();
            there.is_some()
        });
        let mut there = there.expect("a server");
        let (mut from, mut back) = (there.try_clone().unwrap(), node.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut back));
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = node.read(&mut bytes) {
            counter.fetch_add(len as u64, Ordering::Relaxed);
            if there.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
    });
    (at, count)
}

#[test]
fn rtmp_keeps_the_rate_and_hides_its_key() {
    let made = Made::new();
    for (of_clip, kind, rate) in [("?loop", "v", 700_000), ("?sound", "a", 4_000_000)] {
        let (server, file) = (free(), made.path(&format!("{rate}.ts")));
        let (at, count) = counted(server);
        let to = format!("rtmp://{at}/live/hush-hush");
        let _server = Server::start(server, &file);
        let node = made.node(&format!("{rate} bit/s"), of_clip, &to);
        let shown = || node.snapshot().streams[0].clone();
        assert_eq!(shown().to, format!("rtmp://{at}/live/***"));
        assert!(wait_until(SOON, || shown().detail.is_empty()), "{}", shown().detail);
        assert!(wait_until(SOON, || node.counts("clip").unwrap().totals.sent > 20));
        let (begun, before) = (Instant::now(), count.load(Ordering::Relaxed));
        assert!(wait_until(SOON, || decoded(&file, kind) > 60), "{} decoded", decoded(&file, kind));
        let bytes = count.load(Ordering::Relaxed) - before;
        // With IP and TCP headers on each full segment. A second's worth may have waited at the server.
        let wire = Bytes(bytes + bytes.div_ceil(1448) * 52);
        let most = begun.elapsed().as_secs_f64() * rate as f64 / 8.0 + 20_000.0;
        println!("{of_clip}: {wire} of at most {most} B");
        assert!((wire.0 as f64) < most, "{wire} of at most {most} B");
        assert!(!format!("{:?}", node.snapshot()).contains("hush"));
        drop(node.stop());
    }
}

#[test]
fn rtmp_that_nobody_answers_says_so_without_the_key() {
    let made = Made::new();
    let node = made.node("2 Mbit/s", "?loop", &format!("rtmp://{}/live/hush-hush", free()));
    let detail = || node.snapshot().streams[0].detail.clone();
    assert!(wait_until(SOON, || detail().contains("failed")), "{}", detail());
    assert!(!format!("{:?}", node.snapshot()).contains("hush"), "{}", detail());
    let text = "[link.up]\nrate = \"6 Mbit/s\"\n[stream.a]\nsource = \"test:jpeg\"\n\
                to = \"rtmp://127.0.0.1:9/live/hush-hush\"\n";
    let Err(StartError::File(errors)) = Node::start(text, NodeOptions::default()) else {
        panic!("JPEG has no place in RTMP")
    };
    let errors = errors.to_string();
    assert!(errors.contains("rtmp:// does not carry JPEG, but H264"), "{errors}");
    assert!(!errors.contains("hush"), "{errors}");
}

//! A file with picture and sound as two streams of a node: what `check` says of it, and how the streams
//! keep together where they are received.

mod support;

use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::{
    Folder, Running, Stream, TIMEOUT, ffmpeg, http, node_file, selvedge, skipped, until,
};

/// How far the streams may drift apart, in milliseconds.
const APART: f64 = 40.0;

/// Three seconds of picture and sound; `None` without FFmpeg.
fn clip(folder: &Folder) -> Option<PathBuf> {
    let path = folder.join("both.mp4");
    ffmpeg([
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=160x120:rate=25",
        "-f",
        "lavfi",
        "-i",
        "sine=sample_rate=48000",
        "-t",
        "3",
        "-c:v",
        "libx264",
        "-g",
        "25",
        "-bf",
        "0",
        "-c:a",
        "aac",
        path.to_str().expect("a plain path"),
    ])
    .then_some(path)
}

/// What arrives for so long: milliseconds since the beginning, less the RTP time of each packet that
/// ends a frame.
fn delays(socket: &UdpSocket, clock: f64, began: Instant, lasts: Duration) -> Vec<f64> {
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
    let mut packet = [0; 2048];
    let mut delays = Vec::new();
    while began.elapsed() < lasts {
        let Ok(len) = socket.recv(&mut packet) else { continue };
        if len > 12 && packet[1] & 0x80 != 0 {
            let stamp = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
            let arrived = began.elapsed().as_secs_f64() * 1e3;
            delays.push(arrived - f64::from(stamp) * 1e3 / clock);
        }
    }
    delays
}

#[test]
fn picture_and_sound_of_a_file_keep_together_where_they_are_received() {
    let name = "picture_and_sound_of_a_file_keep_together_where_they_are_received";
    let folder = Folder::new();
    let Some(path) = clip(&folder) else { return skipped(name, "needs ffmpeg") };
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    let to = |n: usize| sockets[n].local_addr().expect("it is bound");
    let source = |option: &str| format!("file:{}?{option}loop", path.display());
    let streams = [
        Stream { name: "picture", source: source(""), to: to(0), more: "" },
        Stream { name: "sound", source: source("sound&"), to: to(1), more: "" },
    ];
    let file = folder.write("node.toml", node_file("rate = \"20 Mbit/s\"", &streams));
    let shown = file.to_str().expect("a plain path");
    let checked = selvedge(["check", shown]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("sound: it keeps within 40 ms of picture"), "{checked:?}");

    let mut node = Running::selvedge(["run", shown]);
    node.page();
    let (began, lasts) = (Instant::now(), Duration::from_secs(10));
    let received = std::thread::scope(|scope| {
        let sound = scope.spawn(|| delays(&sockets[1], 48_000.0, began, lasts));
        [delays(&sockets[0], 90_000.0, began, lasts), sound.join().expect("no panic")]
    });
    node.signal("INT");
    assert_eq!(node.end(TIMEOUT).code, Some(0));
    let third = |all: &[f64], n: usize| {
        let mut part = all[all.len() * n / 3..all.len() * (n + 1) / 3].to_vec();
        part.sort_by(f64::total_cmp);
        part[part.len() / 2]
    };
    let apart = [0, 1, 2].map(|n| third(&received[0], n) - third(&received[1], n));
    let drift = apart.map(|ms| ms - apart[0]);
    println!("apart by {apart:.1?} ms, which changed by {drift:.1?} ms over three loops");
    assert!(apart.iter().all(|ms| ms.abs() < APART), "{apart:?}");
}

#[test]
fn sound_that_is_added_or_begins_anew_joins_its_picture() {
    let name = "sound_that_is_added_or_begins_anew_joins_its_picture";
    let folder = Folder::new();
    let Some(path) = clip(&folder) else { return skipped(name, "needs ffmpeg") };
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    let to = |n: usize| sockets[n].local_addr().expect("it is bound");
    let source = |option: &str| format!("file:{}?{option}loop", path.display());
    let write = |of_picture, sound: &[&'static str]| {
        let picture = Stream { name: "picture", source: source(""), to: to(0), more: of_picture };
        let sound = sound.iter().map(|&more| {
            let source = source("sound&");
            Stream { name: "sound", source, to: to(1), more }
        });
        let streams: Vec<Stream> = std::iter::once(picture).chain(sound).collect();
        folder.write("node.toml", node_file("rate = \"20 Mbit/s\"", &streams))
    };
    let file = write("", &[]);
    let mut node = Running::selvedge(["run".as_ref(), file.as_os_str()]);
    let page = node.page();
    // A second of it, alone.
    let mut alone = 0;
    until("the picture plays", || {
        let now = Instant::now();
        alone += delays(&sockets[0], 90_000.0, now, Duration::from_millis(200)).len();
        alone > 25
    });
    let began = Instant::now();
    let median = |all: &[f64]| {
        let mut all = all.to_vec();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    // In the middle of the first pass the sound is added, of the next it begins anew, then the picture does.
    for (pass, of_picture, of_sound, new) in [
        (0, "", "", "stream.sound"),
        (1, "", "late = \"send\"", "stream.sound"),
        (2, "late = \"send\"", "late = \"send\"", "stream.picture"),
    ] {
        write(of_picture, &[of_sound]);
        let (status, answer) = http::request(&page, "POST", "/api/v1/reload", "");
        assert!(status == 200 && answer.contains(new), "{answer}");
        let lasts = Duration::from_millis(4500 + 4300 * pass);
        let [shown, heard] = std::thread::scope(|scope| {
            let sound = scope.spawn(|| delays(&sockets[1], 48_000.0, began, lasts));
            [delays(&sockets[0], 90_000.0, began, lasts), sound.join().expect("no panic")]
        });
        let apart = median(&shown) - median(&heard);
        println!("pass {pass}: {} and {} frames, apart by {apart:.1} ms", shown.len(), heard.len());
        assert!(shown.len() > 30 && heard.len() > 60, "{} and {}", shown.len(), heard.len());
        assert!(apart.abs() < APART, "pass {pass}: {apart} ms");
    }
    node.signal("INT");
    assert_eq!(node.end(TIMEOUT).code, Some(0));
}

#[test]
fn sound_that_no_stream_sends_is_named() {
    let name = "sound_that_no_stream_sends_is_named";
    let folder = Folder::new();
    let Some(path) = clip(&folder) else { return skipped(name, "needs ffmpeg") };
    let source = format!("file:{}", path.display());
    let to = support::sink().1;
    let stream = Stream { name: "picture", source, to, more: "" };
    let file = folder.write("node.toml", node_file("rate = \"20 Mbit/s\"", &[stream]));
    let checked = selvedge(["check".as_ref(), file.as_os_str()]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("has sound, too (mpeg4-generic)"), "{checked:?}");
    assert!(checked.stdout.contains("both.mp4?sound\""), "{checked:?}");
}

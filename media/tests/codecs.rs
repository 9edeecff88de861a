//! Encodings that are carried as they are: from files that FFmpeg makes, through our packets, to FFmpeg
//! and GStreamer as receivers that know nothing of our extensions.

#![cfg(feature = "gstreamer")]

mod support;

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_control_config::SourceUri;
use selvedge_data_stream::Kind;
use selvedge_media::inspect::PAYLOAD_MAX;
use selvedge_media::sdp::{Described, Session};
use selvedge_media::{Codec, End, MediaFrame, Source};
use support::{open, take};

/// Files by FFmpeg: name, encoder options, codec that is carried, number of units.
const MADE: [(&str, &[&str], Codec, usize); 8] = [
    ("h265.mp4", &["-c:v", "libx265", "-preset", "ultrafast", "-g", "25", "-an"], Codec::H265, 50),
    ("h265.ts", &["-c:v", "libx265", "-preset", "ultrafast", "-bf", "0", "-an"], Codec::H265, 50),
    ("vp8.webm", &["-c:v", "libvpx", "-deadline", "realtime", "-an"], Codec::Vp8, 50),
    ("vp9.webm", &["-c:v", "libvpx-vp9", "-deadline", "realtime", "-an"], Codec::Vp9, 50),
    (
        "av1.mkv",
        &["-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-an"],
        Codec::Av1,
        50,
    ),
    ("aac.mp4", &["-vn", "-c:a", "aac"], Codec::Aac, 94),
    ("aac.ts", &["-vn", "-c:a", "aac"], Codec::Aac, 94),
    ("opus.ogg", &["-vn", "-c:a", "libopus"], Codec::Opus, 100),
];

fn make(folder: &Path, name: &str, encode: &[&str]) -> SourceUri {
    let path = folder.join(name);
    let picture = ["-f", "lavfi", "-i", "testsrc2=size=160x120:rate=25"];
    let sound = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"];
    let mut command = Command::new("ffmpeg");
    command.args(["-y", "-nostdin", "-v", "error"]).args(picture).args(sound).args(encode);
    let done = command.args(["-t", "2"]).arg(&path).status();
    assert!(done.as_ref().is_ok_and(|done| done.success()), "{name}: {done:?}");
    support::file(path.to_str().unwrap(), true)
}

#[test]
fn encodings_are_carried_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for (name, encode, codec, units) in MADE {
        make(folder.path(), name, encode);
        let once = support::file(folder.path().join(name).to_str().unwrap(), false);
        let mut source = open(&once).unwrap_or_else(|e| panic!("{e}"));
        let info = source.info().clone();
        assert_eq!(info.codec, codec, "{name}");
        let (frames, end) = take(&mut source, usize::MAX);
        assert_eq!(end, Ok(End::Eos { note: None }), "{name}");
        assert!(frames.len().abs_diff(units) <= 4, "{name}: {} units", frames.len());
        let last = |bytes: &Vec<u8>| bytes[1] & 0x80 != 0;
        // Each packet of Opus stands alone.
        let marked = frames.iter().all(|f| last(f.packets.last().unwrap()));
        assert!(marked || codec == Codec::Opus, "{name}: no marker");
        let kinds: Vec<Kind> = frames.iter().map(|frame| frame.picture.kind).collect();
        if codec.is_audio() {
            assert!(kinds.iter().all(|kind| *kind == Kind::Audio), "{name}");
            assert_eq!(info.channels, Some(if codec == Codec::Opus { 2 } else { 1 }));
        } else {
            assert!(
                kinds[0] == Kind::Intra && kinds.contains(&Kind::Predicted),
                "{name}: {kinds:?}"
            );
            assert_eq!((info.width, info.period.0), (Some(160), 40_000_000), "{name}");
            let read = frames.iter().filter(|frame| frame.picture.refs.is_some()).count();
            assert_eq!(read, frames.len(), "{name}: headers not read");
        }
    }
}

/// Lets FFmpeg receive by the SDP, and returns its decoded frames, as lines of `framemd5`.
fn received_by_ffmpeg(folder: &Path, uri: &SourceUri) -> Vec<String> {
    let to = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut source = Source::open(uri, Path::new(""), PAYLOAD_MAX).unwrap();
    let streams = vec![Described::new(source.info(), to)];
    let sdp = folder.join("to.sdp");
    std::fs::write(&sdp, Session { name: "x".into(), streams }.to_string()).unwrap();
    let out = folder.join("out.md5");
    let _ = std::fs::remove_file(&out);
    let mut receiver = Command::new("ffmpeg")
        .args(["-y", "-nostdin", "-v", "error", "-protocol_whitelist", "file,udp,rtp"])
        .args(["-reorder_queue_size", "0", "-listen_timeout", "3", "-i"])
        .arg(&sdp)
        .args(["-vsync", "passthrough", "-t", "1.5", "-f", "framemd5"])
        .arg(&out)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let table = format!(":{:04X} ", to.port());
    selvedge_tests_wait::until("FFmpeg listens", || {
        std::fs::read_to_string("/proc/net/udp").unwrap().contains(&table)
    });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut number = 0_u16;
    let mut sink = |frame: MediaFrame<'_>| {
        for packet in frame.packets {
            let mut packet = packet.to_vec();
            packet[2..4].copy_from_slice(&number.to_be_bytes());
            packet[8..12].copy_from_slice(&7_u32.to_be_bytes());
            number = number.wrapping_add(1);
            // Refused once FFmpeg has received enough.
            let _ = socket.send_to(&packet, to);
        }
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ends = || receiver.try_wait().unwrap().is_some();
            let ended = selvedge_tests_wait::holds_within(std::time::Duration::from_secs(60), ends);
            if !ended {
                let _ = receiver.kill();
                let _ = receiver.wait();
            }
            stop.store(true, Ordering::Relaxed);
        });
        source.run(&mut sink, &stop).unwrap();
    });
    let lines = std::fs::read_to_string(&out).unwrap_or_default();
    lines.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn ffmpeg_decodes_what_is_carried() {
    let folder = tempfile::tempdir().unwrap();
    for (name, encode, codec, units) in MADE {
        // FFmpeg of Debian 12 can't depacketize AV1.
        if codec == Codec::Av1 {
            continue;
        }
        let uri = make(folder.path(), name, encode);
        let decoded = received_by_ffmpeg(folder.path(), &uri);
        println!("{name}: {} of {units} units decoded", decoded.len());
        assert!(decoded.len() * 10 >= units * 7, "{name}: {} of {units}", decoded.len());
    }
}

/// The temporal unit that a receiver assembles from packets, in the low-overhead format.
fn unpacked(packets: &[Vec<u8>]) -> Vec<u8> {
    fn number(bytes: &[u8]) -> (usize, usize) {
        let len = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let low = |(n, byte): (usize, &u8)| usize::from(byte & 0x7f) << (7 * n);
        (bytes[..len].iter().enumerate().map(low).sum(), len)
    }
    let mut elements: Vec<Vec<u8>> = Vec::new();
    for packet in packets {
        let (mut goes_on, mut rest) = (packet[12] & 0x80 != 0, &packet[13..]);
        while !rest.is_empty() {
            let (size, len) = number(rest);
            let part = &rest[len..len + size];
            match elements.last_mut() {
                Some(element) if goes_on => element.extend_from_slice(part),
                _ => elements.push(part.to_vec()),
            }
            (rest, goes_on) = (&rest[len + size..], false);
        }
    }
    let mut unit = vec![0x12, 0];
    for element in elements {
        assert_eq!(element[0] & 0x06, 0, "neither an extension nor a size");
        unit.push(element[0] | 0x02);
        let mut size = element.len() - 1;
        while size >= 0x80 {
            unit.push(size as u8 | 0x80);
            size >>= 7;
        }
        unit.push(size as u8);
        unit.extend_from_slice(&element[1..]);
    }
    unit
}

#[test]
fn av1_comes_out_of_packets_as_it_went_in() {
    let folder = tempfile::tempdir().unwrap();
    let (name, encode, ..) = MADE.into_iter().find(|made| made.2 == Codec::Av1).unwrap();
    let uri = make(folder.path(), name, encode);
    let mut source = Source::open(&uri, Path::new(""), 300).unwrap();
    let (frames, _) = take(&mut source, 50);
    assert!(frames.iter().any(|frame| frame.packets.len() > 3), "nothing was cut");
    let units: Vec<u8> = frames.iter().flat_map(|frame| unpacked(&frame.packets)).collect();
    let received = folder.path().join("received.obu");
    std::fs::write(&received, units).unwrap();
    let pictures = |path: &Path| {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error", "-i"]).arg(path);
        let done = command.args(["-vsync", "passthrough", "-f", "framemd5", "-"]).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        let hash = |line: &str| line.rsplit(' ').next().map(str::to_owned);
        text.lines().filter(|line| !line.starts_with('#')).filter_map(hash).collect::<Vec<_>>()
    };
    let (sent, received) = (pictures(&folder.path().join(name)), pictures(&received));
    assert_eq!(sent.len(), 50);
    assert_eq!(received, sent);
}

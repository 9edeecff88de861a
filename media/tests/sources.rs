//! Sources other than the clips: test cards, launch lines, the network, and broken ones.

#![cfg(feature = "gstreamer")]

mod support;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use selvedge_control_config::SourceUri;
use selvedge_data_stream::Kind;
use selvedge_media::{Codec, End, MediaFrame, SourceError};
use selvedge_units::Duration;
use support::{Seen, clips, file, open, take};

fn test(what: &str) -> SourceUri {
    SourceUri::Test(what.into())
}

fn launch(line: &str) -> SourceUri {
    SourceUri::Launch { line: line.into(), bitrate: None }
}

fn count(frames: &[Seen], kind: Kind) -> usize {
    frames.iter().filter(|frame| frame.picture.kind == kind).count()
}

/// The error of a source.
fn refusal(uri: &SourceUri) -> SourceError {
    open(uri).expect_err("this source can't be opened")
}

#[test]
fn the_test_card_has_all_three_kinds() {
    for what in ["video?rate=30&size=160x120", "mpeg2?rate=30&size=160x120"] {
        let mut source = open(&test(what)).unwrap();
        let info = source.info().clone();
        assert_eq!((info.width, info.height), (Some(160), Some(120)));
        assert_eq!(info.period, Duration(33_333_333));
        let (frames, end) = take(&mut source, 90);
        assert_eq!(end, Ok(End::Stopped));
        let (i, p) = (count(&frames, Kind::Intra), count(&frames, Kind::Predicted));
        let b = count(&frames, Kind::Bidirectional);
        assert!(
            (3..=8).contains(&i) && p >= 20 && b >= 50 && i + p + b == 90,
            "{what}: {i} {p} {b}"
        );
        assert!(
            frames
                .iter()
                .filter(|f| f.picture.kind == Kind::Bidirectional)
                .all(|f| { !f.picture.referenced && !f.picture.closes })
        );
    }
}

#[test]
fn test_images_and_sound_stand_alone() {
    let mut card = open(&test("jpeg?rate=10&size=64x48")).unwrap();
    assert_eq!((card.info().codec, card.info().width), (Codec::Jpeg, Some(64)));
    let (frames, _) = take(&mut card, 5);
    assert_eq!(count(&frames, Kind::Still), 5);
    assert!(frames.iter().all(|f| f.media_time == f.decode_time && !f.packets.is_empty()));
    assert_eq!(frames[4].decode_time, Duration::from_millis(400));
    let mut tone = open(&test("audio?rate=8000")).unwrap();
    assert_eq!((tone.info().clock_rate, tone.info().period), (8_000, Duration::from_millis(20)));
    let (frames, _) = take(&mut tone, 50);
    assert_eq!(count(&frames, Kind::Audio), 50);
    assert_eq!(frames[49].rtp_timestamp, 49 * 160);
}

#[test]
fn a_launch_line_gives_what_it_ends_in() {
    let line = "videotestsrc num-buffers=30 ! video/x-raw,framerate=10/1,width=64,height=48 ! \
                x264enc bframes=2 b-adapt=false rc-lookahead=2";
    let mut source = open(&launch(line)).unwrap();
    assert_eq!(source.info().period, Duration::from_millis(100));
    let (frames, end) = take(&mut source, 1000);
    assert_eq!((frames.len(), end), (30, Ok(End::Eos { note: None })));
    assert!(count(&frames, Kind::Bidirectional) >= 15);
    let line = line.split_once(" ! x264enc").unwrap().0.to_owned() + " ! x265enc ! h265parse";
    assert_eq!(open(&launch(&line)).unwrap().info().codec, Codec::H265);
}

#[test]
fn a_live_line_comes_in_its_own_time() {
    let line = "videotestsrc is-live=true ! \
                video/x-raw,format=I420,framerate=20/1,width=64,height=48 ! jpegenc";
    let mut source = open(&launch(line)).unwrap();
    let stop = AtomicBool::new(false);
    let mut times = Vec::new();
    let end = source.run(
        &mut |frame: MediaFrame<'_>| {
            times.push(frame.decode_time);
            stop.store(times.len() == 10, Ordering::Relaxed);
        },
        &stop,
    );
    assert_eq!(end, Ok(End::Stopped));
    assert!(times.windows(2).all(|w| w[0] <= w[1]));
    let span = times[9] - times[0];
    assert!(span >= Duration::from_millis(400), "ten pictures at 20 per second took {span}");
}

#[test]
fn a_line_that_does_not_end_in_encoded_media_is_explained() {
    for (line, reason) in [
        ("videotestsrc", "unencoded video"),
        ("videotestsrc ! fakesink", "nothing comes out"),
        ("videotestsrc no-such=1 ! x264enc", "no property \"no-such\""),
        ("videotestsrc ! ! x264enc", "syntax error"),
        ("", "empty"),
    ] {
        let error = refusal(&launch(line));
        assert!(matches!(error, SourceError::Launch { .. }), "{line}: {error}");
        assert!(error.to_string().contains(reason), "{line}: {error}");
        assert!(error.to_string().contains("! x264enc"), "{line}: {error}");
    }
}

#[test]
fn an_element_that_is_not_there_is_named() {
    let error = refusal(&launch("no-such-element ! x264enc"));
    let element = "no-such-element".into();
    assert_eq!(error, SourceError::ElementAbsent { element });
    assert!(error.to_string().contains("gst-inspect-1.0"), "{error}");
}

#[test]
fn what_is_no_media_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        file(path.to_str().unwrap(), false)
    };
    let absent = refusal(&file("no-such-clip.mp4", false));
    assert!(matches!(absent, SourceError::NotFound { .. }), "{absent}");
    assert!(absent.to_string().contains("no-such-clip.mp4"));
    assert!(absent.to_string().contains("relative to the node file"));
    for (uri, found) in [
        (file(".", false), "a folder"),
        (file("/dev/zero", false), "a device"),
        (write("empty.mp4", b""), "an empty file"),
        // The words that follow are GStreamer's, and differ from release to release.
        (
            write("notes.mp4", b"Dear diary, today I did not film anything at all.\n"),
            "not a video or audio file",
        ),
        (write("noise.mp4", &noise(100_000)), "not a video or audio file"),
    ] {
        let error = refusal(&uri);
        assert!(matches!(error, SourceError::NotMedia { .. }), "{uri:?}: {error}");
        assert!(error.to_string().contains(found), "{uri:?}: {error}");
    }
}

#[test]
fn an_encoding_that_is_not_carried_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("theora.mkv");
    let line = format!(
        "videotestsrc num-buffers=5 ! video/x-raw,width=64,height=48 ! theoraenc ! matroskamux ! \
         filesink location={}",
        out.display()
    );
    support::play(&line);
    let error = refusal(&file(out.to_str().unwrap(), false));
    assert!(matches!(error, SourceError::CodecUnsupported { .. }), "{error}");
    assert!(
        error.to_string().contains("Theora") && error.to_string().contains("libx264"),
        "{error}"
    );
}

#[test]
fn images_that_rtp_can_not_carry_are_refused_with_the_reason() {
    for (line, reason) in [
        ("video/x-raw,width=2048,height=64 ! jpegenc", "2048x64"),
        ("video/x-raw,format=Y444,width=64,height=64 ! jpegenc", "4:2:0"),
    ] {
        let error = refusal(&launch(&format!("videotestsrc num-buffers=3 ! {line}")));
        assert!(matches!(error, SourceError::Jpeg { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.to_string().contains("-huffman default"), "{error}");
    }
}

#[test]
fn options_are_checked_before_anything_starts() {
    assert!(refusal(&test("video?rate=fast")).to_string().contains("rate=25"));
    let uri = SourceUri::Rtp {
        listen: "127.0.0.1:0".parse().unwrap(),
        encoding: "AV1".into(),
        clock: 90_000,
        payload_type: None,
        from: None,
    };
    assert!(refusal(&uri).to_string().contains("MPV, JPEG or L16"));
    let camera = SourceUri::Camera("/dev/no-such-camera".into());
    assert!(refusal(&camera).to_string().contains("v4l2-ctl"));
}

/// Random bytes, the same in every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_file_that_is_cut_off_plays_as_far_as_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["captions-test.ts", "one-by-one-mpeg2.ts", "one-by-one-mjpeg.avi"] {
        let mut whole = std::fs::read(clips().join(name)).unwrap();
        let path = dir.path().join(name);
        if name.ends_with("avi") {
            std::fs::write(&path, &whole[..whole.len() / 2 + 7]).unwrap();
            let error = refusal(&file(path.to_str().unwrap(), false));
            let says_so = matches!(&error, SourceError::CutOff { declared, .. }
                if declared.0 == whole.len() as u64);
            assert!(says_so, "{error}");
            // A length that was never written.
            whole[4..8].fill(0);
        }
        std::fs::write(&path, &whole[..whole.len() / 2 + 7]).unwrap();
        let all = take(&mut open(&file(name, false)).unwrap(), usize::MAX).0.len();
        let mut source = open(&file(path.to_str().unwrap(), false)).unwrap();
        let (frames, end) = take(&mut source, usize::MAX);
        assert!(matches!(end, Ok(End::Eos { .. })), "{name}: {end:?}");
        let n = frames.len();
        assert!((all / 5..all * 4 / 5).contains(&n), "{name}: {n} of {all} frames");
    }
    // An index at the front and data that ends too early.
    let line = format!(
        "filesrc location={} ! qtdemux ! h264parse ! mp4mux faststart=true ! filesink location={}",
        clips().join("one-by-one-person-detection.mp4").display(),
        dir.path().join("front.mp4").display()
    );
    support::play(&line);
    let mut front = std::fs::read(dir.path().join("front.mp4")).unwrap();
    // To the end of the file, wherever that is.
    let media = front.windows(4).position(|word| word == b"mdat").unwrap();
    front[media - 4..media].fill(0);
    let path = dir.path().join("cut.mp4");
    std::fs::write(&path, &front[..front.len() / 2]).unwrap();
    let mut source = open(&file(path.to_str().unwrap(), false)).unwrap();
    let (frames, end) = take(&mut source, usize::MAX);
    let Ok(End::Eos { note: Some(note) }) = end else { panic!("{end:?}") };
    assert!(note.contains("of 139") && note.contains("cut off"), "{note}");
    assert!((400..1000).contains(&frames.len()), "{}", frames.len());
    // And one whose index was at the end, and is gone.
    let line = line.replace("faststart=true", "faststart=false").replace("front.mp4", "back.mp4");
    support::play(&line);
    let back = std::fs::read(dir.path().join("back.mp4")).unwrap();
    std::fs::write(&path, &back[..back.len() / 2]).unwrap();
    let error = refusal(&file(path.to_str().unwrap(), false));
    assert!(matches!(error, SourceError::CutOff { .. }), "{error}");
}

#[test]
fn damage_in_the_middle_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let junk = noise(60_000);
    for name in ["captions-test.ts", "one-by-one-mpeg2.ts", "one-by-one-mjpeg.avi"] {
        let mut bytes = std::fs::read(clips().join(name)).unwrap();
        let at = bytes.len() / 3;
        bytes[at..at + 20_000].copy_from_slice(&junk[..20_000]);
        for k in (at..bytes.len()).step_by(5_003) {
            bytes[k] ^= junk[k % junk.len()];
        }
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let mut source = open(&file(path.to_str().unwrap(), false)).unwrap();
        let (frames, end) = take(&mut source, usize::MAX);
        assert!(matches!(end, Ok(End::Eos { .. })), "{name}: {end:?}");
        assert!(frames.len() > 20, "{name}: {} frames", frames.len());
        let times = frames.iter().map(|f| f.decode_time).collect::<Vec<_>>();
        assert!(times.windows(2).all(|w| w[0] <= w[1]), "{name}: time goes back");
    }
}

#[test]
fn packets_from_the_network_become_frames_again() {
    for (name, kinds) in [
        ("one-by-one-mpeg2.ts", [Kind::Intra, Kind::Predicted, Kind::Bidirectional].as_slice()),
        ("captions-test.ts", &[Kind::Intra, Kind::Predicted, Kind::Bidirectional]),
        ("one-by-one-mjpeg.avi", &[Kind::Still]),
        ("10001-90210-01803.wav", &[Kind::Audio]),
    ] {
        let mut file = open(&file(name, true)).unwrap();
        let info = file.info().clone();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let encoding = match info.codec {
            Codec::L16 => "L16/16000/1".to_owned(),
            codec => codec.encoding().to_owned(),
        };
        let payload_type = Some(info.payload_type);
        let uri =
            SourceUri::Rtp { listen: free, encoding, clock: 90_000, payload_type, from: None };
        let mut source = open(&uri).unwrap();
        assert_eq!(source.info().codec, info.codec);
        let done = AtomicBool::new(false);
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let began = Instant::now();
                let sent = file.run(
                    &mut |frame: MediaFrame<'_>| {
                        let send = |bytes: &[u8]| drop(socket.send_to(bytes, free));
                        send(b"");
                        send(b"no packet at all");
                        send(&[0x80, 127, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
                        send(&[0xff; 40]);
                        frame.packets.iter().for_each(|packet| send(packet));
                        if began.elapsed() > StdDuration::from_secs(30) {
                            done.store(true, Ordering::Relaxed);
                        }
                    },
                    &done,
                );
                assert_eq!(sent, Ok(End::Stopped));
            });
            let result = source.run(
                &mut |frame: MediaFrame<'_>| {
                    seen.push(frame.picture.kind);
                    let all = kinds.iter().all(|kind| seen.contains(kind)) && seen.len() >= 8;
                    if all {
                        done.store(true, Ordering::Relaxed);
                    }
                },
                &done,
            );
            done.store(true, Ordering::Relaxed);
            assert_eq!(result, Ok(End::Stopped), "{name}");
        });
        assert!(kinds.iter().all(|kind| seen.contains(kind)), "{name}: {seen:?}");
        assert!(seen.iter().all(|kind| kinds.contains(kind)), "{name}: {seen:?}");
    }
}

#[test]
fn a_silent_port_opens_and_stops() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let uri = SourceUri::Rtp {
        listen: free,
        encoding: "H264".into(),
        clock: 90_000,
        payload_type: None,
        from: None,
    };
    let mut source = open(&uri).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| source.run(&mut |_: MediaFrame<'_>| {}, &stop));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(run.join().unwrap(), Ok(End::Stopped));
    });
}

/// Sound packets of a stream, one after the other, all of the same sample.
fn sound(number: u16, source: u8, sample: u8) -> Vec<u8> {
    let mut packet = vec![0x80, 97];
    packet.extend(number.to_be_bytes());
    packet.extend((u32::from(number) * 160).to_be_bytes());
    packet.extend([0, 0, 0, source]);
    packet.extend([sample; 320]);
    packet
}

#[test]
fn a_source_keeps_to_its_sender() {
    let own = "127.0.0.1".parse().ok();
    // Another host that poses as the sender, and another sender on its host.
    for (from, host, source_id) in [(own, "127.0.0.2:0", 7), (None, "127.0.0.1:0", 8)] {
        let listen = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (encoding, payload_type) = ("L16/16000/1".to_owned(), Some(97));
        let uri = SourceUri::Rtp { listen, encoding, clock: 16_000, payload_type, from };
        let mut source = open(&uri).unwrap();
        let (done, mut seen) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let honest = UdpSocket::bind("127.0.0.1:0").unwrap();
                let foreign = UdpSocket::bind(host).unwrap();
                for number in 0..3000 {
                    drop(honest.send_to(&sound(number, 7, 1), listen));
                    drop(foreign.send_to(&sound(number + 1, source_id, 2), listen));
                    std::thread::park_timeout(StdDuration::from_millis(10));
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut sink = |frame: MediaFrame<'_>| {
                assert!(!frame.unit.contains(&2), "from {host} as {source_id}");
                seen += 1;
                done.fetch_or(seen == 20, Ordering::Relaxed);
            };
            assert_eq!(source.run(&mut sink, &done), Ok(End::Stopped));
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(seen, 20, "from {host} as {source_id}");
    }
}

//! The clips that the product ships, from file to packets.

#![cfg(feature = "gstreamer")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::Packet;
use selvedge_media::inspect::{self, PAYLOAD_MAX, WireFrame};
use selvedge_media::{Codec, End, MediaFrame};
use selvedge_units::Duration;
use support::{clips, file, open, take};

const ALL: [&str; 7] = [
    "one-by-one-person-detection.mp4",
    "captions-test.ts",
    "car-detection.mp4",
    "bbb24p_00_short.ts",
    "one-by-one-mpeg2.ts",
    "one-by-one-mjpeg.avi",
    "10001-90210-01803.wav",
];

fn counts(frames: &[WireFrame]) -> [usize; 3] {
    [Kind::Intra, Kind::Predicted, Kind::Bidirectional]
        .map(|kind| frames.iter().filter(|f| f.picture.kind == kind).count())
}

#[test]
fn every_picture_of_every_clip_is_known() {
    for (name, expected) in [
        ("one-by-one-person-detection.mp4", [140, 434, 820]),
        ("captions-test.ts", [3, 151, 445]),
        ("car-detection.mp4", [7, 370, 0]),
        ("bbb24p_00_short.ts", [1, 3, 6]),
        ("one-by-one-mpeg2.ts", [30, 240, 480]),
    ] {
        let frames = inspect::frames(&clips().join(name)).unwrap();
        assert_eq!(counts(&frames), expected, "{name}");
        assert_eq!(frames.len(), expected.iter().sum::<usize>(), "{name} has other frames");
        assert!(frames[0].picture.closes, "{name} begins with a picture that needs another");
        let known = frames.iter().filter(|f| f.picture.refs.is_some()).count();
        let is_h264 = !["bbb24p_00_short.ts", "one-by-one-mpeg2.ts"].contains(&name);
        assert_eq!(known, if is_h264 { frames.len() } else { 0 }, "{name}: headers not read");
    }
    let stills = inspect::frames(&clips().join("one-by-one-mjpeg.avi")).unwrap();
    assert_eq!(stills.iter().filter(|f| f.picture.kind == Kind::Still).count(), 100);
}

#[test]
fn every_stream_is_described() {
    let info = |name| open(&file(name, false)).unwrap().info().clone();
    let h264 = info("one-by-one-person-detection.mp4");
    assert_eq!((h264.encoding(), h264.payload_type, h264.clock_rate), ("H264", 96, 90_000));
    assert_eq!((h264.width, h264.height), (Some(768), Some(432)));
    assert_eq!(h264.period, Duration::from_millis(100));
    let fmtp = "packetization-mode=1;profile-level-id=4d401f;sprop-parameter-sets=Z01AH5ZSgYBvTUG\
                BgZAAAAMAEAAAAwFIQA==,aOkJNSA=";
    assert_eq!(h264.fmtp.as_deref(), Some(fmtp));
    assert_eq!(info("car-detection.mp4").period, Duration::from_millis(80));
    assert_eq!(info("captions-test.ts").period, Duration(33_366_667));
    let mpeg = info("bbb24p_00_short.ts");
    assert_eq!((mpeg.encoding(), mpeg.payload_type), ("MPV", 32));
    assert_eq!(mpeg.period, Duration(41_666_667));
    let jpeg = info("one-by-one-mjpeg.avi");
    assert_eq!((jpeg.encoding(), jpeg.payload_type, jpeg.width), ("JPEG", 26, Some(384)));
    let speech = info("10001-90210-01803.wav");
    assert_eq!((speech.codec, speech.clock_rate, speech.channels), (Codec::L16, 16_000, Some(1)));
    assert_eq!(speech.period, Duration::from_millis(20));
}

#[test]
fn packets_fit_carry_one_timestamp_and_end_with_the_marker() {
    for name in ALL {
        let mut source = open(&file(name, false)).unwrap();
        let info = source.info().clone();
        let (frames, end) = take(&mut source, 400);
        assert!(end.is_ok(), "{name}: {end:?}");
        for frame in &frames {
            let (last, rest) = frame.packets.split_last().unwrap();
            let read = |bytes| Packet::parse(bytes).unwrap().header;
            assert!(frame.packets.iter().all(|p| p.len() <= 12 + PAYLOAD_MAX), "{name}");
            assert!(frame.packets.iter().all(|p| read(p).timestamp == frame.rtp_timestamp));
            assert!(frame.packets.iter().all(|p| read(p).payload_type == info.payload_type));
            assert!(rest.iter().all(|p| !read(p).marker), "{name}: a marker inside of a frame");
            assert!(read(last).marker || info.codec == Codec::L16, "{name}: no marker");
            let ticks = frame.media_time.0 as f64 * f64::from(info.clock_rate) / 1e9;
            assert!((ticks - f64::from(frame.rtp_timestamp)).abs() <= 1.0, "{name}: {ticks}");
        }
    }
}

#[test]
fn small_packets_are_kept_small() {
    for name in ALL {
        let mut source = selvedge_media::Source::open(&file(name, false), &clips(), 400).unwrap();
        let (frames, _) = take(&mut source, 20);
        assert!(frames.iter().all(|f| f.packets.iter().all(|p| p.len() <= 412)), "{name}");
    }
}

#[test]
fn time_begins_at_zero_and_goes_on_evenly() {
    for name in ALL {
        let frames = inspect::frames(&clips().join(name)).unwrap();
        let period = open(&file(name, false)).unwrap().info().period;
        for (n, frame) in (0..).zip(&frames) {
            let expected = period * n;
            let off = frame.decode_time.0.abs_diff(expected.0);
            assert!(off <= 3_000, "{name}: frame {n} is off by {off} ns");
            assert!(frame.media_time >= frame.decode_time);
        }
        let mut shown = frames.iter().map(|f| f.media_time).collect::<Vec<_>>();
        shown.sort_unstable();
        let even = |w: &[Duration]| (w[1] - w[0]).0.abs_diff(period.0) <= 100_000;
        // The last pictures of a clip may be cut off: then a picture is shown without its predecessor.
        let whole = &shown[..shown.len() - 1];
        assert!(whole.windows(2).all(even), "{name}: pictures overlap or leave gaps: {shown:?}");
    }
}

#[test]
fn a_loop_goes_on_without_a_gap() {
    for (name, passes) in [("bbb24p_00_short.ts", 7), ("one-by-one-mjpeg.avi", 3)] {
        let one = inspect::frames(&clips().join(name)).unwrap();
        let mut source = open(&file(name, true)).unwrap();
        let period = source.info().period;
        let (frames, end) = take(&mut source, one.len() * passes);
        assert_eq!(end, Ok(End::Stopped));
        for (n, frame) in frames.iter().enumerate() {
            let same = &one[n % one.len()];
            assert_eq!((frame.picture, frame.packets.len()), (same.picture, same.packets.len()));
            assert_eq!(frame.decode_time, period * n as u64, "{name}: frame {n}");
        }
    }
}

#[test]
fn sound_loops_without_a_gap_between_samples() {
    let mut source = open(&file("10001-90210-01803.wav", true)).unwrap();
    let (frames, _) = take(&mut source, 900);
    for (n, frame) in (0u32..).zip(&frames) {
        assert_eq!((frame.rtp_timestamp, frame.packets.len()), (n * 320, 1));
        assert_eq!(frame.packets[0].len(), 12 + 640);
    }
}

#[test]
fn compressed_sound_is_carried_as_samples_where_that_is_wanted() {
    // Nothing but the sound of a clip, as a file of its own.
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("tone.mp3");
    let line = format!(
        "audiotestsrc num-buffers=100 ! audio/x-raw,rate=48000,channels=2 ! lamemp3enc ! \
         filesink location={}",
        out.display()
    );
    support::play(&line);
    let error = open(&file(out.to_str().unwrap(), false)).unwrap_err();
    assert!(error.to_string().contains("?l16"), "{error}");
    let mut source = open(&format!("file:{}?l16", out.display()).parse().unwrap()).unwrap();
    assert_eq!(source.info().encoding(), "L16");
    assert_eq!((source.info().clock_rate, source.info().channels), (48_000, Some(2)));
    let (frames, end) = take(&mut source, usize::MAX);
    assert_eq!(end, Ok(End::Eos { note: None }));
    let seconds = frames.last().unwrap().media_time.as_secs_f64();
    assert!((1.9..2.6).contains(&seconds), "100 blocks of 1024 samples are 2.1 s, not {seconds}");
}

#[test]
fn media_speed_is_kept() {
    let mut source = open(&file("captions-test.ts", false)).unwrap();
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let mut early = StdDuration::ZERO;
    let mut count = 0;
    let end = source.run(
        &mut |frame: MediaFrame<'_>| {
            let due = StdDuration::from_nanos(frame.decode_time.0);
            early = early.max(due.saturating_sub(began.elapsed()));
            count += 1;
            stop.store(count == 40, Ordering::Relaxed);
        },
        &stop,
    );
    assert_eq!((end, count), (Ok(End::Stopped), 40));
    assert!(early < StdDuration::from_millis(1), "a frame came {early:?} before its time");
}

#[test]
fn a_stop_is_heard_while_waiting_for_a_frame() {
    let mut source = open(&file("one-by-one-mjpeg.avi", false)).unwrap();
    let stop = AtomicBool::new(false);
    let mut count = 0;
    let end = source.run(
        &mut |_: MediaFrame<'_>| {
            count += 1;
            stop.store(true, Ordering::Relaxed);
        },
        &stop,
    );
    assert_eq!((end, count), (Ok(End::Stopped), 1));
}

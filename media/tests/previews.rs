//! Moving pictures for a page: packets from a receiver become access units in decoding order with their
//! times of presentation, or images.

#![cfg(feature = "gstreamer")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use selvedge_control_config::view::{PictureForm, StreamPicture};
use selvedge_data_stream::Kind;
use selvedge_media::picture::{h264, jpeg};
use selvedge_media::{MediaFrame, PictureTimes, Preview};
use selvedge_tests_wait::holds_within;
use selvedge_units::Duration;
use support::{file, open};

/// Pushes frames of a clip, from the first with which a decoder can begin, until `enough` returns true.
fn push(name: &str, mut enough: impl FnMut(&Preview, &MediaFrame<'_>) -> bool) {
    let mut source = open(&file(name, true)).unwrap();
    let info = source.info().clone();
    let preview = Preview::new(info.codec, info.clock_rate).unwrap().expect("it has pictures");
    let stop = AtomicBool::new(false);
    let mut begun = false;
    let mut sink = |frame: MediaFrame<'_>| {
        begun |= matches!(frame.picture.kind, Kind::Intra | Kind::Still);
        if begun && !stop.load(Ordering::Relaxed) {
            let packets: Vec<Vec<u8>> =
                frame.packets.iter().map(|packet| packet.to_vec()).collect();
            let left = Duration::from_millis(70);
            preview.push(&packets, frame.picture, PictureTimes { left, age: None });
            stop.store(enough(&preview, &frame), Ordering::Relaxed);
        }
    };
    source.run_unpaced(&mut sink, &stop).unwrap();
}

/// The first access units of a clip, and their times of presentation.
fn units(name: &str, count: usize) -> (String, Vec<StreamPicture>, Vec<Duration>) {
    let (mut codec, mut came, mut times) = (String::new(), Vec::<StreamPicture>::new(), Vec::new());
    push(name, |preview, frame| {
        times.push(frame.media_time);
        let last = came.last().map(|last| last.number);
        // A unit may come out only with the next one; the ring keeps sixty.
        let _ = holds_within(StdDuration::from_millis(10), || {
            let list = preview.pictures(PictureForm::Coded, last).list;
            let some = !list.is_empty();
            came.extend(list);
            some
        });
        codec = preview.codec();
        assert!(
            times.len() < count + 200,
            "{name}: {} units of {} frames",
            came.len(),
            times.len()
        );
        came.len() >= count
    });
    (codec, came, times)
}

#[test]
fn access_units_keep_their_order_and_their_times() {
    for name in ["captions-test.ts", "car-detection.mp4", "one-by-one-person-detection.mp4"] {
        let (codec, came, times) = units(name, 40);
        assert!(came.len() >= 40, "{name}");
        assert!(came[0].intra && h264::profile_level_id(&came[0].bytes).is_some(), "{name}");
        assert!(codec.starts_with("avc1."), "{name}: {codec}");
        for (picture, time) in came.iter().zip(&times) {
            let (present, first) = (picture.present.0 as i64, came[0].present.0 as i64);
            let wanted = time.0 as i64 - times[0].0 as i64;
            // Timestamps are ticks of 90 kHz.
            assert!((present - first - wanted).abs() < 30_000, "{name}: {present} {wanted}");
        }
    }
    let (_, came, _) = units("one-by-one-person-detection.mp4", 40);
    let back = came.windows(2).filter(|w| w[1].present < w[0].present).count();
    assert!(back > 5, "it has B pictures: {back}");
}

#[test]
fn other_pictures_come_as_images_while_somebody_asks() {
    for name in ["one-by-one-mpeg2.ts", "one-by-one-mjpeg.avi", "one-by-one-person-detection.mp4"] {
        let mut images = Vec::new();
        let mut last = Duration::ZERO;
        push(name, |preview, frame| {
            // No faster than ten times real time: pictures beyond the decoder's capacity are left out.
            let _ = holds_within(StdDuration::from_millis(4), || {
                images = preview.pictures(PictureForm::Images, None).list;
                !images.is_empty()
            });
            last = frame.media_time;
            !images.is_empty() || last > Duration::from_secs(60)
        });
        assert!(!images.is_empty(), "{name}: no image in {last}");
        assert!(images[0].intra, "{name}: any image can be shown");
        assert!(jpeg::check(&images[0].bytes).is_ok(), "{name}");
    }
}

/// What encodes a test pattern in each codec that has no clip, and how browsers' names of the codec begin.
const ENCODED: [(&str, &str, &str); 4] = [
    ("vp8", "vp8", "vp8enc deadline=1 keyframe-max-dist=25 ! matroskamux"),
    ("vp9", "vp09", "vp9enc deadline=1 cpu-used=8 keyframe-max-dist=25 ! vp9parse ! matroskamux"),
    (
        "av1",
        "av01",
        "av1enc cpu-used=8 usage-profile=realtime keyframe-max-dist=25 ! av1parse ! matroskamux",
    ),
    ("h265", "hev1", "x265enc speed-preset=ultrafast key-int-max=25 ! h265parse ! matroskamux"),
];

#[test]
fn units_of_all_codecs_can_be_decoded() {
    for (name, begins, encoder) in ENCODED {
        let path = format!("{}/preview-{name}.mkv", env!("CARGO_TARGET_TMPDIR"));
        support::play(&format!(
            "videotestsrc num-buffers=75 ! video/x-raw,width=160,height=120,framerate=25/1 ! {encoder} ! filesink location={path}"
        ));
        // Units are those of the source, but for what packets leave out.
        let (codec, came, _) = units(&path, 30);
        assert!(codec.starts_with(begins), "{codec}");
        assert!(came[0].intra && came.iter().any(|unit| !unit.intra), "{name}");
        let (mut images, mut last) = (0, None);
        push(&path, |preview, frame| {
            let _ = holds_within(StdDuration::from_millis(20), || {
                let new = preview.pictures(PictureForm::Images, last).list;
                images += new.len();
                last = new.last().map_or(last, |image| Some(image.number));
                !new.is_empty()
            });
            images >= 10 || frame.media_time > Duration::from_secs(60)
        });
        assert!(images >= 10, "{name}: {images} images");
        std::fs::remove_file(path).expect("it was there");
    }
}

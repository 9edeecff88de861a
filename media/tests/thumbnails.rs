//! Small pictures of every kind of stream.

#![cfg(feature = "gstreamer")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration as StdDuration;

use selvedge_media::picture::jpeg;
use selvedge_media::{Codec, inspect};
use selvedge_media::{End, FrameSink, ImageSize, MediaFrame, Picture, Thumbnailer};
use selvedge_units::Duration;
use support::{clips, file, open};

/// Runs a looping clip at full speed until this number of small pictures has arrived.
fn pictures(name: &str, count: usize) -> Vec<(Vec<u8>, Duration)> {
    let mut source = open(&file(name, true)).unwrap();
    let (give, got) = mpsc::channel();
    let send = move |image: &[u8], time| drop(give.send((image.to_vec(), time)));
    assert_eq!(source.thumbnails(send), Ok(true), "{name}");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Faster than any decoder: excess pictures are skipped.
        let run = scope.spawn(|| source.run_unpaced(&mut |_: MediaFrame<'_>| {}, &stop));
        let wait = StdDuration::from_secs(20);
        let images = (0..count).map_while(|_| got.recv_timeout(wait).ok()).collect::<Vec<_>>();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(run.join().unwrap(), Ok(End::Stopped));
        images
    })
}

#[test]
fn every_kind_of_picture_is_made_small() {
    for (name, height) in [
        ("one-by-one-person-detection.mp4", 108),
        ("captions-test.ts", 108),
        ("bbb24p_00_short.ts", 108),
        ("one-by-one-mpeg2.ts", 108),
        ("one-by-one-mjpeg.avi", 108),
    ] {
        let images = pictures(name, 4);
        assert_eq!(images.len(), 4, "{name}");
        for (image, _) in &images {
            let size = jpeg::check(image).unwrap();
            assert_eq!(
                (u32::from(size.width), size.height),
                (ImageSize::SMALL.width, height),
                "{name}"
            );
        }
        let apart = |w: &[(Vec<u8>, Duration)]| w[1].1 - w[0].1 >= Duration::from_millis(500);
        assert!(images.windows(2).all(apart), "{name}: more than two a second");
    }
}

#[test]
fn sound_has_none() {
    let mut source = open(&file("10001-90210-01803.wav", false)).unwrap();
    assert_eq!(source.thumbnails(|_, _| {}), Ok(false));
}

/// Passes access units on, not packets: an image is one unit.
struct Flood<'a>(&'a mut Thumbnailer, usize);

impl FrameSink for Flood<'_> {
    fn enqueue(&mut self, frame: MediaFrame<'_>) {
        self.1 += 1;
        self.0.feed(frame.picture, frame.media_time, b"no picture at all");
    }
}

#[test]
fn a_thumbnailer_that_gets_nonsense_or_too_much_holds_nothing_up() {
    for codec in [Codec::H264, Codec::Mpv, Codec::Jpeg] {
        static GIVEN: AtomicUsize = AtomicUsize::new(0);
        let count = |_: &[u8], _| {
            GIVEN.fetch_add(1, Ordering::Relaxed);
        };
        let mut small = Thumbnailer::new(codec, ImageSize::SMALL, count).unwrap().unwrap();
        let mut source = open(&file("one-by-one-mpeg2.ts", false)).unwrap();
        let mut flood = Flood(&mut small, 0);
        let end = source.run_unpaced(&mut flood, &AtomicBool::new(false));
        assert_eq!((end, flood.1), (Ok(End::Eos { note: None }), 750));
        for n in 0..200 {
            small.feed(Picture::STILL, Duration::from_secs(n), &[0xff; 10_000]);
        }
        assert_eq!(GIVEN.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_slow_taker_does_not_hold_up_the_source() {
    let (hold, held) = mpsc::channel::<()>();
    let mut source = open(&file("one-by-one-person-detection.mp4", false)).unwrap();
    // The taker waits until the source has come to its end.
    let wait = move |_: &[u8], _| assert!(held.recv().is_err(), "nothing is sent");
    assert_eq!(source.thumbnails(wait), Ok(true));
    let mut count = 0;
    let end = source.run_unpaced(&mut |_: MediaFrame<'_>| count += 1, &AtomicBool::new(false));
    assert_eq!(end, Ok(End::Eos { note: None }));
    let all = inspect::frames(&clips().join("one-by-one-person-detection.mp4")).unwrap();
    assert_eq!(count, all.len());
    drop(hold);
}

//! Sources that are dropped leave no threads; alone in its process, so that it can count them.

#![cfg(feature = "gstreamer")]

mod support;

use std::time::{Duration, Instant};

use selvedge_media::End;
use support::{file, open, take};

#[test]
fn nothing_is_left_behind() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let once = || {
        let mut source = open(&file("one-by-one-mpeg2.ts", true)).unwrap();
        assert_eq!(source.thumbnails(|_, _| {}), Ok(true));
        assert_eq!(take(&mut source, 800).1, Ok(End::Stopped));
    };
    // The first use starts threads that GStreamer keeps.
    once();
    let kept = threads();
    for _ in 0..10 {
        once();
    }
    // Idle threads of a pool end a little after their work is done.
    let deadline = Instant::now() + Duration::from_secs(30);
    while threads() > kept + 2 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(threads() <= kept + 2, "{} threads; {kept} after the first", threads());
}

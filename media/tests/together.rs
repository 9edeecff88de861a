//! The picture and the sound of one file as two streams: how far they drift apart at sending.

#![cfg(feature = "gstreamer")]

mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use selvedge_data_stream::Kind;
use selvedge_media::{MediaFrame, Pair, Source};
use support::open;

/// How far the streams may be apart, in milliseconds.
const APART: f64 = 40.0;

/// A frame that can be shown at once: its time of presentation, and how much later it was delivered,
/// in milliseconds.
struct Delivered {
    shown: f64,
    delay: f64,
}

fn delivered(source: &mut Source, began: Instant, stop: &AtomicBool) -> Vec<Delivered> {
    let mut frames = Vec::new();
    let mut sink = |frame: MediaFrame<'_>| {
        if matches!(frame.picture.kind, Kind::Intra | Kind::Audio) {
            let shown = frame.media_time.0 as f64 / 1e6;
            let delay = began.elapsed().as_secs_f64() * 1e3 - shown;
            frames.push(Delivered { shown, delay });
        }
        let enough = began.elapsed().as_secs() >= 7;
        stop.fetch_or(enough, Ordering::Relaxed);
    };
    source.run(&mut sink, stop).unwrap();
    frames
}

/// How much later each picture was delivered than the sound that is heard with it. Both are taken at
/// one place of the file: where the machine stands still, the pace of both moves.
fn apart(pictures: &[Delivered], sounds: &[Delivered]) -> Vec<f64> {
    let from = |picture: &Delivered, sound: &Delivered| (sound.shown - picture.shown).abs();
    let nearest = |picture: &Delivered| {
        sounds.iter().min_by(|a, b| from(picture, a).total_cmp(&from(picture, b))).unwrap().delay
    };
    pictures.iter().map(|picture| picture.delay - nearest(picture)).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[test]
fn picture_and_sound_keep_within_40_ms_over_loops() {
    let folder = tempfile::tempdir().unwrap();
    for (name, frames, sound) in [
        ("two.mp4", "2", "sound"),
        ("two.mp4", "2", "l16"),
        ("two.ts", "0", "sound"),
        ("two.mkv", "2", "sound"),
    ] {
        let path = folder.path().join(name);
        // Sound that is longer than the pictures: each loop would take them further apart.
        let made = Command::new("ffmpeg")
            .args(["-y", "-nostdin", "-v", "error"])
            .args(["-f", "lavfi", "-t", "1.8", "-i", "testsrc2=size=160x120:rate=25"])
            .args(["-f", "lavfi", "-t", "2", "-i", "sine=sample_rate=48000"])
            .args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "10", "-bf", frames])
            .args(["-c:a", "aac"])
            .arg(&path)
            .status();
        assert!(made.is_ok_and(|made| made.success()));
        let uri = |option: &str| format!("file:{}?{option}loop", path.display()).parse().unwrap();
        let mut picture = open(&uri("")).unwrap();
        let mut heard = open(&uri(&format!("{sound}&"))).unwrap();
        let pair = Pair::default();
        picture.join(&pair);
        heard.join(&pair);
        let (began, stop) = (Instant::now(), AtomicBool::new(false));
        let (shown, heard) = std::thread::scope(|scope| {
            let heard = scope.spawn(|| delivered(&mut heard, began, &stop));
            (delivered(&mut picture, began, &stop), heard.join().unwrap())
        });
        // In each third of the time, which is another loop.
        let all = apart(&shown, &heard);
        let apart = [0, 1, 2].map(|n| median(&all[all.len() * n / 3..all.len() * (n + 1) / 3]));
        println!("{name} {sound}: apart by {apart:.1?} ms");
        assert!(apart.iter().all(|ms| ms.abs() < APART), "{name} {sound}: {apart:?}");
        assert!(shown.len() > 10 && heard.len() > 100, "{} and {}", shown.len(), heard.len());
    }
}

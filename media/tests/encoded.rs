//! Files that are decoded and encoded anew: they follow a rate, also when they begin again, and make intra pictures on
//! request.

#![cfg(feature = "gstreamer")]

mod support;

use selvedge_control_config::{FilePart, SourceUri};
use selvedge_data_stream::Kind;
use selvedge_media::{Codec, Source, SourceError};
use selvedge_units::{Bitrate, Duration};
use support::{Seen, clips, open, take};

fn anew(name: &str, rate: Bitrate, repeat: bool) -> Result<Source, SourceError> {
    open(&SourceUri::File { path: name.into(), repeat, part: FilePart::Encoded(rate) })
}

/// The next frames, which must come.
fn frames(source: &mut Source, count: usize) -> Vec<Seen> {
    let (frames, end) = take(source, count);
    assert_eq!(frames.len(), count, "{end:?}");
    frames
}

/// The rate of these frames, whose period is 40 ms.
fn rate(frames: &[Seen]) -> Bitrate {
    let bytes = frames.iter().flat_map(|frame| &frame.packets).map(|packet| packet.len() as u64);
    Bitrate(bytes.sum::<u64>() * 8 * 25 / frames.len() as u64)
}

#[test]
fn a_file_that_is_encoded_anew_follows_a_rate_also_when_it_begins_again() {
    const FILE: usize = 750;
    let most = Bitrate::from_kbps(1_200);
    let mut source = anew("one-by-one-mpeg2.ts", most, true).unwrap();
    let info = source.info();
    assert_eq!((info.codec, info.period), (Codec::H264, Duration::from_millis(40)));
    let encoder = source.encoder().expect("its rate may change");
    assert_eq!(encoder.range(), (Bitrate::from_kbps(120), most));
    let before = rate(&frames(&mut source, 120)[30..]);
    assert!(before > Bitrate::from_kbps(800) && before < Bitrate::from_kbps(1_500), "{before}");
    encoder.set_rate(Bitrate::from_kbps(300));
    // A group of pictures later it has followed.
    let followed = rate(&frames(&mut source, 150)[30..]);
    assert!(followed < Bitrate::from_kbps(360), "{followed}");
    let mut rest = frames(&mut source, FILE);
    let again = rate(&rest.split_off(FILE - 150));
    assert!(again < Bitrate::from_kbps(360), "{again}");
    // The handle still serves.
    encoder.set_rate(most);
    let restored = rate(&frames(&mut source, 150)[60..]);
    assert!(restored.0 > followed.max(again).0 * 2, "{restored}");
}

#[test]
fn an_intra_picture_is_made_on_request() {
    let mut source =
        anew("one-by-one-person-detection.mp4", Bitrate::from_kbps(500), false).unwrap();
    let encoder = source.encoder().unwrap();
    let mut to_next_intra = |requests: bool| {
        while frames(&mut source, 1)[0].picture.kind != Kind::Intra {}
        if requests {
            encoder.request_intra();
        }
        (1..).find(|_| frames(&mut source, 1)[0].picture.kind == Kind::Intra).unwrap()
    };
    let [without, with] = [to_next_intra(false), to_next_intra(true)];
    assert_eq!(without, 30);
    assert!(with < 20, "{with}");
}

#[test]
fn what_has_pictures_is_encoded_anew_and_what_has_none_is_refused() {
    for (name, size, period) in [
        ("car-detection.mp4", (768, 432), 80_000_000),
        ("one-by-one-mjpeg.avi", (384, 216), 200_000_000),
        ("bbb24p_00_short.ts", (1920, 1080), 41_666_666),
    ] {
        let mut source = anew(name, Bitrate::from_mbps(2), false).unwrap();
        let info = source.info().clone();
        assert_eq!(info.codec, Codec::H264, "{name}");
        assert_eq!((info.width, info.height), (Some(size.0), Some(size.1)), "{name}");
        assert!(info.period.0.abs_diff(period) < 1_000, "{name}: {:?}", info.period);
        assert_eq!(frames(&mut source, 3)[0].picture.kind, Kind::Intra, "{name}");
    }
    // A medium that nobody can decode.
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(clips().join("one-by-one-mjpeg.avi")).unwrap();
    for at in 0..bytes.len() - 4 {
        if bytes[at..at + 4].eq_ignore_ascii_case(b"mjpg") {
            bytes[at..at + 4].copy_from_slice(b"WXYZ");
        }
    }
    let unknown = folder.path().join("unknown.avi");
    std::fs::write(&unknown, bytes).unwrap();
    let why = anew(unknown.to_str().unwrap(), Bitrate::from_mbps(2), false).unwrap_err();
    assert!(why.to_string().contains("nothing here handles video/x-avi-unknown"), "{why}");
    let why = anew("10001-90210-01803.wav", Bitrate::from_mbps(2), false).unwrap_err();
    assert!(why.to_string().contains("no video, but audio/x-raw"), "{why}");
}

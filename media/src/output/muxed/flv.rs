//! FLV (Adobe, Video File Format Specification 10.1, annex E): the format inside RTMP, with H.264 and
//! AAC.

use selvedge_units::Duration;

use super::track::{Encoding, Sample, Track};

/// Kinds of tags, and the beginnings of their bodies.
const SOUND: u8 = 8;
const PICTURE: u8 = 9;
const AAC: u8 = 0xaf;
const KEY: u8 = 0x17;
const OTHER: u8 = 0x27;

/// The tags in front of a track's samples, repeated when the track has changed.
pub(super) fn head(track: &Track, at: Duration) -> Vec<u8> {
    match track.encoding {
        Encoding::Aac => tag(SOUND, at, &[AAC, 0], &track.private),
        _ => tag(PICTURE, at, &[KEY, 0, 0, 0, 0], &track.private),
    }
}

/// A sample.
pub(super) fn sample(sample: &Sample) -> Vec<u8> {
    if sample.track == 1 {
        return tag(SOUND, sample.decode, &[AAC, 1], &sample.bytes);
    }
    let [_, a, b, c] = ms(sample.present - sample.decode).to_be_bytes();
    let kind = if sample.key { KEY } else { OTHER };
    tag(PICTURE, sample.decode, &[kind, 1, a, b, c], &sample.bytes)
}

fn ms(at: Duration) -> u32 {
    (at.0 / 1_000_000) as u32
}

fn tag(kind: u8, at: Duration, head: &[u8], body: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = ((head.len() + body.len()) as u32).to_be_bytes();
    let [high, d, e, f] = ms(at).to_be_bytes();
    let mut tag = vec![kind, a, b, c, d, e, f, high, 0, 0, 0];
    tag.extend(head.iter().chain(body));
    tag.extend((tag.len() as u32).to_be_bytes());
    tag
}

//! Matroska (RFC 9559), written incrementally: a head, and clusters, each of which is complete.

use selvedge_units::Duration;

use super::track::{Encoding, Sample, Track};

/// The beginning of a file with these tracks.
pub(super) fn head(tracks: &[Option<Track>; 2]) -> Vec<u8> {
    let document = [
        element(0x4286, &[1]),
        element(0x42f7, &[1]),
        element(0x42f2, &[4]),
        element(0x42f3, &[8]),
        element(0x4282, b"matroska"),
        element(0x4287, &[4]),
        element(0x4285, &[2]),
    ];
    // Times are in milliseconds.
    let scale = element(0x2a_d7b1, &1_000_000_u32.to_be_bytes());
    let about = [scale, element(0x4d80, b"Selvedge"), element(0x5741, b"Selvedge")];
    let entries = tracks.iter().enumerate();
    let entries = entries.filter_map(|(n, track)| Some(entry(n as u8, track.as_ref()?)));
    let mut file = element(0x1a45_dfa3, &document.concat());
    // The segment ends where the file does.
    file.extend(0x1853_8067_u32.to_be_bytes());
    file.extend([1, 255, 255, 255, 255, 255, 255, 255]);
    file.extend(element(0x1549_a966, &about.concat()));
    file.extend(element(0x1654_ae6b, &entries.collect::<Vec<_>>().concat()));
    file
}

fn entry(number: u8, track: &Track) -> Vec<u8> {
    let (id, is_sound) = match track.encoding {
        Encoding::H264 => ("V_MPEG4/ISO/AVC", false),
        Encoding::H265 => ("V_MPEGH/ISO/HEVC", false),
        Encoding::Mpeg1 => ("V_MPEG1", false),
        Encoding::Mpeg2 => ("V_MPEG2", false),
        Encoding::Aac => ("A_AAC", true),
    };
    let Track { width, height, rate, channels, .. } = track;
    let form = if is_sound {
        let rate = f64::from(*rate).to_be_bytes();
        element(0xe1, &[element(0xb5, &rate), element(0x9f, &[*channels])].concat())
    } else {
        let (width, height) = (width.to_be_bytes(), height.to_be_bytes());
        element(0xe0, &[element(0xb0, &width), element(0xba, &height)].concat())
    };
    let mut parts = vec![
        element(0xd7, &[number + 1]),
        element(0x73c5, &[number + 1]),
        element(0x83, &[1 + u8::from(is_sound)]),
        element(0x9c, &[0]),
        element(0x86, id.as_bytes()),
        form,
    ];
    if !track.private.is_empty() {
        parts.push(element(0x63a2, &track.private));
    }
    element(0xae, &parts.concat())
}

/// A cluster of these samples.
pub(super) fn cluster(samples: &[Sample]) -> Vec<u8> {
    let ms = |at: Duration| at.0 / 1_000_000;
    let begins = samples.iter().map(|sample| ms(sample.present)).min().unwrap_or(0);
    let mut cluster = element(0xe7, &begins.to_be_bytes());
    for sample in samples {
        let at = i16::try_from(ms(sample.present) - begins).unwrap_or(i16::MAX).to_be_bytes();
        let key = if sample.key { 0x80 } else { 0 };
        let head = [0x81 + sample.track as u8, at[0], at[1], key];
        cluster.extend(element(0xa3, &[&head, sample.bytes.as_slice()].concat()));
    }
    element(0x1f43_b675, &cluster)
}

/// An element: its identifier, its length in eight bytes, its body.
fn element(id: u32, body: &[u8]) -> Vec<u8> {
    let id = id.to_be_bytes();
    let zeros = id.iter().take_while(|byte| **byte == 0).count();
    let mut element = id[zeros..].to_vec();
    element.extend((1 << 56 | body.len() as u64).to_be_bytes());
    element.extend(body);
    element
}

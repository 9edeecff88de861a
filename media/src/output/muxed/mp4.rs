//! Fragmented MP4 (ISO/IEC 14496-12), written incrementally: a head, and fragments, each of which is
//! complete.

use selvedge_units::Duration;

use super::track::{Encoding, Sample, Track};

/// Ticks of all times in a second, and the ticks of a frame of unknown duration.
const SCALE: u32 = 90_000;
const FRAME: u32 = 3600;

/// The beginning of a file with these tracks.
pub(super) fn head(tracks: &[Option<Track>; 2]) -> Vec<u8> {
    let known = || (1..).zip(tracks).filter_map(|(id, track)| Some((id, track.as_ref()?)));
    let movie = [
        zeros(8),
        &1000_u32.to_be_bytes(),
        zeros(4),
        &[0, 1, 0, 0, 1, 0],
        zeros(10),
        &matrix(),
        zeros(24),
        &3_u32.to_be_bytes(),
    ];
    let mut parts = full(b"mvhd", 0, &movie.concat());
    known().for_each(|(id, track)| parts.extend(trak(id, track)));
    let extends = known().map(|(id, _)| {
        let defaults = [id, 1, 0, 0, 0].map(u32::to_be_bytes).concat();
        full(b"trex", 0, &defaults)
    });
    parts.extend(boxed(b"mvex", &extends.collect::<Vec<_>>().concat()));
    [boxed(b"ftyp", b"iso5\0\0\x02\0iso5iso6mp41"), boxed(b"moov", &parts)].concat()
}

fn trak(id: u32, track: &Track) -> Vec<u8> {
    let is_sound = track.encoding == Encoding::Aac;
    let volume = if is_sound { [1, 0] } else { [0, 0] };
    let size = [track.width, track.height].map(|side| (u32::from(side) << 16).to_be_bytes());
    let about =
        [zeros(8), &id.to_be_bytes(), zeros(20), &volume, zeros(2), &matrix(), &size.concat()];
    let times = [zeros(8), &SCALE.to_be_bytes(), zeros(4), &[0x55, 0xc4, 0, 0]];
    let (handler, form) = match is_sound {
        true => (b"soun", full(b"smhd", 0, zeros(4))),
        false => (b"vide", full(b"vmhd", 1, zeros(8))),
    };
    let handler = [zeros(4), handler, zeros(13)];
    let here = [&1_u32.to_be_bytes(), full(b"url ", 1, &[]).as_slice()].concat();
    let tables = [
        full(b"stsd", 0, &[&1_u32.to_be_bytes(), entry(track).as_slice()].concat()),
        full(b"stts", 0, zeros(4)),
        full(b"stsc", 0, zeros(4)),
        full(b"stsz", 0, zeros(8)),
        full(b"stco", 0, zeros(4)),
    ];
    let inside = [form, boxed(b"dinf", &full(b"dref", 0, &here)), boxed(b"stbl", &tables.concat())];
    let media = [
        full(b"mdhd", 0, &times.concat()),
        full(b"hdlr", 0, &handler.concat()),
        boxed(b"minf", &inside.concat()),
    ];
    boxed(b"trak", &[full(b"tkhd", 7, &about.concat()), boxed(b"mdia", &media.concat())].concat())
}

/// The description of a track's samples.
fn entry(track: &Track) -> Vec<u8> {
    let begin = [0, 0, 0, 0, 0, 0, 0, 1].as_slice();
    let (name, inner) = match track.encoding {
        Encoding::Aac => {
            let body = [
                begin,
                zeros(8),
                &[0, track.channels, 0, 16],
                zeros(4),
                &(track.rate << 16).to_be_bytes(),
                &full(b"esds", 0, &descriptors(&track.private)),
            ];
            return boxed(b"mp4a", &body.concat());
        }
        Encoding::H265 => (b"hvc1", b"hvcC"),
        _ => (b"avc1", b"avcC"),
    };
    let size = [track.width, track.height].map(u16::to_be_bytes).concat();
    let body = [
        begin,
        zeros(16),
        &size,
        &[0, 72, 0, 0, 0, 72, 0, 0],
        zeros(4),
        &[0, 1],
        zeros(32),
        &[0, 24, 255, 255],
        &boxed(inner, &track.private),
    ];
    boxed(name, &body.concat())
}

/// The parameters that a decoder of AAC needs (ISO/IEC 14496-1, section 7.2.6).
fn descriptors(private: &[u8]) -> Vec<u8> {
    let part = |tag: u8, body: &[u8]| [&[tag, body.len() as u8], body].concat();
    let decoder = [&[0x40, 0x15], zeros(11), &part(5, private)].concat();
    part(3, &[&[0, 0, 0], part(4, &decoder).as_slice(), &part(6, &[2])].concat())
}

/// A fragment of these samples, with its sequence number.
pub(super) fn fragment(number: u32, samples: &[Sample]) -> Vec<u8> {
    let of = |track| samples.iter().filter(move |sample| sample.track == track);
    let data = [0, 1].map(|track| of(track).flat_map(|s| &s.bytes).copied().collect::<Vec<_>>());
    // The offset of the data depends on the length of the box that states it.
    let mut moof = Vec::new();
    for _ in 0..2 {
        let mut parts = full(b"mfhd", 0, &number.to_be_bytes());
        let mut begins = moof.len() + 8;
        for (track, data) in data.iter().enumerate() {
            let samples: Vec<&Sample> = of(track).collect();
            if !samples.is_empty() {
                parts.extend(traf(track as u32 + 1, begins as u32, &samples));
            }
            begins += data.len();
        }
        moof = boxed(b"moof", &parts);
    }
    [moof, boxed(b"mdat", &data.concat())].concat()
}

fn traf(id: u32, begins: u32, samples: &[&Sample]) -> Vec<u8> {
    let ticks = |at: Duration| u128::from(at.0) * u128::from(SCALE) / 1_000_000_000;
    let decode = samples.first().map_or(0, |sample| ticks(sample.decode) as u64);
    let mut run = [samples.len() as u32, begins].map(u32::to_be_bytes).concat();
    let mut lasts = FRAME;
    for (n, sample) in samples.iter().enumerate() {
        let at = ticks(sample.decode);
        lasts =
            samples.get(n + 1).map_or(lasts, |next| ticks(next.decode).saturating_sub(at) as u32);
        // Whether it depends on other samples.
        let flags = if sample.key { 0x0200_0000 } else { 0x0101_0000 };
        let offset = ticks(sample.present).saturating_sub(at) as u32;
        run.extend(
            [lasts, sample.bytes.len() as u32, flags, offset].map(u32::to_be_bytes).concat(),
        );
    }
    let parts = [
        full(b"tfhd", 0x02_0000, &id.to_be_bytes()),
        full(b"tfdt", 0x0100_0000, &decode.to_be_bytes()),
        full(b"trun", 0x0100_0f01, &run),
    ];
    boxed(b"traf", &parts.concat())
}

const fn matrix() -> [u8; 36] {
    let mut matrix = [0; 36];
    (matrix[1], matrix[17], matrix[32]) = (1, 1, 0x40);
    matrix
}

/// At most 32.
fn zeros(count: usize) -> &'static [u8] {
    &[0; 32][..count]
}

/// A box with version and flags.
fn full(name: &[u8; 4], flags: u32, body: &[u8]) -> Vec<u8> {
    boxed(name, &[flags.to_be_bytes().as_slice(), body].concat())
}

fn boxed(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes(), name.as_slice(), body].concat()
}

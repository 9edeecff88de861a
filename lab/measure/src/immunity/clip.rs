//! The H.264 pictures of an MP4 file (ISO/IEC 14496-12, -15) in decoding order, as frames of RTP packets: when each is
//! due, what it means to others, and its own bytes. They come from a file of `clips/`, and go to a node as a stream
//! of the program. The packets carry the picture's bytes in order, without the payload format of RFC 6184: the judge
//! goes by each packet's frame mark.

use std::path::Path;

use selvedge_data_stream::rtp::HEADER_LEN;
use selvedge_media::{Codec, Picture, picture};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::Duration;

/// Why a file can't be played.
#[derive(Debug, thiserror::Error)]
pub enum ClipError {
    /// The file is missing, or access is denied.
    #[error("can't read \"{file}\": {why}; name the folder of the clips with --clips DIR")]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        why: std::io::Error,
    },
    /// Its boxes are not those of an MP4 file with H.264 pictures.
    #[error("\"{0}\" is no MP4 file with H.264 pictures, or it is damaged")]
    Form(String),
}

/// A picture of a clip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClipFrame {
    /// When it is due, from the clip's beginning.
    pub at: Duration,
    /// Its relation to others.
    pub picture: Picture,
    /// RTP packets, headers included.
    pub packets: Vec<Vec<u8>>,
}

impl ClipFrame {
    pub(super) const fn metadata(&self) -> FrameMetadata {
        let Picture { kind, referenced, closes, refs } = self.picture;
        let timestamp = (self.at.0 * 9 / 100_000) as u32;
        FrameMetadata { kind, referenced, closes, refs, timestamp }
    }
}

/// A clip as frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clip {
    /// The file's name without its ending.
    pub name: String,
    /// Its pictures in decoding order.
    pub frames: Vec<ClipFrame>,
    /// How long it lasts.
    pub lasts: Duration,
}

impl Clip {
    /// Reads a file, for packets with payloads of at most `payload` bytes, played at `speed` times its own speed.
    ///
    /// # Errors
    /// [`ClipError`].
    pub fn read(file: &Path, payload: usize, speed: u64) -> Result<Self, ClipError> {
        let shown = || file.display().to_string();
        let bytes = std::fs::read(file).map_err(|why| ClipError::Read { file: shown(), why })?;
        let units = Track::find(&bytes).and_then(|track| track.units(&bytes));
        let (units, lasts) = units.ok_or_else(|| ClipError::Form(shown()))?;
        let mut reader = picture::reader(Codec::H264);
        let frame = |(at, unit): Unit| ClipFrame {
            at: Duration(at.0 / speed),
            picture: reader.push(&unit).unwrap_or(Picture::DATA),
            packets: packets(&unit, payload),
        };
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            name,
            frames: units.into_iter().map(frame).collect(),
            lasts: Duration(lasts.0 / speed),
        })
    }
}

fn packets(unit: &[u8], payload: usize) -> Vec<Vec<u8>> {
    let packet = |part: &[u8]| {
        let mut packet = vec![0; HEADER_LEN];
        packet[..2].copy_from_slice(&[0x80, Codec::H264.payload_type()]);
        packet.extend_from_slice(part);
        packet
    };
    unit.chunks(payload).map(packet).collect()
}

/// The bodies of the boxes of one kind that lie side by side in `bytes`.
fn boxes<'a>(mut bytes: &'a [u8], kind: &'a [u8; 4]) -> impl Iterator<Item = &'a [u8]> {
    std::iter::from_fn(move || {
        loop {
            let short = word(bytes, 0)? as usize;
            let (head, len) = match short {
                1 => (
                    16,
                    usize::try_from(u64::from(word(bytes, 8)?) << 32).ok()?
                        + word(bytes, 12)? as usize,
                ),
                0 => (8, bytes.len()),
                len => (8, len),
            };
            let (name, body) = (bytes.get(4..8)?, bytes.get(head..len)?);
            bytes = &bytes[len..];
            if name == kind {
                return Some(body);
            }
        }
    })
}

/// The box at the end of a way down.
fn inside<'a>(bytes: &'a [u8], way: &[&'a [u8; 4]]) -> Option<&'a [u8]> {
    way.iter().try_fold(bytes, |bytes, kind| boxes(bytes, kind).next())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The entries of `words` words each of a table behind version, flags, and their number at `at`.
fn table(bytes: &[u8], at: usize, words: usize) -> Option<Vec<Vec<u32>>> {
    let count = word(bytes, at)? as usize;
    let entry = |n: usize| {
        (0..words).map(|field| word(bytes, at + 4 + (n * words + field) * 4)).collect::<Option<_>>()
    };
    // A count that the box can't hold ends at the first entry that is missing.
    (0..count).map(entry).collect()
}

/// When an access unit is to be decoded, and its bytes.
type Unit = (Duration, Vec<u8>);

/// The tables of the file's first H.264 track.
struct Track<'a> {
    /// Ticks of its times in a second.
    scale: u64,
    samples: &'a [u8],
    /// The decoder's configuration (`avcC`).
    config: &'a [u8],
}

impl<'a> Track<'a> {
    fn find(bytes: &'a [u8]) -> Option<Self> {
        /// Bytes of `stsd` before its first entry, and of `avc1` before the boxes in it.
        const BEFORE: usize = 8;
        const ENTRY: usize = 78;
        boxes(inside(bytes, &[b"moov"])?, b"trak").find_map(|track| {
            let media = inside(track, &[b"mdia"])?;
            let head = inside(media, &[b"mdhd"])?;
            let scale = word(head, if head.first() == Some(&1) { 20 } else { 12 })?;
            let samples = inside(media, &[b"minf", b"stbl"])?;
            let entry = inside(inside(samples, &[b"stsd"])?.get(BEFORE..)?, &[b"avc1"])?;
            let config = inside(entry.get(ENTRY..)?, &[b"avcC"])?;
            (scale > 0).then_some(Self { scale: scale.into(), samples, config })
        })
    }

    /// When each access unit is to be decoded, its bytes as a byte stream, and how long all last.
    fn units(&self, file: &[u8]) -> Option<(Vec<Unit>, Duration)> {
        let part = |kind| inside(self.samples, &[kind]);
        let fixed = word(part(b"stsz")?, 4)?;
        let sizes = if fixed > 0 {
            vec![vec![fixed]; word(part(b"stsz")?, 8)? as usize]
        } else {
            table(part(b"stsz")?, 8, 1)?
        };
        let chunks = table(part(b"stco")?, 4, 1)?;
        let runs = table(part(b"stsc")?, 4, 3)?;
        let steps = table(part(b"stts")?, 4, 2)?;
        let mut steps =
            steps.iter().flat_map(|step| std::iter::repeat_n(step[1], step[0] as usize));
        let mut sizes = sizes.into_iter().flatten();
        let nanos = |ticks: u64| Duration(ticks * 1_000_000_000 / self.scale);
        let (mut units, mut ticks) = (Vec::new(), 0);
        for (n, chunk) in (1..).zip(chunks) {
            let run = runs.iter().rev().find(|run| run[0] <= n)?;
            let mut at = chunk[0] as usize;
            for size in sizes.by_ref().take(run[1] as usize) {
                let end = at + size as usize;
                units.push((nanos(ticks), self.byte_stream(file.get(at..end)?, units.is_empty())?));
                ticks += u64::from(steps.next()?);
                at = end;
            }
        }
        (!units.is_empty()).then(|| (units, nanos(ticks)))
    }

    /// An access unit with start codes in place of lengths; the first with the parameter sets before it.
    fn byte_stream(&self, unit: &[u8], is_first: bool) -> Option<Vec<u8>> {
        let mut stream = Vec::with_capacity(unit.len() + 64);
        let mut add = |nal: &[u8]| {
            stream.extend_from_slice(&[0, 0, 0, 1]);
            stream.extend_from_slice(nal);
        };
        if is_first {
            let mut rest = self.config.get(5..)?;
            for mask in [0x1f, 0xff] {
                let (count, mut sets) = rest.split_first()?;
                for _ in 0..count & mask {
                    let len = usize::from(u16::from_be_bytes(sets.get(..2)?.try_into().ok()?));
                    add(sets.get(2..2 + len)?);
                    sets = &sets[2 + len..];
                }
                rest = sets;
            }
        }
        let prefix = usize::from(self.config.get(4)? & 3) + 1;
        let mut rest = unit;
        while !rest.is_empty() {
            let len = rest.get(..prefix)?.iter().fold(0, |len, &byte| len << 8 | usize::from(byte));
            add(rest.get(prefix..prefix + len)?);
            rest = &rest[prefix + len..];
        }
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_data_stream::Kind;

    fn clips() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clips")
    }

    /// What `clips/README.md` says of them.
    #[test]
    fn pictures_are_those_of_the_clips() {
        let counts = |file: &str| {
            let clip = Clip::read(&clips().join(file), 500, 1).unwrap();
            let of = |kind| clip.frames.iter().filter(|frame| frame.picture.kind == kind).count();
            ([Kind::Intra, Kind::Predicted, Kind::Bidirectional].map(of), clip.lasts)
        };
        let (corridor, lasts) = counts("one-by-one-person-detection.mp4");
        assert_eq!(corridor, [140, 434, 820]);
        assert_eq!(lasts.0 / 1_000_000_000, 139);
        let (cars, lasts) = counts("car-detection.mp4");
        assert_eq!(cars, [7, 370, 0]);
        assert_eq!(lasts.0 / 1_000_000_000, 30);
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let error = |file: &str| Clip::read(&clips().join(file), 500, 1).unwrap_err();
        assert!(matches!(error("README.md"), ClipError::Form(_)));
        assert!(matches!(error("absent.mp4"), ClipError::Read { .. }));
        // Cut off in its pictures or before, it is refused; its last bytes are of its sound.
        let whole = std::fs::read(clips().join("car-detection.mp4")).unwrap();
        for len in (0..whole.len() - 10_000).step_by(whole.len() / 97) {
            let cut = &whole[..len];
            assert!(Track::find(cut).and_then(|track| track.units(cut)).is_none(), "{len}");
        }
    }
}

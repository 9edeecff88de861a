//! The readers of relations between the units of a stream: one for each encoding.
//!
//! Units come from the framing in decoding order; pictures go with the frames to the scheduler. Pure,
//! and bounded in memory and time for any input.

use selvedge_data_stream::References;

use super::av1::Av1Reader;
use super::h264::H264Reader;
use super::h265::H265Reader;
use super::vp8::Vp8Reader;
use super::vp9::Vp9Reader;
use super::{Codec, Picture, PictureReader};

/// The reader for an encoding, by its name in SDP; `None` if its headers don't state references. A new
/// reader is a line here and a file.
#[must_use]
pub fn reader(encoding: &str) -> Option<Box<dyn PictureReader>> {
    let reader: Box<dyn PictureReader> = match encoding.to_ascii_uppercase().as_str() {
        "H264" => Box::<H264Reader>::default(),
        "H265" => Box::<H265Reader>::default(),
        "VP8" => Box::<Vp8Reader>::default(),
        "VP9" => Box::<Vp9Reader>::default(),
        "AV1" => Box::<Av1Reader>::default(),
        _ => return None,
    };
    Some(reader)
}

/// The reader for a codec. Without a specific reader each unit is examined alone.
#[must_use]
pub fn reader_of(codec: Codec) -> Box<dyn PictureReader> {
    reader(codec.encoding()).unwrap_or_else(|| Box::new(Alone(codec)))
}

/// Examines each unit alone.
#[derive(Debug)]
struct Alone(Codec);

impl PictureReader for Alone {
    fn push(&mut self, unit: &[u8]) -> Option<Picture> {
        Some(self.0.picture(unit))
    }

    fn restart(&mut self) {}
}

impl Picture {
    /// This part of a unit and a later one: the more dependent kind, and the references of both. Parts
    /// that follow, in the same unit, a picture that closes the past can only refer to that picture.
    pub(super) fn joined(self, later: Self) -> Self {
        let kind = match self.closes {
            true => self.kind,
            false if self.kind as u8 >= later.kind as u8 => self.kind,
            false => later.kind,
        };
        let all = |refs: References, later: References| {
            later.distances().map(u32::from).fold(refs, References::with)
        };
        Self {
            kind,
            referenced: self.referenced || later.referenced,
            closes: self.closes || later.closes,
            refs: self.refs.zip(later.refs).map(|(refs, later)| all(refs, later)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENCODINGS: [&str; 5] = ["H264", "H265", "VP8", "VP9", "AV1"];

    #[test]
    fn a_unit_without_a_reader_of_its_own_is_looked_at_alone() {
        assert!(reader("vp9").is_some() && reader("MPV").is_none());
        let mut stills = reader_of(Codec::Jpeg);
        stills.restart();
        assert_eq!(stills.push(&[]), Some(Picture::STILL));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            units in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..24),
        ) {
            for encoding in ENCODINGS {
                let mut reader = reader(encoding).unwrap();
                for (number, unit) in units.iter().enumerate() {
                    let refs = reader.push(unit).and_then(|picture| picture.refs);
                    let refs = refs.filter(|refs| refs.is_known()).unwrap_or_default();
                    prop_assert!(refs.distances().all(|back| usize::from(back) <= number));
                }
            }
        }
    }
}

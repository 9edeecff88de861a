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

/// The reader for a codec; if its headers don't state references, each unit is examined alone. A new
/// reader is a line here and a file.
#[must_use]
pub fn reader(codec: Codec) -> Box<dyn PictureReader> {
    match codec {
        Codec::H264 => Box::<H264Reader>::default(),
        Codec::H265 => Box::<H265Reader>::default(),
        Codec::Vp8 => Box::<Vp8Reader>::default(),
        Codec::Vp9 => Box::<Vp9Reader>::default(),
        Codec::Av1 => Box::<Av1Reader>::default(),
        Codec::Mpv | Codec::Jpeg | Codec::Aac | Codec::Opus | Codec::L16 => Box::new(Alone(codec)),
    }
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

    #[test]
    fn a_unit_without_a_reader_of_its_own_is_looked_at_alone() {
        let mut stills = reader(Codec::Jpeg);
        stills.restart();
        assert_eq!(stills.push(&[]), Some(Picture::STILL));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            units in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..24),
        ) {
            for codec in Codec::ALL {
                let mut reader = reader(codec);
                for (number, unit) in units.iter().enumerate() {
                    let refs = reader.push(unit).and_then(|picture| picture.refs);
                    let refs = refs.filter(|refs| refs.is_known()).unwrap_or_default();
                    prop_assert!(refs.distances().all(|back| usize::from(back) <= number));
                }
            }
        }
    }
}

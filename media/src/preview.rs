//! The moving pictures or the sound of one received stream, for pages: whole frames in, access units and images out.
//!
//! `packets -> Units or Depacketizer -> rings of units (-> Thumbnailer -> ring of images, while requested)`.

use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_control_config::view::{PictureForm, Pictures, Sound};
use selvedge_units::Duration;

use crate::depacketizer::Depacketizer;
use crate::error::SourceError;
use crate::onlookers::Onlookers;
use crate::picture::{Codec, Picture, h264};
use crate::picture_rings::{PictureRings, PictureTimes, stands_alone};
use crate::thumbnail::Imager;
use crate::units::Units;

/// Keeps the pictures of a stream that can be shown.
#[derive(Debug)]
pub struct Preview {
    maker: Mutex<UnitMaker>,
    shared: Arc<Shared>,
}

/// What makes access units of packets.
#[derive(Debug)]
enum UnitMaker {
    Here(Units, Imager),
    InPipeline(Depacketizer),
}

#[derive(Debug)]
struct Shared {
    codec: Codec,
    rings: Arc<PictureRings>,
    /// The name by which a browser's decoder knows it.
    written: Mutex<String>,
}

impl Preview {
    /// For a stream of this codec; `None` for one that is not shown.
    ///
    /// # Errors
    /// As [`Depacketizer::new`].
    pub fn new(codec: Codec, clock_rate: u32) -> Result<Option<Self>, SourceError> {
        let rings = Arc::new(PictureRings::new(codec));
        let mut imager = Imager::new(codec, Arc::clone(&rings) as Arc<dyn Onlookers>);
        let written = codec.browser_name(None);
        let shared = Arc::new(Shared { codec, rings, written: Mutex::new(written) });
        if let Some(units) = Units::new(codec, clock_rate) {
            return Ok(Some(Self { maker: Mutex::new(UnitMaker::Here(units, imager)), shared }));
        }
        let to = Arc::clone(&shared);
        let give =
            move |unit: &[u8], present| to.take_unit(unit, Picture::DATA, present, &mut imager);
        let depacketizer = Depacketizer::new(codec, clock_rate, give)?;
        Ok(depacketizer.map(|it| Self { maker: Mutex::new(UnitMaker::InPipeline(it)), shared }))
    }

    /// Takes all packets of a frame that can be decoded, in decoding order, and what they state of its picture. Does not wait.
    pub fn push(&self, packets: &[Vec<u8>], stated: Picture, times: PictureTimes) {
        let rings = &self.shared.rings;
        match &mut *self.maker.lock() {
            UnitMaker::Here(units, imager) => {
                let Some((present, unit)) = units.push(packets) else { return };
                rings.note_times(times, || Some(present));
                self.shared.take_unit(&unit, stated, present, imager);
            }
            UnitMaker::InPipeline(depacketizer) => {
                rings.note_times(times, || depacketizer.push(packets));
            }
        }
    }

    /// The form of its sound, if it is sound.
    #[must_use]
    pub fn sound(&self) -> Option<Sound> {
        self.shared.codec.sound()
    }

    /// The name by which a browser's decoder knows the codec; empty until it is known, and where browsers have none.
    #[must_use]
    pub fn codec(&self) -> String {
        self.shared.written.lock().clone()
    }

    /// Pictures after the one with this number, a few at most.
    #[must_use]
    pub fn pictures(&self, form: PictureForm, after: Option<u64>) -> Pictures {
        self.shared.rings.pictures(form, after)
    }
}

impl Shared {
    fn take_unit(&self, unit: &[u8], stated: Picture, present: Duration, imager: &mut Imager) {
        let picture = self.codec.picture_or(unit, stated);
        if self.codec == Codec::H264
            && stands_alone(picture)
            && self.written.lock().is_empty()
            && let Some(id) = h264::profile_level_id(unit)
        {
            *self.written.lock() = format!("avc1.{id}");
        }
        self.rings.push_unit(picture, present, unit);
        if let Some(imager) = imager.made() {
            imager.feed(picture, present, unit);
        }
    }
}

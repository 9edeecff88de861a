//! The moving pictures of one received stream, for pages: whole frames in, access units and images out.
//!
//! `packets -> Depacketizer -> rings of units (-> Thumbnailer -> ring of images, while requested)`.

use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_control_config::view::{PictureForm, Pictures};
use selvedge_units::Duration;

use crate::depacketizer::Depacketizer;
use crate::error::SourceError;
use crate::onlookers::Onlookers;
use crate::picture::{Codec, h264};
use crate::picture_rings::{PictureRings, stands_alone};
use crate::thumbnail::Imager;

/// Keeps the pictures of a stream that can be shown.
#[derive(Debug)]
pub struct Preview {
    depacketizer: Mutex<Depacketizer>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    codec: Codec,
    rings: Arc<PictureRings>,
    /// The codec as RFC 6381 writes it.
    written: Mutex<String>,
}

impl Preview {
    /// For a stream of this codec; `None` for sound.
    ///
    /// # Errors
    /// As [`Depacketizer::new`].
    pub fn new(codec: Codec, clock_rate: u32) -> Result<Option<Self>, SourceError> {
        let rings = Arc::new(PictureRings::new(codec));
        let mut imager = Imager::new(codec, Arc::clone(&rings) as Arc<dyn Onlookers>);
        let shared = Arc::new(Shared { codec, rings, written: Mutex::default() });
        let to = Arc::clone(&shared);
        let give = move |unit: &[u8], present| to.take_unit(unit, present, &mut imager);
        let depacketizer = Depacketizer::new(codec, clock_rate, give)?;
        Ok(depacketizer.map(|it| Self { depacketizer: Mutex::new(it), shared }))
    }

    /// Takes all packets of a frame that can be decoded, in decoding order; it is to be shown no
    /// earlier than after `left`. Does not wait.
    pub fn push(&self, packets: &[Vec<u8>], left: Duration) {
        let mut depacketizer = self.depacketizer.lock();
        self.shared.rings.note_due(left, || depacketizer.push(packets));
    }

    /// The codec as RFC 6381 writes it; empty until it is known, and where a browser has no
    /// decoder for it.
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
    fn take_unit(&self, unit: &[u8], present: Duration, imager: &mut Imager) {
        let picture = self.codec.picture(unit);
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

//! Frames of the access units that another program hands over as bytes, one whole unit at a time.
//!
//! No parser cuts or completes them: each goes to the payloader as it came.

use gstreamer as gst;
use selvedge_units::Instant;

use super::elements;
use super::framing::{self, Framing};
use super::unit::Unit;
use crate::error::SourceError;
use crate::frame::{FrameSink, StreamInfo};
use crate::picture::{Codec, jpeg};

/// Makes frames of a program's units, in the calling thread.
#[derive(Debug)]
pub struct UnitFramer {
    what: String,
    framing: Framing,
    info: StreamInfo,
}

/// The encodings whose units say all about themselves, with the caps of a stream of them.
const CAPS: [(Codec, &str); 7] = [
    (Codec::H264, "video/x-h264,stream-format=byte-stream,alignment=au"),
    (Codec::H265, "video/x-h265,stream-format=byte-stream,alignment=au"),
    (Codec::Vp8, "video/x-vp8"),
    (Codec::Vp9, "video/x-vp9,alignment=super-frame"),
    (Codec::Av1, "video/x-av1,stream-format=obu-stream,alignment=tu"),
    (Codec::Jpeg, "image/jpeg"),
    (Codec::Opus, "audio/x-opus,channel-mapping-family=0,channels=2,rate=48000"),
];

impl UnitFramer {
    /// For units of this encoding. `what` is the source in errors, `payload_max` the room in a packet after its
    /// 12-byte fixed header.
    ///
    /// # Errors
    /// [`SourceError`] for other encodings, or if a payloader is not installed.
    pub fn new(what: &str, encoding: &str, payload_max: usize) -> Result<Self, SourceError> {
        elements::init()?;
        let known = CAPS.iter().find(|(codec, _)| codec.encoding().eq_ignore_ascii_case(encoding));
        let (_, caps) = known.ok_or_else(|| SourceError::CodecUnsupported {
            what: what.into(),
            codec: encoding.into(),
        })?;
        let caps: gst::Caps = caps.parse().expect("the text is of caps");
        let framing = Framing::new(what, framing::format(what, &caps)?, payload_max)?;
        Ok(Self { what: what.into(), info: framing.info(), framing })
    }

    /// The stream's description.
    #[must_use]
    pub const fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// Passes `sink` the frame of a unit that is to be shown at this instant; none if the payloader makes nothing of it.
    ///
    /// # Errors
    /// [`SourceError`] if the payloader fails, or an image can't travel as RTP JPEG.
    pub fn push(
        &mut self,
        unit: Vec<u8>,
        at: Instant,
        sink: &mut dyn FrameSink,
    ) -> Result<(), SourceError> {
        if self.info.codec == Codec::Jpeg {
            jpeg::check(&unit)
                .map_err(|reason| SourceError::Jpeg { what: self.what.clone(), reason })?;
        }
        let at = i64::try_from(at.0).ok();
        let unit = Unit { buffer: gst::Buffer::from_mut_slice(unit), pts: at, dts: at };
        for (unit, at) in self.framing.frames(unit, self.info.period) {
            self.framing.enqueue(&unit, at, sink)?;
        }
        Ok(())
    }
}

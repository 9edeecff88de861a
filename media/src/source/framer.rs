//! Frames of access units that another program delivers: its pipeline, or the program itself, one whole unit at a time.
//!
//! [`super::Source`] owns its pipeline and its pace; an element inside a foreign pipeline receives
//! units when they are due. The way from unit to packets is the same.

use gstreamer as gst;
use selvedge_units::Instant;

use super::framing::{self, Framing};
use super::unit::Unit;
use super::{PERIOD_DEFAULT, carry, elements, forms};
use crate::error::SourceError;
use crate::frame::{FrameSink, StreamInfo};
use crate::picture::{Codec, jpeg};

/// Makes frames of the access units of one stream, in the calling thread.
#[derive(Debug)]
pub struct Framer {
    what: String,
    framing: Framing,
    info: StreamInfo,
    looked: bool,
}

/// The encodings whose units say all about themselves: no parser has to cut or complete them.
const WHOLE: [Codec; 7] =
    [Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1, Codec::Jpeg, Codec::Opus];
const OPUS: &str = "audio/x-opus,channel-mapping-family=0,channels=2,rate=48000";

impl Framer {
    /// For units in the output format of [`Self::entry`]. `what` is the stream's name in errors,
    /// `payload_max` the room in a packet after its 12-byte fixed header.
    ///
    /// # Errors
    /// [`SourceError`] for other caps, or if a payloader is not installed.
    pub fn new(what: &str, caps: &gst::CapsRef, payload_max: usize) -> Result<Self, SourceError> {
        let framing = Framing::new(what, framing::format(what, caps)?, payload_max)?;
        Ok(Self { what: what.into(), info: framing.info(), framing, looked: false })
    }

    /// For units that come as bytes, of this encoding.
    ///
    /// # Errors
    /// [`SourceError`] for encodings whose units need a parser, or if a payloader is not installed.
    pub fn of_bytes(what: &str, encoding: &str, payload_max: usize) -> Result<Self, SourceError> {
        elements::init()?;
        let codec = Codec::from_encoding(encoding).filter(|codec| WHOLE.contains(codec));
        let caps = match codec {
            Some(Codec::Opus) => OPUS.parse().expect("the text is of caps"),
            Some(codec) => forms::caps(codec),
            None => {
                let codec = encoding.into();
                return Err(SourceError::CodecUnsupported { what: what.into(), codec });
            }
        };
        Self::new(what, &caps, payload_max)
    }

    /// Converts encoded media, or sound that is not encoded, into this form: a bin with pads `sink` and
    /// `src`.
    ///
    /// # Errors
    /// [`SourceError`] for media that are not carried, or if an element is not installed.
    pub fn entry(what: &str, caps: &gst::CapsRef) -> Result<gst::Bin, SourceError> {
        carry::entry(what, caps)
    }

    /// The stream's description.
    #[must_use]
    pub const fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// Whether the period comes from the medium: a stated frame rate, or sound.
    #[must_use]
    pub const fn knows_period(&self) -> bool {
        self.framing.format.period.is_some() || self.framing.is_audio()
    }

    /// Continues with other caps of the same encoding.
    ///
    /// # Errors
    /// [`SourceError::Pipeline`] if the encoding, or the rate or channels of sound, change.
    pub fn accept_caps(&mut self, caps: &gst::CapsRef) -> Result<(), SourceError> {
        self.framing.accept_caps(caps)?;
        self.framing.timeline.set_period(self.framing.format.period.unwrap_or(PERIOD_DEFAULT));
        self.looked = false;
        Ok(())
    }

    /// Takes a unit, whose times are in this segment; passes `sink` the frames that have become
    /// complete: one for a picture, any number for sound, none if the payloader does not understand the
    /// unit.
    ///
    /// # Errors
    /// [`SourceError`] if the payloader fails, or the images can't travel as RTP JPEG.
    pub fn push(
        &mut self,
        unit: &gst::Buffer,
        segment: &gst::Segment,
        sink: &mut dyn FrameSink,
    ) -> Result<(), SourceError> {
        self.enqueue(Unit::in_segment(unit.clone(), Some(segment)), sink)
    }

    /// Passes `sink` the frames of a unit that is to be shown at this instant.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_bytes(
        &mut self,
        unit: Vec<u8>,
        at: Instant,
        sink: &mut dyn FrameSink,
    ) -> Result<(), SourceError> {
        // Each image is checked: no parser has seen it.
        self.looked = false;
        let at = i64::try_from(at.0).ok();
        self.enqueue(Unit { buffer: gst::Buffer::from_mut_slice(unit), pts: at, dts: at }, sink)
    }

    fn enqueue(&mut self, unit: Unit, sink: &mut dyn FrameSink) -> Result<(), SourceError> {
        let is_jpeg = self.framing.format.codec == Codec::Jpeg;
        if is_jpeg && !std::mem::replace(&mut self.looked, true) {
            let map = unit.buffer.map_readable().ok();
            jpeg::check(map.as_deref().unwrap_or_default())
                .map_err(|reason| SourceError::Jpeg { what: self.what.clone(), reason })?;
        }
        for (unit, at) in self.framing.frames(unit, self.info.period) {
            self.framing.enqueue(&unit, at, sink)?;
        }
        Ok(())
    }

    /// The stream has ended: the rest of sound goes to `sink`.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self, sink: &mut dyn FrameSink) -> Result<(), SourceError> {
        if let Some((unit, at)) = self.framing.drain_rest() {
            self.framing.enqueue(&unit, at, sink)?;
        }
        Ok(())
    }
}

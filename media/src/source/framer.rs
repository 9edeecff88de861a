//! Frames of access units that somebody else's pipeline delivers.
//!
//! [`super::Source`] owns its pipeline and its pace; an element that sits in a pipeline is handed
//! units when they are due. The way from unit to packets is the same.

use gstreamer as gst;

use super::PERIOD_DEFAULT;
use super::packetizer::Packetizer;
use super::unit::Format;
use crate::error::SourceError;
use crate::frame::{FrameSink, MediaFrame, StreamInfo};
use crate::picture::mpeg::{self, DisplayOrder};
use crate::picture::{Codec, jpeg};
use crate::sound::SoundCutter;
use crate::timeline::{Moments, Timeline};

/// Makes frames of the access units of one stream, in the calling thread.
#[derive(Debug)]
pub struct Framer {
    what: String,
    format: Format,
    info: StreamInfo,
    timeline: Timeline,
    order: DisplayOrder,
    packetizer: Packetizer,
    /// Cuts sound into packets; `None` for pictures.
    sound: Option<SoundCutter>,
    looked: bool,
}

impl Framer {
    /// For units of these caps: H.264 as byte stream by access units, with parameter sets in
    /// front of every IDR picture; MPEG-1 or -2 video and JPEG by pictures; S16BE sound of one or
    /// two channels. `what` is the stream's name in errors, `payload_max` what a packet may carry
    /// behind its 12-byte fixed header.
    ///
    /// # Errors
    /// [`SourceError`] for other caps, or if a payloader is not installed.
    pub fn new(what: &str, caps: &gst::CapsRef, payload_max: usize) -> Result<Self, SourceError> {
        let unknown =
            || SourceError::CodecUnsupported { what: what.into(), codec: caps.to_string() };
        let format = Format::new(caps).ok_or_else(unknown)?;
        let mut info = format.info();
        let mut sound = None;
        if format.codec == Codec::L16 {
            let (rate, channels) = format.sound.ok_or_else(unknown)?;
            let cutter = SoundCutter::new(rate, channels, payload_max);
            info.period = cutter.period();
            sound = Some(cutter);
        }
        Ok(Self {
            what: what.into(),
            timeline: Timeline::new(info.period),
            order: DisplayOrder::default(),
            packetizer: Packetizer::new(format.codec, payload_max)?,
            sound,
            looked: false,
            info,
            format,
        })
    }

    /// What the stream is.
    #[must_use]
    pub const fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// Whether the period comes from the medium: a stated frame rate, or sound.
    #[must_use]
    pub const fn knows_period(&self) -> bool {
        self.format.period.is_some() || self.sound.is_some()
    }

    /// Goes on with other caps of the same encoding.
    ///
    /// # Errors
    /// [`SourceError::Pipeline`] if the encoding, or the rate or channels of sound, change.
    pub fn adopt(&mut self, caps: &gst::CapsRef) -> Result<(), SourceError> {
        let same = |f: &Format| f.codec == self.format.codec && f.sound == self.format.sound;
        self.format = Format::new(caps).filter(same).ok_or_else(|| SourceError::Pipeline {
            element: self.what.clone(),
            message: format!("the stream changed to {caps}"),
        })?;
        self.timeline.set_period(self.format.period.unwrap_or(PERIOD_DEFAULT));
        self.looked = false;
        Ok(())
    }

    /// Takes a unit with its times in nanoseconds on the pipeline's clock, of any sign; gives
    /// `sink` what has become whole: one frame of a picture, any number of sound, none of what
    /// the payloader does not understand.
    ///
    /// # Errors
    /// [`SourceError`] if the payloader fails, or the images can't travel as RTP JPEG.
    pub fn push(
        &mut self,
        unit: &gst::Buffer,
        pts: Option<i64>,
        dts: Option<i64>,
        sink: &mut dyn FrameSink,
    ) -> Result<(), SourceError> {
        let map = unit.map_readable().ok();
        let bytes = map.as_deref().unwrap_or_default();
        if let Some(cutter) = &mut self.sound {
            cutter.push(bytes);
            let blocks = cutter.blocks();
            return blocks
                .into_iter()
                .try_for_each(|(block, at)| self.offer_sound(block, at, sink));
        }
        if self.format.codec == Codec::Jpeg && !std::mem::replace(&mut self.looked, true) {
            jpeg::check(bytes)
                .map_err(|reason| SourceError::Jpeg { what: self.what.clone(), reason })?;
        }
        let lag = match self.format.codec {
            Codec::Mpv => mpeg::headers(bytes).map_or(1, |headers| self.order.lag(&headers)),
            _ => 0,
        };
        let at = self.timeline.place(pts, dts, self.info.period * lag);
        self.offer(unit, bytes, at, sink)
    }

    /// The stream has ended: what is left of sound goes to `sink`.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self, sink: &mut dyn FrameSink) -> Result<(), SourceError> {
        let rest = self.sound.as_mut().and_then(SoundCutter::rest);
        rest.map_or(Ok(()), |(block, at)| self.offer_sound(block, at, sink))
    }

    fn offer_sound(
        &mut self,
        block: Vec<u8>,
        at: Moments,
        sink: &mut dyn FrameSink,
    ) -> Result<(), SourceError> {
        self.offer(&gst::Buffer::from_mut_slice(block), &[], at, sink)
    }

    fn offer(
        &mut self,
        unit: &gst::Buffer,
        bytes: &[u8],
        at: Moments,
        sink: &mut dyn FrameSink,
    ) -> Result<(), SourceError> {
        self.packetizer.push(unit, &self.format.caps, at)?;
        let packets = self.packetizer.packets().collect::<Vec<_>>();
        let Some(stamp) = packets.first().and_then(|packet| packet.get(4..8)) else {
            tracing::debug!("a unit of {} made no packets", self.what);
            return Ok(());
        };
        let rtp_timestamp = stamp.iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
        sink.offer(MediaFrame {
            picture: self.format.codec.picture(bytes),
            media_time: at.present,
            decode_time: at.decode,
            rtp_timestamp,
            packets: &packets,
        });
        Ok(())
    }
}

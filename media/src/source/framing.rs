//! The way from an access unit to frames, for all providers of units: `unit -> cut and placed in time
//! -> payloader -> FrameSink`.
//!
//! [`super::Source`] takes units from its own pipeline and keeps their pace; [`super::Framer`] receives
//! them from an element inside a foreign pipeline.

use gstreamer as gst;
use selvedge_data_stream::rtp::HEADER_LEN;
use selvedge_units::Duration;

use super::descriptors;
use super::packetizer::Packetizer;
use super::unit::{Format, Unit};
use crate::error::SourceError;
use crate::frame::{FrameSink, MediaFrame, StreamInfo};
use crate::picture::mpeg::{self, DisplayOrder};
use crate::picture::{Codec, Picture, PictureReader, reader};
use crate::samples::SampleBlocks;
use crate::timeline::{FrameTimes, Timeline};

/// The steps that a stream's units go through.
#[derive(Debug)]
pub(super) struct Framing {
    /// The stream's name in errors.
    what: String,
    pub(super) format: Format,
    pub(super) timeline: Timeline,
    order: DisplayOrder,
    packetizer: Packetizer,
    pictures: Box<dyn PictureReader>,
    /// Cuts sound into packets; `None` for media that have units of their own.
    sound: Option<SampleBlocks>,
    /// The offset of the times of blocks of sound, and the place of our zero on the medium's clock.
    sound_offset: Duration,
    sound_zero: Option<i64>,
}

impl Framing {
    /// For units of this format.
    ///
    /// # Errors
    /// [`SourceError`] for sound of unknown rate or channels, or if a payloader is not installed.
    pub(super) fn new(what: &str, format: Format, payload_max: usize) -> Result<Self, SourceError> {
        let sound = match (format.codec, format.audio) {
            (Codec::L16, None) => return Err(unknown(what, &format.caps)),
            (Codec::L16, Some((rate, channels))) => {
                Some(SampleBlocks::new(rate, channels, payload_max))
            }
            _ => None,
        };
        let mut framing = Self {
            what: what.into(),
            timeline: Timeline::new(Duration::ZERO),
            order: DisplayOrder::default(),
            packetizer: Packetizer::new(format.codec, payload_max)?,
            pictures: reader(format.codec),
            sound,
            sound_offset: Duration::ZERO,
            sound_zero: None,
            format,
        };
        framing.timeline.set_period(framing.info().period);
        Ok(framing)
    }

    /// The stream's description before a unit was examined.
    pub(super) fn info(&self) -> StreamInfo {
        let mut info = self.format.info();
        if let Some(cutter) = &self.sound {
            info.period = cutter.period();
        }
        info
    }

    pub(super) const fn is_audio(&self) -> bool {
        self.sound.is_some()
    }

    /// Accepts a change of caps in mid-stream, if the stream stays as it was announced.
    pub(super) fn accept_caps(&mut self, caps: &gst::CapsRef) -> Result<(), SourceError> {
        let same = |f: &Format| f.codec == self.format.codec && f.audio == self.format.audio;
        self.format = Format::new(caps).filter(same).ok_or_else(|| SourceError::Pipeline {
            element: self.what.clone(),
            message: format!("the stream changed to {caps}"),
        })?;
        Ok(())
    }

    /// The medium begins again; time continues without a gap.
    pub(super) fn restart(&mut self) {
        self.timeline.restart();
        self.order = DisplayOrder::default();
        self.pictures.restart();
    }

    /// The medium begins, or begins again, with our zero at this moment of its clock.
    pub(super) fn align(&mut self, zero: i64) {
        self.timeline.align(zero);
        self.sound_zero = Some(zero);
    }

    /// How long after its decoding time a unit is shown, by the medium.
    pub(super) fn lag(&self, unit: &Unit) -> Duration {
        let period = self.format.period.unwrap_or_default();
        match (unit.pts, unit.dts) {
            (Some(pts), Some(dts)) => Duration(u64::try_from(pts - dts).unwrap_or(0)),
            _ if self.reorders() => period,
            _ => Duration::ZERO,
        }
    }

    /// Only these decode pictures in another order than they show them; for others, containers leave
    /// the decoding time out.
    const fn reorders(&self) -> bool {
        matches!(self.format.codec, Codec::H264 | Codec::H265 | Codec::Mpv)
    }

    /// The frames of a unit, each with its times: one for a picture, any number for sound.
    pub(super) fn frames(
        &mut self,
        unit: Unit,
        period: Duration,
    ) -> Vec<(gst::Buffer, FrameTimes)> {
        let map = unit.buffer.map_readable().ok();
        let bytes = map.as_deref().unwrap_or_default();
        if let Some(cutter) = &mut self.sound {
            if let Some(zero) = self.sound_zero.take() {
                let at = unit.pts.unwrap_or(0).saturating_sub(zero);
                self.sound_offset = Duration(u64::try_from(at).unwrap_or(0)) - cutter.next();
            }
            cutter.push(bytes);
            let offset = self.sound_offset;
            let later = move |(bytes, at): (Vec<u8>, FrameTimes)| {
                let at = FrameTimes { decode: at.decode + offset, present: at.present + offset };
                sound_buffer((bytes, at))
            };
            return cutter.blocks().into_iter().map(later).collect();
        }
        let lag = match self.format.codec {
            Codec::Mpv => mpeg::headers(bytes).map_or(1, |headers| self.order.lag(&headers)),
            _ => 0,
        };
        drop(map);
        let dts = if self.reorders() { unit.dts } else { unit.dts.or(unit.pts) };
        let at = self.timeline.place(unit.pts, dts, period * lag);
        vec![(unit.buffer, at)]
    }

    /// The rest of sound when the stream has ended.
    pub(super) fn drain_rest(&mut self) -> Option<(gst::Buffer, FrameTimes)> {
        self.sound.as_mut().and_then(SampleBlocks::drain_rest).map(sound_buffer)
    }

    /// Passes `sink` a frame; returns its relation to others, or `None` if the payloader made nothing
    /// of it.
    pub(super) fn enqueue(
        &mut self,
        unit: &gst::Buffer,
        at: FrameTimes,
        sink: &mut dyn FrameSink,
    ) -> Result<Option<Picture>, SourceError> {
        self.packetizer.push(unit, &self.format.caps, at)?;
        let packets = self.packetizer.packets().collect::<Vec<_>>();
        let Some(stamp) = packets.first().and_then(|packet| packet.get(4..8)) else {
            tracing::debug!("a unit of {} made no packets", self.what);
            return Ok(None);
        };
        debug_assert!(packets.iter().all(|packet| packet.len() > HEADER_LEN));
        let rtp_timestamp = stamp.iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
        let map = unit.map_readable().ok();
        let bytes = map.as_deref().unwrap_or_default();
        let mut picture = self.pictures.push(bytes).unwrap_or(Picture::DATA);
        picture.refs = descriptors::references(unit).or(picture.refs);
        sink.enqueue(MediaFrame {
            picture,
            media_time: at.present,
            decode_time: at.decode,
            rtp_timestamp,
            unit: bytes,
            packets: &packets,
        });
        Ok(Some(picture))
    }
}

/// The format of these caps.
///
/// # Errors
/// [`SourceError::CodecUnsupported`] for encodings that are not carried.
pub(super) fn format(what: &str, caps: &gst::CapsRef) -> Result<Format, SourceError> {
    Format::new(caps).ok_or_else(|| unknown(what, caps))
}

fn unknown(what: &str, caps: &gst::CapsRef) -> SourceError {
    SourceError::CodecUnsupported { what: what.into(), codec: caps.to_string() }
}

fn sound_buffer((bytes, at): (Vec<u8>, FrameTimes)) -> (gst::Buffer, FrameTimes) {
    (gst::Buffer::from_mut_slice(bytes), at)
}

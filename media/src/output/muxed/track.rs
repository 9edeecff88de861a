//! The input of containers: tracks, and samples as GStreamer's parsers deliver them.

use gstreamer as gst;
use selvedge_units::Duration;

use super::super::units::Unit;
use crate::error::SourceError;
use crate::source::alone::Alone;
use crate::source::elements::{make, wiring};

/// The forms of units in transport streams.
const STREAM: &str = ",stream-format=byte-stream";
const ADTS: &str = ",stream-format=adts";

/// A picture or a sound as containers describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Track {
    pub(super) encoding: Encoding,
    /// The data that a decoder needs before the first sample.
    pub(super) private: Vec<u8>,
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) rate: u32,
    pub(super) channels: u8,
}

/// The encodings of transport streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    H264,
    H265,
    Mpeg1,
    Mpeg2,
    Aac,
}

/// A frame of a track.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The picture's, 0, or the sound's, 1.
    pub(super) track: usize,
    /// Whether decoding can begin here.
    pub(super) key: bool,
    pub(super) decode: Duration,
    pub(super) present: Duration,
    pub(super) bytes: Vec<u8>,
}

/// Makes samples of access units.
#[derive(Debug)]
pub(super) struct Parser {
    track: usize,
    element: Alone,
}

impl Parser {
    /// For units like this one.
    pub(super) fn new(unit: &Unit) -> Result<Self, SourceError> {
        let (factory, media, given, wanted) = match unit.kind {
            0x1b => ("h264parse", "video/x-h264,alignment=au", STREAM, ",stream-format=avc"),
            0x24 => ("h265parse", "video/x-h265,alignment=au", STREAM, ",stream-format=hvc1"),
            0x0f => ("aacparse", "audio/mpeg,mpegversion=4", ADTS, ",stream-format=raw"),
            _ => ("mpegvideoparse", "video/mpeg", ",mpegversion=2,systemstream=false", ""),
        };
        let caps = |form: &str| {
            format!("{media}{form}").parse::<gst::Caps>().map_err(|e| wiring(factory, e))
        };
        let mut element = Alone::new(make(factory)?, &caps(wanted)?)?;
        element.announce(&caps(given)?)?;
        Ok(Self { track: unit.track, element })
    }

    /// The samples that are complete with this unit.
    pub(super) fn push(&self, unit: Unit) -> Vec<Sample> {
        let mut buffer = gst::Buffer::from_mut_slice(unit.bytes);
        if let Some(buffer) = buffer.get_mut() {
            buffer.set_dts(gst::ClockTime::from_nseconds(unit.decode.0));
            buffer.set_pts(gst::ClockTime::from_nseconds(unit.present.0));
        }
        self.samples(self.element.push(buffer))
    }

    /// The samples that are left at the end.
    pub(super) fn end(&self) -> Vec<Sample> {
        self.samples(self.element.end())
    }

    fn samples(&self, buffers: Vec<gst::Buffer>) -> Vec<Sample> {
        let sample = |buffer: gst::Buffer| {
            let at = |time: Option<gst::ClockTime>| time.map(|time| Duration(time.nseconds()));
            let present = at(buffer.pts())?;
            Some(Sample {
                track: self.track,
                key: !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT),
                decode: at(buffer.dts()).unwrap_or(present),
                present,
                bytes: buffer.map_readable().ok()?.to_vec(),
            })
        };
        buffers.into_iter().filter_map(sample).collect()
    }

    /// The description of its samples; `None` before the first.
    pub(super) fn track(&self) -> Option<Track> {
        let caps = self.element.caps()?;
        let said = caps.structure(0)?;
        let number = |name| said.get::<i32>(name).unwrap_or(0);
        let encoding = match (said.name().as_str(), number("mpegversion")) {
            ("video/x-h264", _) => Encoding::H264,
            ("video/x-h265", _) => Encoding::H265,
            ("video/mpeg", 1) => Encoding::Mpeg1,
            ("video/mpeg", _) => Encoding::Mpeg2,
            _ => Encoding::Aac,
        };
        let private = said.get::<gst::Buffer>("codec_data").ok();
        let private = private.and_then(|data| Some(data.map_readable().ok()?.to_vec()));
        Some(Track {
            encoding,
            private: private.unwrap_or_default(),
            width: number("width") as u16,
            height: number("height") as u16,
            rate: number("rate") as u32,
            channels: number("channels") as u8,
        })
    }
}

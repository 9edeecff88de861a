//! An encoded access unit as it leaves a feed, and the format of a feed.

use gstreamer as gst;
use selvedge_units::Duration;

use super::{PERIOD_DEFAULT, forms};
use crate::frame::StreamInfo;
use crate::picture::Codec;

/// An access unit with its times on the medium's clock.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) buffer: gst::Buffer,
    /// Nanoseconds of running time, of any sign.
    pub(super) pts: Option<i64>,
    pub(super) dts: Option<i64>,
}

impl Unit {
    pub(super) fn new(sample: &gst::Sample) -> Option<Self> {
        Some(Self::in_segment(sample.buffer_owned()?, sample.segment()))
    }

    /// A buffer whose times are of this segment.
    pub(super) fn in_segment(buffer: gst::Buffer, segment: Option<&gst::Segment>) -> Self {
        let segment = segment.and_then(|s| s.downcast_ref::<gst::ClockTime>());
        let running = |time: Option<gst::ClockTime>| {
            let time = time?;
            let signed = match segment {
                Some(segment) => segment.to_running_time_full(time)?,
                None => gst::Signed::Positive(time),
            };
            i64::try_from(signed.nseconds()).ok()
        };
        let (pts, dts) = (running(buffer.pts()), running(buffer.dts()));
        Self { buffer, pts, dts }
    }
}

/// The format of a feed, from its caps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) codec: Codec,
    pub(super) caps: gst::Caps,
    /// From the frame rate, where it is stated.
    pub(super) period: Option<Duration>,
    pub(super) width: Option<u32>,
    pub(super) height: Option<u32>,
    /// Samples in a second and channels of sound.
    pub(super) audio: Option<(u32, u8)>,
}

impl Format {
    /// `None` if the encoding of the caps is not carried.
    pub(super) fn new(caps: &gst::CapsRef) -> Option<Self> {
        let s = caps.structure(0)?;
        let codec = forms::codec_of(caps)?;
        let number = |name| s.get::<i32>(name).ok().and_then(|n| u32::try_from(n).ok());
        let rate = s.get::<gst::Fraction>("framerate").ok();
        let period = rate.filter(|r| r.numer() > 0 && r.denom() > 0).map(|r| {
            let (n, d) = (u64::from(r.numer().unsigned_abs()), u64::from(r.denom().unsigned_abs()));
            Duration((d.saturating_mul(1_000_000_000).saturating_add(n / 2)) / n)
        });
        // Implausible rates stand for unknown ones.
        let plausible = Duration::from_micros(500)..=Duration::from_secs(60);
        let channels = number("channels").and_then(|n| u8::try_from(n).ok());
        let sound = number("rate").filter(|&n| n > 0).zip(channels.filter(|&n| n > 0));
        Some(Self {
            codec,
            caps: caps.to_owned(),
            period: period.filter(|p| plausible.contains(p)),
            width: number("width").filter(|&n| n > 0),
            height: number("height").filter(|&n| n > 0),
            // Opus is always announced like this (RFC 7587 section 7).
            audio: if codec == Codec::Opus { Some((48_000, 2)) } else { sound },
        })
    }

    /// The stream's description before a unit was examined.
    pub(super) fn info(&self) -> StreamInfo {
        StreamInfo {
            codec: self.codec,
            payload_type: self.codec.payload_type(),
            clock_rate: self.audio.map_or(90_000, |(rate, _)| rate),
            fmtp: None,
            channels: self.audio.map(|(_, channels)| channels),
            period: self.period.unwrap_or(PERIOD_DEFAULT),
            width: self.width,
            height: self.height,
        }
    }
}

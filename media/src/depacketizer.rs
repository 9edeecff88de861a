//! RTP packets of whole frames in, access units out, in a form for GStreamer's decoders: what
//! [`Units`](crate::units::Units) does not take.
//!
//! Packets come from a receiver that knows which frames are whole, or from a source; the payload
//! formats are GStreamer's. Nothing waits: packets that arrive while the input is full are left out.

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use selvedge_data_stream::rtp::{SEQUENCE_AT, stamp_sequence};
use selvedge_units::Duration;

use crate::error::SourceError;
use crate::picture::Codec;
use crate::source::elements::{bin, init, wiring};
use crate::thumbnail::collector;
use crate::units::MediaTimes;

/// Bytes that may wait for GStreamer's thread.
const WAITING: u64 = 4 << 20;

/// Makes access units of packets. Stopped when dropped.
#[derive(Debug)]
pub struct Depacketizer {
    pipeline: gst::Pipeline,
    input: gst_app::AppSrc,
    sequence: u16,
    times: MediaTimes,
}

impl Depacketizer {
    /// A depacketizer for this codec; `None` where there is none. `give` receives each unit with its time of
    /// presentation, from a GStreamer thread.
    ///
    /// # Errors
    /// [`SourceError::CodecAbsent`] if an element is not installed.
    pub fn new(
        codec: Codec,
        clock_rate: u32,
        give: impl FnMut(&[u8], Duration) + Send + 'static,
    ) -> Result<Option<Self>, SourceError> {
        init()?;
        let line = match codec {
            Codec::Mpv => "rtpmpvdepay ! mpegvideoparse",
            Codec::Jpeg => "rtpjpegdepay",
            _ => return Ok(None),
        };
        let caps = gst::Caps::builder("application/x-rtp")
            .field("media", "video")
            .field("encoding-name", codec.encoding())
            .field("payload", i32::from(codec.payload_type()))
            .field("clock-rate", i32::try_from(clock_rate).unwrap_or(90_000))
            .build();
        let input = gst_app::AppSrc::builder().caps(&caps).format(gst::Format::Time).build();
        let depay = bin(line)?;
        let output = collector(None, give);
        let pipeline = gst::Pipeline::new();
        let parts = [input.upcast_ref(), depay.upcast_ref(), output.upcast_ref::<gst::Element>()];
        pipeline.add_many(parts).map_err(|e| wiring("depacketizer", e))?;
        gst::Element::link_many(parts).map_err(|e| wiring("depacketizer", e))?;
        pipeline.set_state(gst::State::Playing).map_err(|e| wiring("depacketizer", e))?;
        Ok(Some(Self { pipeline, input, sequence: 0, times: MediaTimes::new(clock_rate) }))
    }

    /// Takes all packets of a frame, and returns its time of presentation; `None` if they are malformed
    /// or there is no room. Whole frames may be left out; numbers are assigned anew.
    pub fn push(&mut self, packets: &[Vec<u8>]) -> Option<Duration> {
        let stamp = packets.first()?.get(4..8)?;
        let stamp = stamp.iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
        let at = self.times.of(stamp);
        if self.input.current_level_bytes() >= WAITING {
            return None;
        }
        for packet in packets.iter().filter(|packet| packet.len() > SEQUENCE_AT + 2) {
            let mut bytes = packet.clone();
            stamp_sequence(&mut bytes, self.sequence);
            self.sequence = self.sequence.wrapping_add(1);
            let mut buffer = gst::Buffer::from_mut_slice(bytes);
            if let Some(buffer) = buffer.get_mut() {
                buffer.set_pts(gst::ClockTime::from_nseconds(at.0));
            }
            self.input.push_buffer(buffer).ok()?;
        }
        Some(at)
    }
}

impl Drop for Depacketizer {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

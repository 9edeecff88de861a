//! Access units into RTP packets: one GStreamer payloader, driven by hand, or our own for AV1.
//!
//! The payloader stands alone, so that its output while a unit goes in is exactly that unit's packets,
//! whatever the format.

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_data_stream::rtp::HEADER_LEN;

use super::alone::Alone;
use super::av1_packets::Av1Packets;
use super::elements::make;
use crate::error::SourceError;
use crate::picture::{Codec, h264, mpeg};
use crate::timeline::FrameTimes;

/// The least room that payloaders can work with: less would leave no room after their own headers.
const PAYLOAD_MIN: usize = 64;
/// More does not fit a UDP datagram.
const PAYLOAD_MAX: usize = 65_000;

/// Makes packets of one stream.
#[derive(Debug)]
pub(super) struct Packetizer {
    codec: Codec,
    maker: Maker,
    /// The packets of the last unit, one after the other, and the end of each.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// The maker of packets.
#[derive(Debug)]
enum Maker {
    Element(Alone),
    Av1(Av1Packets),
}

/// The payloaders, one a line; `None`: none of GStreamer's.
const fn factory(codec: Codec) -> Option<&'static str> {
    match codec {
        Codec::H264 => Some("rtph264pay"),
        Codec::H265 => Some("rtph265pay"),
        Codec::Vp8 => Some("rtpvp8pay"),
        Codec::Vp9 => Some("rtpvp9pay"),
        Codec::Av1 => None,
        Codec::Mpv => Some("rtpmpvpay"),
        Codec::Jpeg => Some("rtpjpegpay"),
        Codec::Aac => Some("rtpmp4gpay"),
        Codec::Opus => Some("rtpopuspay"),
        Codec::L16 => Some("rtpL16pay"),
    }
}

impl Packetizer {
    /// A packetizer whose packets carry at most `payload_max` bytes after their fixed headers.
    pub(super) fn new(codec: Codec, payload_max: usize) -> Result<Self, SourceError> {
        let payload_max = payload_max.clamp(PAYLOAD_MIN, PAYLOAD_MAX);
        let maker = match factory(codec) {
            Some(factory) => Maker::Element(payloader(factory, codec, payload_max)?),
            None => Maker::Av1(Av1Packets::new(payload_max, codec.payload_type())),
        };
        Ok(Self { codec, maker, bytes: Vec::new(), ends: Vec::new() })
    }

    /// Makes the packets of a unit. A unit that the payloader does not understand has none.
    pub(super) fn push(
        &mut self,
        unit: &gst::Buffer,
        caps: &gst::Caps,
        at: FrameTimes,
    ) -> Result<(), SourceError> {
        self.bytes.clear();
        self.ends.clear();
        let map = unit.map_readable().ok();
        let read = map.as_deref().unwrap_or_default();
        let payloader = match &mut self.maker {
            Maker::Element(payloader) => payloader,
            Maker::Av1(packets) => {
                let ticks = u128::from(at.present.0) * 90_000 / 1_000_000_000;
                packets.write(read, ticks as u32, &mut self.bytes, &mut self.ends);
                return Ok(());
            }
        };
        payloader.announce(caps)?;
        // A delimiter would travel in a packet of its own, and duplicate the marker bit.
        let skip = if self.codec == Codec::H264 { h264::delimiter_len(read) } else { 0 };
        let headers = if self.codec == Codec::Mpv { mpeg::headers(read) } else { None };
        drop(map);
        let mut unit = unit.copy_region(gst::BufferCopyFlags::MEMORY, skip..).unwrap_or_default();
        let time = unit.make_mut();
        time.set_pts(gst::ClockTime::from_nseconds(at.present.0));
        time.set_dts(gst::ClockTime::from_nseconds(at.decode.0));
        let buffers = payloader.push(unit);
        self.collect(&buffers, headers.as_ref());
        Ok(())
    }

    /// The packets of the last unit.
    pub(super) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// The parameters of the format for SDP, once the payloader has seen this unit.
    pub(super) fn fmtp(&self, unit: &[u8]) -> Option<String> {
        let Maker::Element(payloader) = &self.maker else { return None };
        let caps = payloader.caps()?;
        let structure = caps.structure(0)?;
        let mut parameters = Vec::new();
        match self.codec {
            Codec::H264 => {
                structure.get::<&str>("sprop-parameter-sets").ok()?;
                parameters.push("packetization-mode=1".to_owned());
                let profile = h264::profile_level_id(unit);
                parameters.extend(profile.map(|id| format!("profile-level-id={id}")));
            }
            Codec::Aac => parameters.push("streamtype=5".to_owned()),
            _ => {}
        }
        let names: &[&str] = match self.codec {
            Codec::H264 => &["sprop-parameter-sets"],
            Codec::H265 => &["sprop-vps", "sprop-sps", "sprop-pps"],
            Codec::Aac => &[
                "profile-level-id",
                "mode",
                "config",
                "sizelength",
                "indexlength",
                "indexdeltalength",
            ],
            Codec::Opus => &["sprop-stereo"],
            _ => &[],
        };
        let found = names.iter().filter_map(|&name| {
            let value = structure.get::<&str>(name).ok()?;
            Some(format!("{name}={value}"))
        });
        parameters.extend(found);
        (!parameters.is_empty()).then(|| parameters.join(";"))
    }

    fn collect(&mut self, buffers: &[gst::Buffer], headers: Option<&mpeg::Headers>) {
        let count = buffers.len();
        for (n, buffer) in buffers.iter().enumerate() {
            let start = self.bytes.len();
            self.bytes.resize(start + buffer.size(), 0);
            let packet = &mut self.bytes[start..];
            if buffer.copy_to_slice(0, packet).is_err() || packet.len() <= HEADER_LEN {
                self.bytes.truncate(start);
                continue;
            }
            if let Some((headers, video)) = headers.zip(packet.get_mut(HEADER_LEN..)) {
                fill_mpeg_header(headers, video, n == 0, n + 1 == count);
            }
            self.ends.push(self.bytes.len());
        }
    }
}

fn payloader(factory: &str, codec: Codec, payload_max: usize) -> Result<Alone, SourceError> {
    let element = make(factory)?;
    element.set_property("mtu", (HEADER_LEN + payload_max) as u32);
    element.set_property("pt", u32::from(codec.payload_type()));
    element.set_property("timestamp-offset", 0u32);
    match codec {
        // The parser before this has put parameter sets where they belong.
        Codec::H264 | Codec::H265 => {
            element.set_property_from_str("aggregate-mode", "none");
        }
        // Every packet is sent when its picture ends, so that none waits for the next to fill it.
        Codec::Mpv => element.set_property("max-ptime", 0i64),
        Codec::L16 => element.set_property("min-ptime", 0i64),
        _ => {}
    }
    Alone::new(element, &gst::Caps::new_any())
}

/// RFC 2250 section 3.4: GStreamer leaves the MPEG header of its packets zero.
fn fill_mpeg_header(headers: &mpeg::Headers, video: &mut [u8], first: bool, last: bool) {
    if let Some((head, payload)) = video.split_at_mut_checked(mpeg::RTP_HEADER_LEN) {
        head.copy_from_slice(&headers.rtp_header(payload, first, last));
    }
}

//! `rtp:` sources: packets that come over the network, put in order, unpacked, and packed again,
//! so that their pictures can be read. What is no packet is thrown away at the door.

use std::net::SocketAddr;

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_data_stream::rtp::Packet;

use super::elements::{bin, wiring};
use super::feed::{Feed, Timing};
use super::unit::Format;
use crate::error::SourceError;
use crate::picture::Codec;

/// How long packets wait for those that were overtaken.
const REORDER_MS: u32 = 60;

/// What is expected to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) listen: SocketAddr,
    pub(super) codec: Codec,
    pub(super) clock_rate: u32,
    pub(super) channels: u8,
    pub(super) payload_type: Option<u8>,
}

impl Expected {
    /// Reads an encoding as `a=rtpmap` writes it: `H264`, `L16/48000/2`.
    pub(super) fn new(
        listen: SocketAddr,
        encoding: &str,
        payload_type: Option<u8>,
    ) -> Result<Self, SourceError> {
        let what = format!("rtp://{listen}");
        let refuse = |option: &str, remedy| SourceError::Option {
            what: what.clone(),
            option: format!("encoding={option}"),
            remedy,
        };
        let mut parts = encoding.split('/');
        let codec = parts.next().and_then(Codec::from_encoding);
        let codec = codec.ok_or_else(|| refuse(encoding, "give H264, MPV, JPEG or L16"))?;
        let remedy = "write L16/RATE/CHANNELS, such as L16/48000/2";
        let mut number = |default| match parts.next().map(str::parse::<u32>) {
            Some(Ok(n)) if n > 0 => Ok(n),
            None => Ok(default),
            Some(_) => Err(refuse(encoding, remedy)),
        };
        // RFC 3551: 10 is stereo and 11 mono, at 44100 Hz.
        let (rate, channels) = match (codec, payload_type) {
            (Codec::L16, Some(10)) => (44_100, 2),
            (Codec::L16, Some(11)) => (44_100, 1),
            (Codec::L16, _) => (48_000, 1),
            _ => (90_000, 1),
        };
        let (clock_rate, channels) = (number(rate)?, number(channels)?);
        let wrong = !codec.is_audio() && clock_rate != 90_000 || !(1..=2).contains(&channels);
        if wrong || parts.next().is_some() {
            return Err(refuse(encoding, remedy));
        }
        let channels = channels as u8;
        Ok(Self { listen, codec, clock_rate, channels, payload_type })
    }

    /// What is known before the first packet.
    pub(super) fn format(&self) -> Format {
        let sound = self.codec.is_audio().then_some((self.clock_rate, self.channels));
        let caps = gst::Caps::new_empty();
        Format { codec: self.codec, caps, period: None, width: None, height: None, audio: sound }
    }

    fn line(&self) -> String {
        let (media, depay) = match self.codec {
            Codec::H264 => ("video", "rtph264depay"),
            Codec::Mpv => ("video", "rtpmpvdepay"),
            Codec::Jpeg => ("video", "rtpjpegdepay"),
            Codec::L16 => ("audio", "rtpL16depay"),
        };
        let (name, rate, channels) = (self.codec.encoding(), self.clock_rate, self.channels);
        let sound = match self.codec {
            Codec::L16 => format!(",channels={channels},encoding-params=(string){channels}"),
            _ => String::new(),
        };
        format!(
            "udpsrc name=udp address={} port={} buffer-size=524288 \
             caps=application/x-rtp,media={media},clock-rate={rate},encoding-name={name}{sound} ! \
             rtpjitterbuffer latency={REORDER_MS} ! {depay}",
            self.listen.ip(),
            self.listen.port(),
        )
    }

    fn is_expected(&self, datagram: &[u8]) -> bool {
        let payload_type = |packet: Packet<'_>| packet.header.payload_type;
        Packet::parse(datagram)
            .is_ok_and(|packet| self.payload_type.is_none_or(|pt| pt == payload_type(packet)))
    }
}

/// The feed of a port.
pub(super) fn feed(what: &str, expected: Expected) -> Result<Feed, SourceError> {
    let head = |pipeline: &gst::Pipeline| {
        let bin = bin(&expected.line())?;
        let udp = bin.by_name("udp").and_then(|udp| udp.static_pad("src"));
        let door = udp.ok_or_else(|| wiring("udpsrc", "it has no output"))?;
        door.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let map = info.buffer().and_then(|buffer| buffer.map_readable().ok());
            if map.is_some_and(|map| expected.is_expected(&map)) {
                gst::PadProbeReturn::Ok
            } else {
                gst::PadProbeReturn::Drop
            }
        });
        pipeline.add(&bin).map_err(|e| wiring("udpsrc", e))?;
        Ok(bin.upcast())
    };
    Feed::parsed(what, Timing::Live, head).map_err(|error| match error {
        SourceError::Pipeline { message, .. } => SourceError::Device {
            device: expected.listen.to_string(),
            message,
            remedy: "see that the address is one of this machine's and the port is free",
        },
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(encoding: &str, pt: Option<u8>) -> Result<Expected, SourceError> {
        Expected::new("127.0.0.1:5004".parse().unwrap(), encoding, pt)
    }

    #[test]
    fn encodings_are_read_as_in_rtpmap() {
        let read = |text, pt| expected(text, pt).map(|e| (e.codec, e.clock_rate, e.channels));
        assert_eq!(read("h264", None), Ok((Codec::H264, 90_000, 1)));
        assert_eq!(read("JPEG/90000", Some(26)), Ok((Codec::Jpeg, 90_000, 1)));
        assert_eq!(read("L16/16000/2", None), Ok((Codec::L16, 16_000, 2)));
        assert_eq!(read("L16", Some(10)), Ok((Codec::L16, 44_100, 2)));
    }

    #[test]
    fn other_encodings_are_refused() {
        for text in ["", "VP8", "H264/8000", "L16/0", "L16/x", "L16/48000/3", "L16/48000/2/1"] {
            assert!(expected(text, None).unwrap_err().to_string().contains("encoding="), "{text}");
        }
    }

    #[test]
    fn only_packets_of_the_payload_type_pass_the_door() {
        let packet = [0x80, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 9];
        let passes = |pt, bytes: &[u8]| expected("H264", pt).unwrap().is_expected(bytes);
        assert!(passes(None, &packet));
        assert!(passes(Some(96), &packet));
        assert!(!passes(Some(97), &packet));
        assert!(!passes(None, &packet[..11]));
        assert!(!passes(None, b"GET / HTTP/1.1"));
    }
}

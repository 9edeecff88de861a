//! `rtp:` and `sdp:` sources: packets that come over the network, put in order, unpacked, and packed again,
//! so that their pictures can be read. What is no packet is thrown away at the door, and so is what comes from
//! another sender than the one that the source keeps to: another host than `from` names, or another
//! synchronization source while the first still sends (RFC 3550, section 8.2). Where the SDP has a key, packets are
//! sealed (SRTP, RFC 3711): only what is authentic decides which sender that is.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_net as gst_net;
use gstreamer_net::prelude::InetSocketAddressExt;
use parking_lot::Mutex;
use selvedge_control_config::FilePart;
use selvedge_data_stream::rtp::Packet;
use selvedge_units::Duration;

use super::elements::{make, wiring};
use super::feed::{Feed, Timing, UNSEALER};
use super::unit::Format;
use crate::dependency::DEPENDENCY_URI;
use crate::error::SourceError;
use crate::picture::Codec;
use crate::sdp::{Described, Session, TEXT_MAX};
use crate::srtp::SrtpKey;

/// How long packets wait for those that were overtaken.
const REORDER_MS: u32 = 60;
/// How long a sender must be silent before another one counts: shorter than a person waits for a camera
/// that was restarted, longer than a sender of one picture a second pauses.
const SILENT: Duration = Duration::from_millis(1500);

/// Senders of sealed packets that are remembered while none was authentic.
const STRANGERS_MAX: usize = 16;

/// What is expected to arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) listen: SocketAddr,
    pub(super) codec: Codec,
    pub(super) clock_rate: u32,
    pub(super) channels: u8,
    pub(super) payload_type: Option<u8>,
    /// Parameters of the format, as they stand in `a=fmtp`.
    pub(super) fmtp: Option<String>,
    /// The identifier of the dependency descriptor, if packets carry it.
    pub(super) dependency: Option<u8>,
    /// The host whose packets alone count.
    pub(super) from: Option<IpAddr>,
    /// The key of a sender whose packets are sealed.
    pub(super) key: Option<SrtpKey>,
}

/// The sender that a source keeps to: its synchronization source, and when it was heard last.
#[derive(Debug, Default)]
struct KeptSender(Option<(u32, Duration)>);

impl KeptSender {
    /// Whether another sender than this one is kept to, now.
    fn is_taken(&self, ssrc: u32, now: Duration) -> bool {
        self.0.is_some_and(|(kept, heard)| kept != ssrc && now - heard < SILENT)
    }

    /// Whether a packet of this sender counts, now.
    fn admits(&mut self, ssrc: u32, now: Duration) -> bool {
        if self.is_taken(ssrc, now) {
            return false;
        }
        self.0 = Some((ssrc, now));
        true
    }
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
        // Debian has nothing that takes AV1 out of packets.
        let codec = parts.next().and_then(Codec::from_encoding).filter(|&c| c != Codec::Av1);
        let codec =
            codec.ok_or_else(|| refuse(encoding, "give H264, H265, VP8, VP9, MPV, JPEG or L16"))?;
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
            (Codec::L16 | Codec::Aac, _) => (48_000, 1),
            (Codec::Opus, _) => (48_000, 2),
            _ => (90_000, 1),
        };
        let (clock_rate, channels) = (number(rate)?, number(channels)?);
        let wrong = !codec.is_audio() && clock_rate != 90_000 || !(1..=2).contains(&channels);
        if wrong || parts.next().is_some() {
            return Err(refuse(encoding, remedy));
        }
        let channels = channels as u8;
        let (fmtp, dependency, from, key) = (None, None, None, None);
        Ok(Self { listen, codec, clock_rate, channels, payload_type, fmtp, dependency, from, key })
    }

    /// What is known before the first packet.
    pub(super) fn format(&self) -> Format {
        let sound = self.codec.is_audio().then_some((self.clock_rate, self.channels));
        let caps = gst::Caps::new_empty();
        Format { codec: self.codec, caps, period: None, width: None, height: None, audio: sound }
    }

    /// Parameters of the format that no packet shows: those of AAC, for packets as they are made here (RFC 3640,
    /// section 3.3.6).
    pub(super) fn fmtp(&self) -> Option<String> {
        let announced = self.fmtp.as_deref().filter(|_| self.codec == Codec::Aac)?;
        let find = |wanted: &str| {
            parameters(announced).find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|of| of.1)
        };
        let (level, config) = (find("profile-level-id").unwrap_or("1"), find("config")?);
        Some(format!(
            "streamtype=5;profile-level-id={level};mode=AAC-hbr;config={config};sizelength=13;\
             indexlength=3;indexdeltalength=3"
        ))
    }

    /// What GStreamer has to know of the packets: all that an SDP file says.
    fn caps(&self) -> gst::Caps {
        let channels = self.codec.is_audio().then_some(self.channels);
        let name = self.codec.encoding();
        let mut caps = structure((name, self.clock_rate, channels), self.fmtp.as_deref());
        if self.key.is_some() {
            caps.set_name("application/x-srtp");
        }
        if let Some(id) = self.dependency {
            caps.set(format!("extmap-{id}"), DEPENDENCY_URI);
        }
        gst::Caps::builder_full().structure(caps).build()
    }

    /// The synchronization source of a packet that is expected.
    fn ssrc(&self, datagram: &[u8]) -> Option<u32> {
        let header = Packet::parse(datagram).ok()?.header;
        self.payload_type.is_none_or(|pt| pt == header.payload_type).then_some(header.ssrc)
    }

    /// Whether a packet comes from where it should, as far as that is known.
    fn is_from(&self, packet: &gst::BufferRef) -> bool {
        let Some(from) = self.from else { return true };
        let address = packet.meta::<gst_net::NetAddressMeta>().map(|meta| meta.addr());
        let host =
            address.and_then(|address| address.downcast::<gst_net::gio::InetSocketAddress>().ok());
        host.is_some_and(|host| IpAddr::from(host.address()).to_canonical() == from.to_canonical())
    }
}

/// What GStreamer has to know of a stream's packets: all that a description says.
#[must_use]
pub fn packet_caps(stream: &Described) -> gst::Caps {
    let channels = stream.channels.filter(|_| stream.audio);
    let of = (&*stream.encoding, stream.clock_rate, channels);
    let mut caps = structure(of, stream.fmtp.as_deref());
    caps.set("payload", i32::from(stream.payload_type));
    gst::Caps::builder_full().structure(caps).build()
}

/// The caps of packets of this encoding, clock rate and, for sound, number of channels.
fn structure(
    (encoding, clock_rate, channels): (&str, u32, Option<u8>),
    fmtp: Option<&str>,
) -> gst::Structure {
    let media = if channels.is_some() { "audio" } else { "video" };
    let mut caps = gst::Structure::builder("application/x-rtp")
        .field("media", media)
        .field("clock-rate", clock_rate as i32)
        .field("encoding-name", encoding.to_ascii_uppercase());
    if let Some(channels) = channels {
        let channels = i32::from(channels);
        caps = caps.field("channels", channels).field("encoding-params", channels.to_string());
    }
    for (name, value) in parameters(fmtp.unwrap_or_default()) {
        caps = caps.field(name.to_ascii_lowercase(), value);
    }
    caps.build()
}

/// The parameters of an `a=fmtp` that may be fields of caps.
fn parameters(fmtp: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_name = |name: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(letters)
    };
    let pairs = fmtp.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(name, _)| is_name(name))
}

/// What a session description says of its first video, else of its first sound.
pub(super) fn described(path: &Path) -> Result<Expected, SourceError> {
    let shown = path.display().to_string();
    let wrong = |message: String| SourceError::Description { path: shown.clone(), message };
    let not_found =
        |e: std::io::Error| SourceError::NotFound { path: shown.clone(), reason: e.to_string() };
    let length = std::fs::metadata(path).map_err(not_found)?.len();
    if length > TEXT_MAX as u64 {
        return Err(wrong(format!("{length} bytes are too long for an SDP file")));
    }
    let text = std::fs::read_to_string(path).map_err(not_found)?;
    let session = Session::parse(&text).map_err(|e| wrong(e.to_string()))?;
    let first = session.streams.iter().min_by_key(|stream| stream.audio);
    let Described {
        to, encoding, clock_rate, channels, payload_type, fmtp, dependency, key, ..
    } = first.ok_or_else(|| wrong("it describes no video and no sound".into()))?;
    let map = match channels {
        Some(channels) => format!("{encoding}/{clock_rate}/{channels}"),
        None => format!("{encoding}/{clock_rate}"),
    };
    let expected = Expected::new(*to, &map, Some(*payload_type))?;
    let (fmtp, key) = (fmtp.clone(), key.clone());
    Ok(Expected { fmtp, dependency: *dependency, key, ..expected })
}

/// Which packets a source takes, of all that arrive at its port.
#[derive(Debug)]
struct PacketFilter {
    expected: Expected,
    began: std::time::Instant,
    kept: Mutex<KeptSender>,
    /// Senders that nobody has vouched for, the latest of them last.
    strangers: Mutex<VecDeque<u32>>,
}

impl PacketFilter {
    fn new(expected: &Expected) -> Self {
        let (kept, strangers) = (Mutex::default(), Mutex::default());
        Self { expected: expected.clone(), began: std::time::Instant::now(), kept, strangers }
    }

    fn now(&self) -> Duration {
        self.began.elapsed().into()
    }

    /// The synchronization source of a packet of the right kind from the right host.
    fn knocks(&self, packet: &gst::Buffer) -> Option<u32> {
        let ssrc = self.expected.ssrc(&packet.map_readable().ok()?)?;
        self.expected.is_from(packet).then_some(ssrc)
    }

    /// Takes this sender for the one that is kept to, unless another one is.
    fn admits(&self, ssrc: u32) -> Option<()> {
        self.strangers.lock().retain(|stranger| *stranger != ssrc);
        self.kept.lock().admits(ssrc, self.now()).then_some(())
    }

    /// Lets in a sealed packet of which it is still to be seen whether it is authentic. What is remembered of
    /// senders that were not is bounded: the oldest is forgotten.
    fn lets_in(&self, packet: &gst::Buffer, unsealer: &gst::Element) -> Option<()> {
        let ssrc = self.knocks(packet)?;
        if self.kept.lock().0.is_some_and(|(kept, _)| kept == ssrc) {
            return Some(());
        }
        if self.kept.lock().is_taken(ssrc, self.now()) {
            return None;
        }
        let mut strangers = self.strangers.lock();
        if !strangers.contains(&ssrc) {
            strangers.push_back(ssrc);
            if strangers.len() > STRANGERS_MAX
                && let Some(oldest) = strangers.pop_front()
            {
                unsealer.emit_by_name::<()>("remove-key", &[&oldest]);
            }
        }
        Some(())
    }
}

/// Drops what comes out of an element and is not let through.
fn guard(
    element: &gst::Element,
    pad: &str,
    lets_through: impl Fn(&gst::Buffer) -> Option<()> + Send + Sync + 'static,
) -> Result<(), SourceError> {
    let name = element.name();
    let pad = element.static_pad(pad).ok_or_else(|| wiring(&name, "it has no output"))?;
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        match info.buffer().and_then(&lets_through) {
            Some(()) => gst::PadProbeReturn::Ok,
            None => gst::PadProbeReturn::Drop,
        }
    });
    Ok(())
}

/// What opens packets that were sealed with this key, and drops and counts all others.
fn unsealer(key: &SrtpKey) -> Result<gst::Element, SourceError> {
    let unsealer = make("srtpdec")?;
    unsealer.set_property("name", UNSEALER);
    let caps = gst::Caps::builder("application/x-srtp")
        .field("srtp-key", gst::Buffer::from_slice(key.bytes.clone()))
        .field("srtp-cipher", key.cipher)
        .field("srtp-auth", key.auth)
        .field("srtcp-cipher", key.cipher)
        .field("srtcp-auth", key.auth)
        .build();
    unsealer.connect("request-key", false, move |_| Some(caps.to_value()));
    Ok(unsealer)
}

/// Opens a packet for nothing: the library that does so loads its ciphers with the first stream, and unloads them
/// with the last; this one stays.
pub(super) fn load_ciphers(key: &SrtpKey) -> Option<()> {
    let unsealer = unsealer(key).ok()?;
    let entry = unsealer.static_pad("rtp_sink")?;
    unsealer.set_state(gst::State::Playing).ok()?;
    entry.send_event(gst::event::StreamStart::new("nothing"));
    entry.send_event(gst::event::Caps::new(&gst::Caps::new_empty_simple("application/x-srtp")));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    entry.send_event(gst::event::Segment::new(&segment));
    let _ = entry.chain(gst::Buffer::from_slice([0x80; 40]));
    std::mem::forget(unsealer);
    Some(())
}

/// The feed of a port.
pub(super) fn feed(what: &str, expected: &Expected) -> Result<Feed, SourceError> {
    let head = |pipeline: &gst::Pipeline| {
        let (udp, order) = (make("udpsrc")?, make("rtpjitterbuffer")?);
        udp.set_property("address", expected.listen.ip().to_string());
        udp.set_property("port", i32::from(expected.listen.port()));
        udp.set_property("buffer-size", 524_288i32);
        udp.set_property("caps", expected.caps());
        order.set_property("latency", REORDER_MS);
        pipeline.add_many([&udp, &order]).map_err(|e| wiring("udpsrc", e))?;
        let filter = Arc::new(PacketFilter::new(expected));
        match &expected.key {
            None => {
                guard(&udp, "src", move |packet| {
                    filter.knocks(packet).and_then(|it| filter.admits(it))
                })?;
                udp.link(&order).map_err(|e| wiring("udpsrc", e))?;
            }
            Some(key) => {
                let unsealer = unsealer(key)?;
                pipeline.add(&unsealer).map_err(|e| wiring("srtpdec", e))?;
                let (at, weak) = (Arc::clone(&filter), unsealer.downgrade());
                guard(&udp, "src", move |packet| at.lets_in(packet, &weak.upgrade()?))?;
                guard(&unsealer, "rtp_src", move |packet| {
                    filter.admits(filter.expected.ssrc(&packet.map_readable().ok()?)?)
                })?;
                udp.link_pads(Some("src"), &unsealer, Some("rtp_sink"))
                    .and_then(|()| unsealer.link_pads(Some("rtp_src"), &order, Some("sink")))
                    .map_err(|e| wiring("srtpdec", e))?;
            }
        }
        Ok(order)
    };
    Feed::parsed(what, Timing::Live, FilePart::First, head).map_err(|error| match error {
        SourceError::Pipeline { message, .. } | SourceError::Unreachable { message, .. } => {
            SourceError::Device {
                device: expected.listen.to_string(),
                message,
                remedy: "see that the address is one of this machine's and the port is free",
            }
        }
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
        for text in ["", "AV1", "H264/8000", "L16/0", "L16/x", "L16/48000/3", "L16/48000/2/1"] {
            assert!(expected(text, None).unwrap_err().to_string().contains("encoding="), "{text}");
        }
    }

    #[test]
    fn only_packets_of_the_payload_type_pass_the_door() {
        let packet = [0x80, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 9];
        let passes = |pt, bytes: &[u8]| expected("H264", pt).unwrap().ssrc(bytes).is_some();
        assert!(passes(None, &packet));
        assert!(passes(Some(96), &packet));
        assert!(!passes(Some(97), &packet));
        assert!(!passes(None, &packet[..11]));
        assert!(!passes(None, b"GET / HTTP/1.1"));
    }

    #[test]
    fn another_sender_counts_only_once_the_first_is_silent() {
        let mut kept = KeptSender::default();
        let at = |tenths: u64| Duration::from_millis(100 * tenths);
        assert!(kept.admits(7, at(0)) && !kept.admits(8, at(1)));
        assert!(
            kept.admits(7, at(10)) && !kept.admits(8, at(16)),
            "silence counts from the last packet"
        );
        assert!(
            kept.admits(8, at(25)) && !kept.admits(7, at(26)),
            "it has gone, and came back too late"
        );
    }
}

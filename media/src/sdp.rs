//! SDP (RFC 8866): the description of streams that a player needs. It is written, and read back as far
//! as this system's own receiver needs it.
//!
//! Texts come from files of users: reading is bounded, and an error names its line.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use selvedge_data_net_rtcp::{TRANSPORT_ID, TRANSPORT_URI, retransmission_type};
use selvedge_data_stream::rtp::{DEADLINE_ID, DEADLINE_URI, EXTENSION_ID, EXTENSION_URI};

use crate::dependency::DEPENDENCY_URI;
use crate::frame::StreamInfo;
use crate::srtp::SrtpKey;

/// The longest text that is read, in bytes.
pub const TEXT_MAX: usize = 64 * 1024;
/// The most streams in a text.
pub const STREAMS_MAX: usize = 64;
const NO_KEY: &str = "no key that is understood; add a line such as a=crypto:1 AES_CM_128_HMAC_SHA1_80 \
    inline:KEY, with 30 bytes of key and salt in base64 (46 for AES_256_CM_HMAC_SHA1_80), and no MKI";

/// A session: a name, and streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// `s=`.
    pub name: String,
    /// One for each `m=`.
    pub streams: Vec<Described>,
}

/// One stream of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Whether it is sound.
    pub audio: bool,
    /// The destination of its packets.
    pub to: SocketAddr,
    /// RTP payload type, 0 ..= 127.
    pub payload_type: u8,
    /// The encoding name, such as `H264`.
    pub encoding: String,
    /// Ticks of timestamps in a second, more than zero.
    pub clock_rate: u32,
    /// Channels of sound.
    pub channels: Option<u8>,
    /// Parameters of the format.
    pub fmtp: Option<String>,
    /// The identifier of the header extension that tags packets with their frames, if there is one.
    pub extension: Option<u8>,
    /// How long packets are kept for retransmission, in ms, if the receiver may report and request (RFC 4585). It is
    /// written, and not read.
    pub feedback_ms: Option<u64>,
    /// The identifier of the dependency descriptor, if packets carry it.
    pub dependency: Option<u8>,
    /// The key of a sender whose packets are sealed (SRTP). It is read, and never written.
    pub key: Option<SrtpKey>,
}

impl Described {
    /// A stream that this system sends: its packets are tagged.
    #[must_use]
    pub fn new(info: &StreamInfo, to: SocketAddr) -> Self {
        Self {
            audio: info.codec.is_audio(),
            to,
            payload_type: info.payload_type,
            encoding: info.encoding().into(),
            clock_rate: info.clock_rate,
            channels: info.channels,
            fmtp: info.fmtp.clone(),
            extension: Some(EXTENSION_ID),
            feedback_ms: None,
            dependency: None,
            key: None,
        }
    }
}

/// Why a text is not a session that can be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// An invalid line.
    #[error("line {line}, \"{text}\": {problem}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Its beginning.
        text: String,
        /// What is wrong, and what would be valid.
        problem: &'static str,
    },
    /// Not SDP at all.
    #[error("not an SDP file: it begins with something other than \"v=0\"")]
    NotSdp,
    /// More text than any session needs.
    #[error("{0} bytes are too long for an SDP file; 65536 are read at most")]
    TooLong(usize),
    /// Nothing to play.
    #[error("no stream in it; an SDP file has a line such as \"m=video 5004 RTP/AVP 96\"")]
    Empty,
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = self.streams.first().map_or_else(|| Ipv4Addr::LOCALHOST.into(), |s| s.to.ip());
        let name = one_line(&self.name);
        let name = if name.is_empty() { "-" } else { &name };
        write!(f, "v=0\r\no=- 0 0 IN {}\r\n", Address(origin, false))?;
        write!(f, "s={name}\r\nt=0 0\r\n")?;
        self.streams.iter().try_for_each(|stream| stream.fmt(f))
    }
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let media = if self.audio { "audio" } else { "video" };
        let (port, pt, rate) = (self.to.port(), self.payload_type, self.clock_rate);
        write!(f, "m={media} {port} RTP/AVP")?;
        match self.feedback_ms {
            Some(_) => write!(f, "F {pt} {}", retransmission_type(pt))?,
            None => write!(f, " {pt}")?,
        }
        write!(f, "\r\nc=IN {}\r\n", Address(self.to.ip(), true))?;
        write!(f, "a=rtpmap:{pt} {}/{rate}", one_line(&self.encoding))?;
        if let Some(channels) = self.channels {
            write!(f, "/{channels}")?;
        }
        f.write_str("\r\n")?;
        if let Some(fmtp) = &self.fmtp {
            write!(f, "a=fmtp:{pt} {}\r\n", one_line(fmtp))?;
        }
        if let Some(id) = self.extension {
            write!(f, "a=extmap:{id} {EXTENSION_URI}\r\n")?;
            // Our own texts have both; only foreign files number them otherwise.
            if id == EXTENSION_ID {
                write!(f, "a=extmap:{DEADLINE_ID} {DEADLINE_URI}\r\n")?;
            }
        }
        if let Some(kept) = self.feedback_ms {
            for kind in ["nack", "nack pli", "ccm fir", "transport-cc", "ack ccfb"] {
                write!(f, "a=rtcp-fb:{pt} {kind}\r\n")?;
            }
            write!(f, "a=extmap:{TRANSPORT_ID} {TRANSPORT_URI}\r\n")?;
            let again = retransmission_type(pt);
            write!(
                f,
                "a=rtpmap:{again} rtx/{rate}\r\na=fmtp:{again} apt={pt};rtx-time={kept}\r\n"
            )?;
        }
        if let Some(id) = self.dependency {
            write!(f, "a=extmap:{id} {DEPENDENCY_URI}\r\n")?;
        }
        write!(f, "a=recvonly\r\n")
    }
}

/// An address as `c=` and `o=` write it; `c=` states the multicast scope.
struct Address(IpAddr, bool);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(ip) if self.1 && ip.is_multicast() => write!(f, "IP4 {ip}/16"),
            IpAddr::V4(ip) => write!(f, "IP4 {ip}"),
            IpAddr::V6(ip) => write!(f, "IP6 {ip}"),
        }
    }
}

/// No text in a line may end it.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ").trim().to_owned()
}

impl Session {
    /// Reads a session. Skips lines that do not describe where and what the streams are, streams other
    /// than sound and video, and streams whose port is 0.
    ///
    /// # Errors
    /// [`SdpError`].
    pub fn parse(text: &str) -> Result<Self, SdpError> {
        if text.len() > TEXT_MAX {
            return Err(SdpError::TooLong(text.len()));
        }
        let mut reader = Reader::default();
        let mut lines = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
        if lines.next().is_none_or(|(_, line)| line != "v=0") {
            return Err(SdpError::NotSdp);
        }
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            reader.line(number, line).map_err(|problem| SdpError::Line {
                line: number,
                text: beginning(line),
                problem,
            })?;
        }
        reader.finish()
    }
}

/// The beginning of a line, without a key that may stand in it.
fn beginning(line: &str) -> String {
    let shown = line.find("inline:").map_or(line, |at| &line[..at]);
    shown.chars().take(60).collect()
}

/// The state of reading.
#[derive(Default)]
struct Reader {
    name: String,
    /// `c=` in front of all streams.
    address: Option<IpAddr>,
    sections: Vec<Section>,
    /// Whether lines belong to a stream that is skipped.
    skipping: bool,
}

/// One `m=` with what follows it.
struct Section {
    /// The number of the line, and the line, for errors that are found at the end.
    at: (usize, String),
    /// Its encoding is empty until it is stated, and its key the first that is supported.
    stream: Described,
    address: Option<IpAddr>,
    /// Whether packets are sealed.
    is_sealed: bool,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), &'static str> {
        let (key, value) = line.split_once('=').ok_or("not of the form x=value")?;
        match (key, self.sections.last_mut()) {
            ("m", _) => return self.media(number, line, value),
            _ if self.skipping => {}
            ("s", None) => self.name = value.into(),
            ("c", None) => self.address = Some(connection(value)?),
            ("c", Some(section)) => section.address = Some(connection(value)?),
            ("a", Some(section)) => section.attribute(value)?,
            _ => {}
        }
        Ok(())
    }

    fn media(&mut self, number: usize, line: &str, value: &str) -> Result<(), &'static str> {
        const FORM: &str = "write m=video PORT RTP/AVP TYPE";
        let mut words = value.split_ascii_whitespace();
        let mut word = || words.next().ok_or(FORM);
        let (media, port, profile, payload_type) = (word()?, word()?, word()?, word()?);
        let audio = media == "audio";
        let port = port.parse::<u16>().map_err(|_| "the port is not a number up to 65535")?;
        self.skipping = !audio && media != "video" || port == 0;
        if self.skipping {
            return Ok(());
        }
        let is_sealed = matches!(profile, "RTP/SAVP" | "RTP/SAVPF");
        if !is_sealed && !matches!(profile, "RTP/AVP" | "RTP/AVPF") {
            return Err("only RTP/AVP, RTP/AVPF, RTP/SAVP and RTP/SAVPF can be received");
        }
        let payload_type = payload_type.parse::<u8>().ok().filter(|&pt| pt < 128);
        let payload_type = payload_type.ok_or("the payload type is not a number up to 127")?;
        if self.sections.len() == STREAMS_MAX {
            return Err("more than 64 streams");
        }
        let (encoding, clock_rate, channels) = assigned(payload_type).unwrap_or_default();
        let stream = Described {
            audio,
            to: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
            payload_type,
            encoding,
            clock_rate,
            channels,
            fmtp: None,
            extension: None,
            feedback_ms: None,
            dependency: None,
            key: None,
        };
        let at = (number, beginning(line));
        self.sections.push(Section { at, stream, address: None, is_sealed });
        Ok(())
    }

    fn finish(self) -> Result<Session, SdpError> {
        let mut session = Session { name: self.name, streams: Vec::new() };
        for Section { at: (line, text), mut stream, address, is_sealed } in self.sections {
            let fail = |problem| SdpError::Line { line, text: text.clone(), problem };
            let ip = address.or(self.address);
            let ip = ip.ok_or_else(|| fail("no address; add a line such as c=IN IP4 127.0.0.1"))?;
            stream.to.set_ip(ip);
            if is_sealed && stream.key.is_none() {
                return Err(fail(NO_KEY));
            }
            if stream.encoding.is_empty() {
                return Err(fail("no encoding; add a line such as a=rtpmap:96 H264/90000"));
            }
            stream.channels = if stream.audio { stream.channels.or(Some(1)) } else { None };
            session.streams.push(stream);
        }
        if session.streams.is_empty() { Err(SdpError::Empty) } else { Ok(session) }
    }
}

impl Section {
    fn attribute(&mut self, value: &str) -> Result<(), &'static str> {
        let Some((name, value)) = value.split_once(':') else { return Ok(()) };
        let stream = &mut self.stream;
        match name {
            "rtpmap" => {
                if let Some(map) = own(value, stream.payload_type)? {
                    (stream.encoding, stream.clock_rate, stream.channels) = encoding(map)?;
                }
            }
            "fmtp" => {
                if let Some(parameters) = own(value, stream.payload_type)? {
                    stream.fmtp = Some(parameters.into());
                }
            }
            // Some senders write keys and leave the profile at RTP/AVP.
            "crypto" => {
                self.is_sealed = true;
                stream.key = stream.key.take().or_else(|| SrtpKey::parse(value));
            }
            "extmap" => {
                let (id, uri) = value.split_once(' ').unwrap_or((value, ""));
                // The direction after a slash does not matter.
                let id = id.split('/').next().and_then(|id| id.parse::<u8>().ok());
                match uri.split_ascii_whitespace().next() {
                    Some(EXTENSION_URI) => {
                        let id = id.filter(|id| (1..=14).contains(id));
                        stream.extension = Some(id.ok_or("the extension's number is not 1 to 14")?);
                    }
                    Some(DEPENDENCY_URI) => {
                        let id = id.filter(|id| *id > 0);
                        stream.dependency =
                            Some(id.ok_or("the extension's number is not 1 to 255")?);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The text after this payload type; `None` if it is about another.
fn own(value: &str, payload_type: u8) -> Result<Option<&str>, &'static str> {
    let (pt, rest) = value.trim().split_once(' ').ok_or("nothing behind the payload type")?;
    let pt = pt.parse::<u8>().map_err(|_| "the payload type is not a number up to 127")?;
    Ok((pt == payload_type).then_some(rest.trim()))
}

/// `IN IP4 127.0.0.1`, with or without the multicast scope.
fn connection(value: &str) -> Result<IpAddr, &'static str> {
    const FORM: &str = "write c=IN IP4 ADDRESS or c=IN IP6 ADDRESS, in numbers";
    let mut words = value.split_ascii_whitespace();
    let (Some("IN"), Some(family), Some(address)) = (words.next(), words.next(), words.next())
    else {
        return Err(FORM);
    };
    let ip = address.split('/').next().and_then(|ip| ip.parse::<IpAddr>().ok()).ok_or(FORM)?;
    if (family == "IP4") == ip.is_ipv4() { Ok(ip) } else { Err(FORM) }
}

/// `H264/90000`, `L16/48000/2`.
fn encoding(map: &str) -> Result<(String, u32, Option<u8>), &'static str> {
    const FORM: &str = "write ENCODING/RATE or ENCODING/RATE/CHANNELS";
    let mut parts = map.split('/');
    let name = parts.next().filter(|name| !name.is_empty()).ok_or(FORM)?;
    let rate = parts.next().and_then(|rate| rate.parse().ok()).filter(|&rate| rate > 0);
    let channels = match parts.next().map(str::parse::<u8>) {
        None => None,
        Some(Ok(n)) if n > 0 => Some(n),
        Some(_) => return Err(FORM),
    };
    Ok((name.into(), rate.ok_or(FORM)?, channels))
}

/// Payload types that need no `a=rtpmap` (RFC 3551 section 6), as far as they are carried here.
fn assigned(payload_type: u8) -> Option<(String, u32, Option<u8>)> {
    let (name, rate, channels) = match payload_type {
        10 => ("L16", 44_100, Some(2)),
        11 => ("L16", 44_100, Some(1)),
        26 => ("JPEG", 90_000, None),
        32 => ("MPV", 90_000, None),
        _ => return None,
    };
    Some((name.into(), rate, channels))
}

#[cfg(test)]
mod tests;

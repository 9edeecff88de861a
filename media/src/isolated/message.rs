//! The messages between a node and the process of a source: from one end of their socket to the other.
//!
//! The process receives lines of JSON: a [`Request`], then an [`Order`] each time the source is to be
//! opened. It sends messages: two lengths of 32 bits, a [`Report`] in JSON, and the bytes that belong
//! to it. Those of a frame are its packets, each after its length in 16 bits, followed by its access
//! unit. No message is trusted.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use selvedge_control_config::{EncoderKnob, redacted};
use selvedge_data_stream::{Kind, References};
use selvedge_units::{Bitrate, Duration};
use serde::{Deserialize, Serialize};

use crate::error::{SourceError, Trouble};
use crate::frame::{MediaFrame, StreamInfo};
use crate::onlookers::Watched;
use crate::picture::{Codec, Picture};

/// The longest report, and the most bytes after it.
const REPORT_MAX: usize = 64 << 10;
const BYTES_MAX: usize = 16 << 20;
/// The shortest packet: a fixed header.
const PACKET_MIN: usize = 12;
/// The number of bytes that are read at once.
const PIECE: usize = 64 << 10;
/// The longest text that is shown.
const TEXT_MAX: usize = 1000;
/// No media is longer: half of the largest time, so that times may be added.
const TIME_MAX: Duration = Duration(1 << 62);

/// A source that a process is requested to open.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// With its login.
    pub(super) uri: String,
    /// The only sender whose packets count.
    pub(super) from: Option<std::net::IpAddr>,
    /// The property that sets its encoder's rate.
    pub(super) bitrate: Option<Knob>,
    pub(super) base: PathBuf,
    pub(super) payload_max: usize,
    /// Whether small pictures are wanted.
    pub(super) thumbnails: bool,
    /// Whether access units are wanted beside packets.
    pub(super) units: bool,
    /// The period that the node file states, in ns; 0 if it states none.
    pub(super) expected_ns: u64,
}

/// [`EncoderKnob`] in a message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Knob {
    element: String,
    property: String,
    unit: Option<u64>,
    least_bps: Option<u64>,
    most_bps: Option<u64>,
}

impl From<&EncoderKnob> for Knob {
    fn from(knob: &EncoderKnob) -> Self {
        let EncoderKnob { element, property, unit, least, most } = knob.clone();
        let [unit, least_bps, most_bps] = [unit, least, most].map(|rate| Some(rate?.0));
        Self { element, property, unit, least_bps, most_bps }
    }
}

impl From<Knob> for EncoderKnob {
    fn from(knob: Knob) -> Self {
        let Knob { element, property, unit, least_bps, most_bps } = knob;
        let [unit, least, most] = [unit, least_bps, most_bps].map(|rate| rate.map(Bitrate));
        Self { element, property, unit, least, most }
    }
}

/// An order to a process, once it has its source.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// The source must be opened now.
    Open { limit_ns: u64 },
    /// Pages watch these from now on.
    Watch(Watched),
    /// The source's encoder must encode at this rate from now on.
    Rate { bps: u64 },
    /// Its next picture must be an intra picture.
    Intra,
}

/// A report of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The source is open; `encoder` is the least and the most that its encoder may encode at, in bit/s.
    Open {
        info: Info,
        encoder: Option<(u64, u64)>,
    },
    Frame(FrameHead),
    /// A small picture, as JPEG.
    Thumbnail,
    /// This number of further packets were not authentic.
    Refused {
        packets: u64,
    },
    /// The image of a frame, as JPEG.
    Image {
        media_ns: u64,
    },
    /// The media came to their end.
    Ended {
        note: Option<String>,
    },
    /// The source can't be opened, or broke off.
    Failed {
        trouble: Trouble,
        text: String,
    },
}

/// [`StreamInfo`] in a message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Info {
    encoding: String,
    payload_type: u8,
    clock_rate: u32,
    fmtp: Option<String>,
    channels: Option<u8>,
    period_ns: u64,
    width: Option<u32>,
    height: Option<u32>,
}

/// A frame without its bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FrameHead {
    kind: u8,
    referenced: bool,
    closes: bool,
    refs: Option<u64>,
    media_ns: u64,
    decode_ns: u64,
    timestamp: u32,
    packets: usize,
}

impl From<&StreamInfo> for Info {
    fn from(info: &StreamInfo) -> Self {
        Self {
            encoding: info.encoding().to_owned(),
            payload_type: info.payload_type,
            clock_rate: info.clock_rate,
            fmtp: info.fmtp.clone(),
            channels: info.channels,
            period_ns: info.period.0,
            width: info.width,
            height: info.height,
        }
    }
}

impl Info {
    /// `None` if no stream can have these values.
    pub(super) fn checked(self) -> Option<StreamInfo> {
        let codec = Codec::from_encoding(&self.encoding)?;
        let line = |text: &String| text.len() <= REPORT_MAX && !text.contains(char::is_control);
        let possible = self.payload_type < 128
            && (1_000..=1_000_000).contains(&self.clock_rate)
            && (1..=TIME_MAX.0 >> 16).contains(&self.period_ns)
            && self.channels.is_none_or(|channels| (1..=2).contains(&channels))
            && self.fmtp.as_ref().is_none_or(line);
        possible.then_some(StreamInfo {
            codec,
            payload_type: self.payload_type,
            clock_rate: self.clock_rate,
            fmtp: self.fmtp,
            channels: self.channels,
            period: Duration(self.period_ns),
            width: self.width,
            height: self.height,
        })
    }
}

impl FrameHead {
    /// The head of a frame; the bytes that follow it go into `bytes`.
    pub(super) fn new(frame: &MediaFrame<'_>, units: bool, bytes: &mut Vec<u8>) -> Self {
        bytes.clear();
        for packet in frame.packets {
            // Packets are made for datagrams, which are shorter.
            bytes.extend(u16::try_from(packet.len()).unwrap_or(u16::MAX).to_le_bytes());
            bytes.extend(&packet[..packet.len().min(u16::MAX.into())]);
        }
        bytes.extend(if units { frame.unit } else { &[] });
        Self {
            kind: frame.picture.kind as u8,
            referenced: frame.picture.referenced,
            closes: frame.picture.closes,
            refs: frame.picture.refs.map(References::bits),
            media_ns: frame.media_time.0,
            decode_ns: frame.decode_time.0,
            timestamp: frame.rtp_timestamp,
            packets: frame.packets.len(),
        }
    }

    /// Passes `take` the frame that these bytes hold, decoded no earlier than the one before; returns
    /// its decoding time. `None` if they hold no frame.
    pub(super) fn take(
        &self,
        mut bytes: &[u8],
        before: Duration,
        mut take: impl FnMut(MediaFrame<'_>),
    ) -> Option<Duration> {
        if self.packets == 0 || self.packets > bytes.len() {
            return None;
        }
        let mut packets = Vec::with_capacity(self.packets);
        for _ in 0..self.packets {
            let (length, rest) = bytes.split_first_chunk()?;
            let (packet, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
            packets.push(Some(packet).filter(|packet| packet.len() >= PACKET_MIN)?);
            bytes = rest;
        }
        let picture = Picture {
            kind: Kind::from_number(self.kind)?,
            referenced: self.referenced,
            closes: self.closes,
            refs: self.refs.map(References::from_bits),
        };
        let time = |ns| Some(Duration(ns)).filter(|time| *time < TIME_MAX);
        let (media_time, decode_time) = (time(self.media_ns)?, time(self.decode_ns)?.max(before));
        let (rtp_timestamp, unit, packets) = (self.timestamp, bytes, &packets);
        take(MediaFrame { picture, media_time, decode_time, rtp_timestamp, unit, packets });
        Some(decode_time)
    }
}

/// A text of a process, in a form that may be shown: one line, and no login.
pub(super) fn shown(text: &str) -> String {
    let line = text.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect::<String>();
    redacted(&line)
}

/// An error as it occurred in the process.
pub(super) fn failed(trouble: Trouble, text: &str) -> SourceError {
    SourceError::Isolated { trouble, message: shown(text) }
}

/// Sends a message.
pub(super) fn send(mut socket: &UnixStream, report: &Report, bytes: &[u8]) -> io::Result<()> {
    let text = serde_json::to_vec(report)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
    let mut head = [length(&text)?.to_le_bytes(), length(bytes)?.to_le_bytes()].concat();
    head.extend(text);
    socket.write_all(&head)?;
    socket.write_all(bytes)
}

/// Why no more messages come from a process.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiveError {
    #[error("it has ended")]
    Closed(#[source] Option<io::Error>),
    #[error("it sent what is no message")]
    Malformed,
}

/// A node's end of the socket, with the partly received messages. Never holds more than the longest and
/// a piece.
#[derive(Debug)]
pub(super) struct Inbox {
    socket: UnixStream,
    bytes: Vec<u8>,
    /// The bytes of the message that was returned last.
    taken: usize,
}

impl Inbox {
    /// Reads wait for this socket's timeout.
    pub(super) const fn new(socket: UnixStream) -> Self {
        Self { socket, bytes: Vec::new(), taken: 0 }
    }

    pub(super) const fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The next message; `None` if there is none by the socket's timeout.
    pub(super) fn receive(&mut self) -> Result<Option<(Report, &[u8])>, ReceiveError> {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        let Some((text, size)) = self.lengths()? else {
            return self.read().map(|()| None);
        };
        let (head, bytes) = self.bytes[8..size].split_at(text);
        let report = serde_json::from_slice(head).map_err(|_| ReceiveError::Malformed)?;
        self.taken = size;
        Ok(Some((report, bytes)))
    }

    /// The length of the first message's text, and of all of it, once it is there.
    fn lengths(&self) -> Result<Option<(usize, usize)>, ReceiveError> {
        let Some((head, _)) = self.bytes.split_first_chunk::<8>() else { return Ok(None) };
        let length = |at: usize| {
            let part = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(part) as usize
        };
        let (text, bytes) = (length(0), length(4));
        if text > REPORT_MAX || bytes > BYTES_MAX {
            return Err(ReceiveError::Malformed);
        }
        let size = 8 + text + bytes;
        Ok((self.bytes.len() >= size).then_some((text, size)))
    }

    fn read(&mut self) -> Result<(), ReceiveError> {
        let filled = self.bytes.len();
        self.bytes.resize(filled + PIECE, 0);
        let read = self.socket.read(&mut self.bytes[filled..]);
        self.bytes.truncate(filled + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(ReceiveError::Closed(None)),
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
                _ => Err(ReceiveError::Closed(Some(error))),
            },
        }
    }
}

#[cfg(test)]
mod tests;

//! Outputs: what carries a stream's packets where the engine's own sockets don't. One file for each kind,
//! and one line in [`KINDS`].
//!
//! The engine chooses frames and paces packets; each packet that it hands over goes on at once, so the link's
//! rate holds on the wire. What an output sends beyond that it reports, and the link pays for it. Opening may
//! take long and is done in a thread of the stream's own (`node/src/output.rs`), again and again.

mod datagrams;
#[cfg(feature = "gstreamer")]
mod muxed;
#[cfg(feature = "gstreamer")]
mod pipeline;
#[cfg(feature = "gstreamer")]
mod srt;
mod transport_stream;
#[cfg(feature = "gstreamer")]
mod units;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use selvedge_control_config::Destination;
use selvedge_os::socket::SocketError;
use selvedge_units::Bytes;

pub use self::transport_stream::{Program, TransportStream};
use crate::error::SourceError;
use crate::frame::StreamInfo;
use crate::picture::Codec;

/// An output that is open.
pub trait Output: fmt::Debug + Send + Sync {
    /// Takes a packet in the order in which they leave, in RTP with the frame's tag; false if it can't. The
    /// engine's thread calls it: it must not wait.
    fn send(&self, packet: &[u8]) -> bool;

    /// Bytes on the wire since the last call, beyond the packets and the kind's headers on each. Called
    /// some times a second.
    ///
    /// # Errors
    /// [`OutputError`] if it is broken: it is closed then, and opened again.
    fn poll(&self) -> Result<Bytes, OutputError> {
        Ok(Bytes(0))
    }

    /// Why nothing is sent though nothing is broken, such as that nobody has connected yet.
    fn waits(&self) -> Option<&'static str> {
        None
    }
}

/// Why an output can't be opened, or has broken off.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A name that nobody knows, or not now.
    #[error("\"{host}\" does not resolve: {why}")]
    Name {
        /// The name.
        host: String,
        /// What the resolver said.
        why: io::Error,
    },
    /// The kind does not carry this encoding.
    #[error(
        "{scheme}:// does not carry {encoding}, but {takes}; write to = \"rtp://HOST:PORT\", or encode it anew with a launch: line"
    )]
    Codec {
        /// The kind.
        scheme: &'static str,
        /// What the stream is.
        encoding: &'static str,
        /// What would do.
        takes: String,
    },
    /// Two pictures, or two sounds, for one output.
    #[error(
        "stream \"{other}\" goes there, too, and both are {what}; an output takes one picture and one sound: \
         give one of the two another destination"
    )]
    Second {
        /// The other stream.
        other: String,
        /// `pictures` or `sounds`.
        what: &'static str,
    },
    /// No socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Nobody is there, or wants to talk.
    #[error("{0} does not answer, or refuses: see its address, passphrase and streamid")]
    Silent(SocketAddr),
    /// An element of GStreamer's, or who it speaks with.
    #[error(transparent)]
    Element(#[from] SourceError),
    /// The network refuses packets.
    #[error("packets can't be sent: {0}")]
    Send(#[from] io::Error),
    /// Nothing of this name is in this build.
    #[error("this build has no output for {0}://; build with the feature `gstreamer`")]
    Absent(&'static str),
}

/// A kind of output.
#[derive(Debug)]
pub struct OutputKind {
    scheme: &'static str,
    /// The encodings that it carries.
    codecs: &'static [Codec],
    /// Whether it is handed packets of the encoding's own format, and not of a transport stream, of which the
    /// headers of RTP end here.
    is_rtp: bool,
    /// Bytes of headers on each of them, with those of IPv4.
    headers: Bytes,
    open: Open,
}

/// An output that is open, or why there is none.
type Opened = Result<Box<dyn Output>, OutputError>;
/// Opens an output of so many streams at the address that its destination has.
type Open = fn(&Destination, SocketAddr, usize) -> Opened;

/// The kinds, one a line.
const KINDS: &[OutputKind] = &[
    OutputKind { scheme: "rtp", codecs: &Codec::ALL, is_rtp: true, open: datagrams::rtp, ..UDP },
    UDP,
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "srt", headers: Bytes(44), open: srt::open, ..UDP },
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "rtmp", codecs: &FLV, headers: TCP, open: muxed::rtmp, ..UDP },
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "rtmps", codecs: &FLV, headers: TLS, open: muxed::rtmp, ..UDP },
    // Nothing goes on a wire.
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "file", headers: Bytes(0), open: muxed::recording, ..UDP },
];

/// A transport stream over UDP.
const UDP: OutputKind = OutputKind {
    scheme: "udp",
    codecs: &transport_stream::CODECS,
    is_rtp: false,
    headers: Bytes(28),
    open: datagrams::udp,
};

/// How much longer headers of IPv6 are than those of IPv4.
const IPV6_MORE: Bytes = Bytes(20);

/// Those of TCP with its time stamps, and of a record of TLS 1.3 besides, on each segment.
#[cfg(feature = "gstreamer")]
const TCP: Bytes = Bytes(52);
#[cfg(feature = "gstreamer")]
const TLS: Bytes = Bytes(TCP.0 + 22);
/// What servers of RTMP take.
#[cfg(feature = "gstreamer")]
const FLV: [Codec; 2] = [Codec::H264, Codec::Aac];

/// The kind of a destination.
///
/// # Errors
/// [`OutputError::Absent`] for what this build lacks.
pub fn kind(to: &Destination) -> Result<&'static OutputKind, OutputError> {
    let known = KINDS.iter().find(|kind| kind.scheme == to.scheme());
    known.ok_or_else(|| OutputError::Absent(to.scheme()))
}

impl OutputKind {
    /// Whether it carries this encoding.
    ///
    /// # Errors
    /// [`OutputError::Codec`] if not.
    pub fn check(&self, codec: Codec) -> Result<(), OutputError> {
        if self.codecs.contains(&codec) {
            return Ok(());
        }
        let takes: Vec<&str> = self.codecs.iter().map(|codec| codec.encoding()).collect();
        let (scheme, encoding) = (self.scheme, codec.encoding());
        Err(OutputError::Codec { scheme, encoding, takes: takes.join(", ") })
    }

    /// Whether one output carries a stream of this encoding together with another.
    ///
    /// # Errors
    /// [`OutputError::Second`] if not.
    pub fn join(codec: Codec, (other, others): (&str, Codec)) -> Result<(), OutputError> {
        if codec.is_audio() != others.is_audio() {
            return Ok(());
        }
        let what = if codec.is_audio() { "sounds" } else { "pictures" };
        Err(OutputError::Second { other: other.to_owned(), what })
    }

    /// What each of the engine's packets takes on the wire beside its own bytes; and the largest that may be
    /// handed over where IP packets may have `mtu` bytes. A name may turn out to be an IPv6 host's.
    #[must_use]
    pub fn fit(&self, to: &Destination, mtu: Bytes) -> (Bytes, Bytes) {
        let headers = match to.host().parse() {
            Ok(IpAddr::V4(_)) => self.headers,
            _ if to.path().is_some() => self.headers,
            _ => self.headers + IPV6_MORE,
        };
        let room = Bytes(mtu.0.saturating_sub(headers.0));
        if self.is_rtp {
            return (headers, room);
        }
        let inner = Bytes(transport_stream::RTP_LEN as u64);
        let most = room.min(Bytes(transport_stream::DATAGRAM_LEN as u64));
        (Bytes(headers.0.saturating_sub(inner.0)), most + inner)
    }

    /// What makes packets of its frames, where that are not RTP's own: those of a program, of at most so many
    /// bytes behind the headers of RTP.
    #[must_use]
    pub fn packets(
        &self,
        info: &StreamInfo,
        program: &Arc<Program>,
        payload_max: usize,
    ) -> Option<TransportStream> {
        (!self.is_rtp).then(|| TransportStream::new(info, Arc::clone(program), payload_max))
    }

    /// Opens it for so many streams; may take long.
    ///
    /// # Errors
    /// [`OutputError`]; it may be tried again.
    pub fn open(&self, to: &Destination, streams: usize) -> Result<Box<dyn Output>, OutputError> {
        (self.open)(to, resolve(to)?, streams)
    }
}

/// The address of a destination; that of a name may take long.
///
/// # Errors
/// [`OutputError::Name`].
pub fn resolve(to: &Destination) -> Result<SocketAddr, OutputError> {
    let host = if to.host().is_empty() { "0.0.0.0" } else { to.host() };
    let unknown = || io::Error::other("it has no address");
    let found = (host, to.port()).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    // Of a host that has both, which most receivers listen at.
    let best = |found: Vec<SocketAddr>| found.into_iter().min_by_key(SocketAddr::is_ipv6);
    found
        .and_then(|found| best(found).ok_or_else(unknown))
        .map_err(|why| OutputError::Name { host: host.to_owned(), why })
}

//! Outputs: they carry a stream's packets where the engine's own sockets don't. One file for each kind,
//! and one line in [`KINDS`].
//!
//! The engine chooses frames and paces packets; each packet that it passes on is sent at once, so the
//! link's rate holds on the wire. An output reports the bytes that it sends beyond that, and the link
//! is charged for them. Opening may take long and is done in a thread of the stream's own
//! (`node/src/output.rs`), again and again.

mod datagrams;
#[cfg(feature = "gstreamer")]
mod muxed;
#[cfg(feature = "gstreamer")]
mod pipeline;
#[cfg(feature = "gstreamer")]
mod rtsp;
#[cfg(feature = "gstreamer")]
mod srt;
mod transport_stream;
#[cfg(feature = "gstreamer")]
mod units;
mod whole;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use selvedge_control_config::Destination;
use selvedge_os::socket::SocketError;
use selvedge_units::{Bytes, Duration};

pub use self::transport_stream::{Program, TransportStream};
use self::whole::WholeUnits;
use crate::error::SourceError;
use crate::frame::{MediaFrame, StreamInfo};
use crate::picture::Codec;

/// An output that is open.
pub trait Output: fmt::Debug + Send + Sync {
    /// Takes a packet in sending order, in RTP with the frame's tag; false if it can't. The engine's
    /// thread calls it: it must not wait.
    fn send(&self, packet: &[u8]) -> bool;

    /// Bytes on the wire since the last call, beyond the packets and the kind's headers on each. Called
    /// several times a second.
    ///
    /// # Errors
    /// [`OutputError`] if it is broken: it is then closed, and opened again.
    fn poll(&self) -> Result<Bytes, OutputError>;

    /// Takes the descriptions of its streams, as far as they are known, for kinds that pass them on. May be called
    /// again with the same.
    fn describe(&self, _infos: &[StreamInfo]) {}

    /// Whether somebody joined since the last call, whose play begins with a picture that needs no other.
    fn take_joined(&self) -> bool {
        false
    }

    /// Why nothing is sent though nothing is broken, for example because no peer has connected yet.
    fn waits(&self) -> Option<&'static str> {
        None
    }
}

/// Why an output can't be opened, or has broken off.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A name that can't be resolved, or not now.
    #[error("\"{host}\" does not resolve: {why}")]
    Name {
        /// The name.
        host: String,
        /// The resolver's error.
        why: io::Error,
    },
    /// The kind does not carry this encoding.
    #[error(
        "{scheme}:// does not carry {encoding}, but {takes}; write to = \"rtp://HOST:PORT\", or encode it anew with a launch: line"
    )]
    Codec {
        /// The kind.
        scheme: &'static str,
        /// The stream's encoding.
        encoding: &'static str,
        /// The encodings that it carries.
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
    /// A socket can't be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Nobody can connect here.
    #[error("can't listen at {address}: {why}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        why: io::Error,
    },
    /// Two streams of one name.
    #[error(
        "{0} is served already, with another login or by another node of this process; choose another name"
    )]
    Mount(String),
    /// No peer answers, or it refuses.
    #[error("{0} does not answer, or refuses: see its address, passphrase and streamid")]
    Silent(SocketAddr),
    /// A GStreamer element failed, or its peer did.
    #[error(transparent)]
    Element(#[from] SourceError),
    /// The network refuses packets.
    #[error("packets can't be sent: {0}")]
    Send(#[from] io::Error),
    /// The path for viewers can't be listened at.
    #[error(transparent)]
    Viewers(#[from] selvedge_comm_frames::ListenError),
    /// This build has no output of this name.
    #[error("this build has no output for {0}://; build with the feature `gstreamer`")]
    Absent(&'static str),
}

/// The zero of the times of all sources of this process, so that a picture and a sound of one output have it in common
/// whenever they began. It lies before the first of them.
#[must_use]
pub fn epoch() -> Instant {
    const BEFORE: Duration = Duration::from_secs(60);
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(BEFORE.to_std()).unwrap_or(now)
    })
}

/// A kind of output.
#[derive(Debug)]
pub struct OutputKind {
    scheme: &'static str,
    /// The encodings that it carries.
    codecs: &'static [Codec],
    /// Whether it takes packets in the encoding's own RTP format; else in those of a transport stream,
    /// whose RTP headers are removed here.
    is_rtp: bool,
    /// Whether its packets are pieces of whole units instead, for programs of this host.
    is_whole: bool,
    /// Bytes of headers on each packet, including those of IPv4.
    headers: Bytes,
    open: Open,
}

/// An open output, or the error.
type Opened = Result<Box<dyn Output>, OutputError>;
/// Opens an output of this number of streams at the address of its destination.
type Open = fn(&Destination, SocketAddr, usize) -> Opened;

/// The kinds, one a line.
const KINDS: &[OutputKind] = &[
    OutputKind { scheme: "rtp", codecs: &Codec::ALL, is_rtp: true, ..UDP },
    UDP,
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "srt", headers: Bytes(44), open: srt::open, ..UDP },
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "rtsp", codecs: &Codec::ALL, is_rtp: true, open: rtsp::open, ..UDP },
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "rtmp", codecs: &FLV, headers: TCP, open: muxed::rtmp, ..UDP },
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "rtmps", codecs: &FLV, headers: TLS, open: muxed::rtmp, ..UDP },
    // Nothing of these two is sent on a wire.
    OutputKind {
        scheme: "shm",
        codecs: &Codec::ALL,
        is_whole: true,
        headers: Bytes(0),
        open: whole::open,
        ..UDP
    },
    #[cfg(feature = "gstreamer")]
    OutputKind { scheme: "file", headers: Bytes(0), open: muxed::recording, ..UDP },
];

/// A transport stream over UDP.
const UDP: OutputKind = OutputKind {
    scheme: "udp",
    codecs: &transport_stream::CODECS,
    is_rtp: false,
    is_whole: false,
    headers: Bytes(28),
    open: datagrams::open,
};

/// How much longer headers of IPv6 are than those of IPv4.
const IPV6_MORE: Bytes = Bytes(20);

/// The headers of TCP with its timestamps, and those plus a record of TLS 1.3, on each segment.
#[cfg(feature = "gstreamer")]
const TCP: Bytes = Bytes(52);
#[cfg(feature = "gstreamer")]
const TLS: Bytes = Bytes(TCP.0 + 22);
/// The encodings that RTMP servers accept.
#[cfg(feature = "gstreamer")]
const FLV: [Codec; 2] = [Codec::H264, Codec::Aac];

/// The kind of a destination.
///
/// # Errors
/// [`OutputError::Absent`] for a kind that this build lacks.
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

    /// The bytes that each of the engine's packets takes on the wire beside its own; and the largest
    /// packet that it accepts where IP packets may have `mtu` bytes. A name may turn out to be an IPv6
    /// host's.
    #[must_use]
    pub fn fit(&self, to: &Destination, mtu: Bytes) -> (Bytes, Bytes) {
        let headers = match to.host().parse() {
            Ok(IpAddr::V4(_)) => self.headers,
            _ if to.path().is_some() => self.headers,
            _ => self.headers + IPV6_MORE,
        };
        let room = Bytes(mtu.0.saturating_sub(headers.0));
        if self.is_rtp || self.is_whole {
            return (headers, room);
        }
        let inner = Bytes(transport_stream::RTP_LEN as u64);
        let most = room.min(Bytes(transport_stream::DATAGRAM_LEN as u64));
        (Bytes(headers.0.saturating_sub(inner.0)), most + inner)
    }

    /// Makes the packets of its frames, where they are not RTP's own: those of a program, of at most
    /// `payload_max` bytes after the RTP headers.
    #[must_use]
    pub fn packets(
        &self,
        info: &StreamInfo,
        program: &Arc<Program>,
        payload_max: usize,
    ) -> Option<OtherPackets> {
        if self.is_whole {
            return Some(OtherPackets::Whole(WholeUnits::new(info, payload_max)));
        }
        let stream = || TransportStream::new(info, Arc::clone(program), payload_max);
        (!self.is_rtp).then(|| OtherPackets::TransportStream(stream()))
    }

    /// Opens it for this number of streams; may take long.
    ///
    /// # Errors
    /// [`OutputError`]; it may be tried again.
    pub fn open(&self, to: &Destination, streams: usize) -> Result<Box<dyn Output>, OutputError> {
        (self.open)(to, resolve(to)?, streams)
    }
}

/// Makes the packets of frames that are not RTP's own.
#[derive(Debug)]
pub enum OtherPackets {
    /// Those of a transport stream.
    TransportStream(TransportStream),
    /// Pieces of whole units.
    Whole(WholeUnits),
}

impl OtherPackets {
    /// The packets of a frame, whose times count from `since`.
    pub fn packets(&mut self, frame: &MediaFrame<'_>, since: Duration) -> Vec<&[u8]> {
        match self {
            Self::TransportStream(stream) => stream.packets(frame, since),
            Self::Whole(units) => units.packets(frame),
        }
    }
}

/// The address of a destination; resolving a name may take long.
///
/// # Errors
/// [`OutputError::Name`].
pub fn resolve(to: &Destination) -> Result<SocketAddr, OutputError> {
    let host = if to.host().is_empty() { "0.0.0.0" } else { to.host() };
    let unknown = || io::Error::other("it has no address");
    let found = (host, to.port()).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    // For a host with both families: the one that most receivers listen at.
    let best = |found: Vec<SocketAddr>| found.into_iter().min_by_key(SocketAddr::is_ipv6);
    found
        .and_then(|found| best(found).ok_or_else(unknown))
        .map_err(|why| OutputError::Name { host: host.to_owned(), why })
}

//! The frames that a file would put on the wire, read as fast as possible.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_control_config::{Destination, FilePart, SourceUri};
use selvedge_data_stream::rtp::{EXTENSION_LEN, IPV4_UDP, packet_len};
use selvedge_units::{Bytes, Duration};

use crate::error::SourceError;
use crate::frame::{FrameSink, MediaFrame};
use crate::output::{OtherPackets, Program, kind};
use crate::picture::Picture;
use crate::source::Source;
pub use crate::source::{description, stated_rate as nominal, version};

/// The room for a packet's payload after its fixed RTP header if IPv4 packets of 1500 bytes are the
/// largest, and each carries the frame's tag.
pub const PAYLOAD_MAX: usize = 1500 - IPV4_UDP.0 as usize - 12 - EXTENSION_LEN;

/// A frame as it would be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireFrame {
    /// When it is to be decoded, since the first.
    pub decode_time: Duration,
    /// When it is to be shown, since the first was decoded.
    pub media_time: Duration,
    /// Its relation to other frames.
    pub picture: Picture,
    /// All its packets with the headers of its destination; for RTP that is RTP, tag, UDP and IPv4.
    pub size: Bytes,
    /// The bytes of each.
    pub packets: Vec<u16>,
}

/// All frames of a file, in decoding order, in packets for an MTU of 1500 bytes. Takes memory of
/// 100 bytes a frame, and 2 a packet.
///
/// # Errors
/// [`SourceError`] as for [`Source::open`].
pub fn frames(path: &Path) -> Result<Vec<WireFrame>, SourceError> {
    let name = path.to_str().ok_or_else(|| SourceError::NotFound {
        path: path.display().to_string(),
        reason: "its name is not UTF-8".into(),
    })?;
    let uri = SourceUri::File { path: name.into(), repeat: false, part: FilePart::First };
    frames_to(&uri, Path::new(""), None, usize::MAX)
}

/// The same for any part of a file, at most this number of frames, in the packets of an output with
/// their headers, where IP packets may be this large; `None`: for RTP. A file that loops is read once.
///
/// # Errors
/// [`SourceError`] as for [`Source::open`].
pub fn frames_to(
    uri: &SourceUri,
    base_dir: &Path,
    to: Option<(&Destination, Bytes)>,
    most: usize,
) -> Result<Vec<WireFrame>, SourceError> {
    let mut uri = uri.clone();
    if let SourceUri::File { repeat, .. } = &mut uri {
        *repeat = false;
    }
    let mut source = Source::open(&uri, base_dir, PAYLOAD_MAX)?;
    let enough = AtomicBool::new(false);
    let (mut packets, mut headers) = (None, IPV4_UDP);
    if let Some((to, mtu)) = to
        && let Ok(kind) = kind(to)
    {
        let (overhead, most) = kind.fit(to, mtu);
        let payload_max = (most.0 as usize).saturating_sub(packet_len(0));
        headers = overhead;
        let program = Arc::new(Program::new(Duration::ZERO));
        packets = kind.packets(source.info(), &program, payload_max);
    }
    let mut list = List { frames: Vec::new(), most, enough: &enough, packets, headers };
    source.run_unpaced(&mut list, &enough)?;
    Ok(list.frames)
}

struct List<'a> {
    frames: Vec<WireFrame>,
    most: usize,
    /// Set once there are this many.
    enough: &'a AtomicBool,
    /// Makes the packets where they are not RTP's; and the headers on each.
    packets: Option<OtherPackets>,
    headers: Bytes,
}

impl FrameSink for List<'_> {
    fn enqueue(&mut self, frame: MediaFrame<'_>) {
        if self.frames.len() >= self.most {
            self.enough.store(true, Ordering::Relaxed);
            return;
        }
        let packets = self.packets.as_mut().map(|packets| packets.packets(&frame, Duration::ZERO));
        let packets = packets.as_deref().unwrap_or(frame.packets);
        let bytes =
            packets.iter().map(|packet| packet.len() + EXTENSION_LEN + self.headers.0 as usize);
        let packets: Vec<_> = bytes.map(|len| u16::try_from(len).unwrap_or(u16::MAX)).collect();
        self.frames.push(WireFrame {
            decode_time: frame.decode_time,
            media_time: frame.media_time,
            picture: frame.picture,
            size: Bytes(packets.iter().copied().map(u64::from).sum()),
            packets,
        });
    }
}

//! The frames of a clip, as simulations play them: kinds, sizes, references, and no pictures.

use std::path::Path;

use selvedge_control_config::SourceUri;
use selvedge_sim::scenario::Clip;

/// Why there are no frames to play.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClipError {
    #[cfg(feature = "gstreamer")]
    #[error("it is no file, so its frames are not known before; write a file: of what it sends")]
    NoFile,
    #[cfg(feature = "gstreamer")]
    #[error(transparent)]
    Source(#[from] selvedge_media::SourceError),
    #[cfg(feature = "gstreamer")]
    #[error(transparent)]
    List(#[from] selvedge_data_stream::FrameListError),
    #[cfg(not(feature = "gstreamer"))]
    #[error(
        "this build has no GStreamer and reads no clips; write a list of frames into the network file"
    )]
    NoGStreamer,
}

/// The frames that a source of a node plays, which must be a file.
#[cfg(feature = "gstreamer")]
pub(crate) fn read(source: &SourceUri, base: &Path) -> Result<Clip, ClipError> {
    use selvedge_data_stream::rtp::{IPV4_UDP, packet_len};
    use selvedge_data_stream::{FrameList, GroupTracker, LISTED_FRAMES_MAX, ListedFrame};
    use selvedge_media::inspect::{self, WireFrame};
    use selvedge_units::{Bytes, Duration};

    /// IPv4, UDP, RTP and our extension.
    const HEADERS: u64 = IPV4_UDP.0 + packet_len(0) as u64;
    /// Of a full packet, as the simulator makes them.
    const PACKET: u64 = 1_500;
    if !matches!(source, SourceUri::File { .. }) {
        return Err(ClipError::NoFile);
    }
    let frames = inspect::frames_to(source, base, None, LISTED_FRAMES_MAX)?;
    let mut group = GroupTracker::default();
    let listed = |frame: &WireFrame| {
        let picture = frame.picture;
        let tracked = group.push(picture.kind, picture.referenced, picture.closes);
        ListedFrame {
            kind: picture.kind,
            referenced: picture.referenced,
            // What takes as long on the link, in fewer packets if the payloader leaves some part empty.
            size: Bytes(
                frame.size.0.saturating_sub(frame.size.0.div_ceil(PACKET) * HEADERS).max(1),
            ),
            refs: picture.refs.unwrap_or(tracked),
        }
    };
    let lasts = frames.last().map_or(Duration::ZERO, |frame| frame.decode_time);
    let period = Duration(lasts.0 / (frames.len() as u64).max(2).saturating_sub(1));
    let payloads = |frame: &WireFrame| {
        frame.packets.iter().map(|len| len.saturating_sub(HEADERS as u16)).collect()
    };
    let packets = frames.iter().map(payloads).collect();
    Ok(Clip { list: FrameList::new(frames.iter().map(listed).collect())?, packets, period })
}

/// Without GStreamer no clip can be read.
#[cfg(not(feature = "gstreamer"))]
pub(crate) fn read(_source: &SourceUri, _base: &Path) -> Result<Clip, ClipError> {
    Err(ClipError::NoGStreamer)
}

//! The elements that bring what comes to a pad into the form that is sent.

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_media::SourceError;

/// What pads take: encoded media by themselves, or sound that is not encoded.
pub(crate) fn template_caps() -> gst::Caps {
    gst::Caps::builder_full()
        .structure(gst::Structure::new_empty("video/x-h264"))
        .structure(
            gst::Structure::builder("video/mpeg")
                .field("mpegversion", gst::List::new([1i32, 2]))
                .field("systemstream", false)
                .build(),
        )
        .structure(gst::Structure::new_empty("image/jpeg"))
        .structure(gst::Structure::new_empty("audio/x-raw"))
        .build()
}

/// Why there is no chain.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainError {
    #[error("{0} can't be sent; link H.264, MPEG-1 or -2 video, JPEG or uncompressed sound")]
    Unknown(String),
    #[error(transparent)]
    Media(#[from] SourceError),
    #[error("can't prepare {caps}: {message}")]
    Wiring { caps: String, message: String },
}

/// A bin with pads `sink` and `src` for media of these caps.
pub(crate) fn for_caps(caps: &gst::CapsRef) -> Result<gst::Element, ChainError> {
    if !template_caps().can_intersect(caps) {
        return Err(ChainError::Unknown(caps.structure(0).map_or("", |s| s.name()).into()));
    }
    Ok(selvedge_media::carrier(caps)?.upcast())
}

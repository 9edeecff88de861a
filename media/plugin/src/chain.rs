//! The media that pads accept.

use gstreamer as gst;

/// Encoded media.
const ENCODED: &str = "video/x-h264; video/x-h265; video/x-vp8; video/x-vp9; video/x-av1; image/jpeg; \
    audio/x-opus; video/mpeg, mpegversion={ (int)1, (int)2 }, systemstream=false; audio/mpeg, mpegversion=4";

pub(crate) fn encoded_caps() -> gst::Caps {
    ENCODED.parse().expect("the text is of caps")
}

/// The same, and sound that is not encoded.
pub(crate) fn all_caps() -> gst::Caps {
    let mut caps = encoded_caps();
    caps.make_mut().append_structure(gst::Structure::new_empty("audio/x-raw"));
    caps
}

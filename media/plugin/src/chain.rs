//! The media that pads take.

use gstreamer as gst;

/// Encoded media by themselves.
pub(crate) fn encoded_caps() -> gst::Caps {
    let names = [
        "video/x-h264",
        "video/x-h265",
        "video/x-vp8",
        "video/x-vp9",
        "video/x-av1",
        "image/jpeg",
        "audio/x-opus",
    ];
    let mut caps: gst::Caps = names.into_iter().map(gst::Structure::new_empty).collect();
    let mpeg =
        gst::Structure::builder("video/mpeg").field("mpegversion", gst::List::new([1i32, 2]));
    let aac = gst::Structure::builder("audio/mpeg").field("mpegversion", 4i32);
    let all = caps.make_mut();
    all.append_structure(mpeg.field("systemstream", false).build());
    all.append_structure(aac.build());
    caps
}

/// The same, and sound that is not encoded.
pub(crate) fn all_caps() -> gst::Caps {
    let mut caps = encoded_caps();
    caps.make_mut().append_structure(gst::Structure::new_empty("audio/x-raw"));
    caps
}

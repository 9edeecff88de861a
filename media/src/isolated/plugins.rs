//! Which sources are isolated, and what their processes load before they can load no more: elements that are
//! used by name, and those that GStreamer finds by what arrives.

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_control_config::SourceUri;

use crate::source::{elements, parsed_line};

/// Elements that are used by name, here and in `rtspsrc`.
const ELEMENTS: [&str; 22] = [
    "rtspsrc",
    "srtsrc",
    "rtmp2src",
    "udpsrc",
    "rtpbin",
    "rtpjitterbuffer",
    "rtph264pay",
    "rtpopuspay",
    "decodebin",
    "typefind",
    "appsink",
    "appsrc",
    "capsfilter",
    "identity",
    "audioconvert",
    "audioresample",
    "videoscale",
    "videoconvert",
    "jpegenc",
    "h264parse",
    "aacparse",
    "opusparse",
];

/// Plug-ins of which no element is used by name.
const PLUGINS: [&str; 1] = ["typefindfunctions"];

/// What may arrive, packed or not.
const CARRIED: &str = "application/x-rtp; video/mpegts; video/x-flv; video/quicktime; video/x-matroska; \
    video/webm; audio/mpeg; audio/x-opus; audio/x-raw; video/x-h264; video/x-h265; video/x-vp8; \
    video/x-vp9; video/x-av1; video/mpeg, systemstream=false; image/jpeg";

/// Whether a source parses what comes from the network: all that listens or connects, and launch lines with
/// such an element, or with one that opens an address by itself.
#[must_use]
pub fn comes_from_network(uri: &SourceUri) -> bool {
    let SourceUri::Launch { line } = uri else {
        return matches!(
            uri,
            SourceUri::Rtp { .. } | SourceUri::Sdp { .. } | SourceUri::Network { .. }
        );
    };
    // A line that makes no sense connects to nothing.
    let Ok(bin) = elements::init().and_then(|()| parsed_line(line)) else { return false };
    let connects = |element: &gst::Element| {
        let class = element.metadata("klass").unwrap_or_default();
        let network = class.contains("Source") && class.contains("Network");
        let uri =
            element.find_property("uri").filter(|uri| uri.value_type() == String::static_type());
        let uri = uri.and_then(|_| element.property::<Option<String>>("uri"));
        network || uri.is_some_and(|uri| !uri.starts_with("file:"))
    };
    bin.iterate_recurse().into_iter().flatten().any(|element| connects(&element))
}

/// Loads all that a source may need. What is not installed is named when it is needed.
pub(super) fn load(uri: &SourceUri, thumbnails: bool) {
    for name in ELEMENTS {
        if let Some(factory) = gst::ElementFactory::find(name) {
            let _ = factory.load();
        }
    }
    for name in PLUGINS {
        let _ = gst::Plugin::load_by_name(name);
    }
    if let SourceUri::Launch { line } = uri {
        let _ = parsed_line(line);
    }
    let Ok(carried) = CARRIED.parse::<gst::Caps>() else { return };
    let takes_packed = gst::ElementFactoryType::DEMUXER
        | gst::ElementFactoryType::PARSER
        | gst::ElementFactoryType::DEPAYLOADER;
    let unpack = gst::ElementFactory::factories_with_type(takes_packed, gst::Rank::MARGINAL);
    // FFmpeg's demultiplexers, which need all of FFmpeg, are no better than GStreamer's own.
    let is_wanted = |factory: &&gst::ElementFactory| {
        factory.plugin().is_none_or(|plugin| plugin.plugin_name() != "libav")
            && factory.can_sink_any_caps(&carried)
    };
    for factory in unpack.iter().filter(is_wanted) {
        let _ = factory.load();
    }
    if !thumbnails {
        return;
    }
    let decoders = gst::ElementFactory::factories_with_type(
        gst::ElementFactoryType::DECODER,
        gst::Rank::MARGINAL,
    );
    for caps in carried.iter().filter(|caps| !caps.name().starts_with("audio/")) {
        let caps = gst::Caps::builder_full().structure(caps.to_owned()).build();
        let able = decoders.iter().filter(|decoder| decoder.can_sink_any_caps(&caps));
        if let Some(best) = able.max_by_key(|decoder| decoder.rank()) {
            let _ = best.load();
        }
    }
}

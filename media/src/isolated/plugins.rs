//! The sources that are isolated, and the plug-ins that their processes load while they still can:
//! elements that are used by name, and those that GStreamer chooses by the arriving data.

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_control_config::SourceUri;

use crate::source::elements::{init, source_bin};

/// Elements that read from an address, by the beginning of its scheme.
const READERS: [(&str, &str); 3] = [("rtsp", "rtspsrc"), ("srt", "srtsrc"), ("rtmp", "rtmp2src")];

/// Elements that are used by name, here and in `rtspsrc`.
const ELEMENTS: &str = "aacparse appsink appsrc audioconvert audioresample capsfilter decodebin h264parse \
    identity jpegenc opusparse rtpbin rtph264pay rtpjitterbuffer rtpopuspay typefind udpsrc videoconvert \
    videoscale";

/// Plug-ins without elements that are used by name.
const PLUGINS: [&str; 1] = ["typefindfunctions"];

/// Encodings that may arrive.
const ENCODINGS: &str = "audio/mpeg; audio/x-opus; audio/x-raw; video/x-h264; video/x-h265; video/x-vp8; \
    video/x-vp9; video/x-av1; video/mpeg, systemstream=false; image/jpeg";

/// The containers of encodings.
fn packed(uri: &SourceUri, scheme: &str) -> &'static str {
    match uri {
        SourceUri::Rtp { .. } | SourceUri::Sdp { .. } => "application/x-rtp",
        _ if scheme.starts_with("rtsp") => "application/x-rtp; video/mpegts",
        _ if scheme.starts_with("rtmp") => "video/x-flv",
        _ => {
            "application/x-rtp; video/mpegts; video/x-flv; video/quicktime; video/x-matroska; video/webm"
        }
    }
}

/// Whether a source parses network data: all that listen or connect, and launch lines with such an
/// element, or with one that opens an address by itself.
#[must_use]
pub fn comes_from_network(uri: &SourceUri) -> bool {
    let SourceUri::Launch { line, .. } = uri else {
        return matches!(
            uri,
            SourceUri::Rtp { .. } | SourceUri::Sdp { .. } | SourceUri::Network(_)
        );
    };
    // An invalid line connects to nothing.
    let Ok(bin) = init().and_then(|()| source_bin(line)) else { return false };
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

/// Loads all plug-ins that a source may need. A missing one is reported when it is needed.
pub(super) fn load(uri: &SourceUri, thumbnails: bool) {
    let scheme = if let SourceUri::Network(url) = uri { url.scheme() } else { "" };
    let readers = READERS.iter().filter(|(begins, _)| scheme.starts_with(begins));
    for name in ELEMENTS.split_whitespace().chain(readers.map(|(_, reader)| *reader)) {
        if let Some(factory) = gst::ElementFactory::find(name) {
            let _ = factory.load();
        }
    }
    for name in PLUGINS {
        let _ = gst::Plugin::load_by_name(name);
    }
    if let SourceUri::Launch { line, .. } = uri {
        let _ = source_bin(line);
    }
    let Ok(mut carried) = packed(uri, scheme).parse::<gst::Caps>() else { return };
    let Ok(encodings) = ENCODINGS.parse::<gst::Caps>() else { return };
    carried.merge(encodings.clone());
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
    if thumbnails {
        for caps in encodings.iter().filter(|caps| !caps.name().starts_with("audio/")) {
            load_decoder(&gst::Caps::builder_full().structure(caps.to_owned()).build());
        }
    }
    // Plug-ins that are not loaded now never will be: removing their descriptions frees memory.
    let registry = gst::Registry::get();
    for plugin in registry.plugins().iter().filter(|plugin| !plugin.is_loaded()) {
        registry.remove_plugin(plugin);
    }
}

/// Loads a decoder for small pictures. FFmpeg's takes thirty megabytes more than one made for a single
/// encoding, so it is loaded where there is no other, or where the user ranks it above all.
fn load_decoder(caps: &gst::Caps) {
    let decoders = gst::ElementFactory::factories_with_type(
        gst::ElementFactoryType::DECODER,
        gst::Rank::MARGINAL,
    );
    let able = decoders.iter().filter(|decoder| decoder.can_sink_any_caps(caps));
    let best = able.max_by_key(|decoder| {
        let is_small = decoder.plugin().is_none_or(|plugin| plugin.plugin_name() != "libav");
        (decoder.rank() > gst::Rank::PRIMARY, is_small, decoder.rank())
    });
    if let Some(loaded) = best.and_then(|best| best.load().ok()) {
        // `decodebin` takes the element that ranks first, and could not load another.
        loaded.set_rank(gst::Rank::PRIMARY + 1);
    }
}

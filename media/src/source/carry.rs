//! From the output of a container, a launch line or a depayloader to one stream of access units in the
//! form that the payloaders need.

use std::sync::Arc;

use gstreamer as gst;
use gstreamer::prelude::*;
use parking_lot::Mutex;
use selvedge_control_config::FilePart;
use selvedge_units::Bitrate;

use super::elements::{bin, link_later, make, package_for_caps, wiring};
use super::forms;
use super::test::h264_encoder;
use crate::error::SourceError;
use crate::picture::Codec;

/// The place of an error from GStreamer's threads until it is fetched.
pub(super) type Failure = Arc<Mutex<Option<SourceError>>>;

/// A `decodebin` in `pipeline`, for the caller to link, that only takes containers and packets apart:
/// the first video stream that it finds, else the first sound, goes through the elements that it needs
/// to `sink`. `failure` receives the error, if any.
pub(super) fn unpack_into(
    pipeline: &gst::Pipeline,
    sink: &gst::Element,
    what: &str,
    wanted: FilePart,
    failure: &Failure,
) -> Result<gst::Element, SourceError> {
    let unpack = make("decodebin")?;
    pipeline.add(&unpack).map_err(|e| wiring("decodebin", e))?;
    let demuxers = gst::ElementFactory::factories_with_type(
        gst::ElementFactoryType::DEMUXER,
        gst::Rank::MARGINAL,
    );
    unpack.connect("autoplug-continue", false, move |values| {
        let caps = values.get(2).and_then(|caps| caps.get::<gst::Caps>().ok());
        let packed = caps.is_some_and(|caps| {
            let is_rtp = caps.structure(0).is_some_and(|s| s.name() == "application/x-rtp");
            is_rtp || demuxers.iter().any(|d| d.can_sink_any_caps(&caps))
        });
        Some(packed.to_value())
    });
    // Weak, as the pipeline owns the element that owns the closure.
    let weak = (pipeline.downgrade(), sink.downgrade());
    let (what, failure) = (what.to_owned(), Arc::clone(failure));
    unpack.connect_no_more_pads(move |unpack| {
        let (Some(pipeline), Some(sink)) = (weak.0.upgrade(), weak.1.upgrade()) else { return };
        let Some(input) = sink.static_pad("sink").filter(|pad| !pad.is_linked()) else { return };
        if let Err(error) = choose(&pipeline, unpack, &input, &what, wanted) {
            failure.lock().get_or_insert(error);
        }
    });
    Ok(unpack)
}

/// Links video before sound, the first of each; everything else is left unlinked.
fn choose(
    pipeline: &gst::Pipeline,
    unpack: &gst::Element,
    input: &gst::Pad,
    what: &str,
    wanted: FilePart,
) -> Result<(), SourceError> {
    let is_encoded = matches!(wanted, FilePart::Encoded(_));
    let takes_pictures = is_encoded || wanted == FilePart::First;
    let mut others = Vec::new();
    let pads = unpack.src_pads().into_iter().filter_map(|pad| {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        let name = caps.structure(0)?.name();
        match name.split('/').next()? {
            "video" | "image" if takes_pictures => Some((0, pad, caps)),
            "audio" if !is_encoded => Some((1, pad, caps)),
            _ => {
                others.push(name.to_string());
                None
            }
        }
    });
    let found = pads.min_by_key(|(rank, ..)| *rank);
    let named = match wanted {
        FilePart::First => "video or sound",
        FilePart::Encoded(_) => "video",
        FilePart::Sound | FilePart::L16 => "sound",
    };
    let (_, pad, caps) = found.ok_or_else(|| SourceError::NotMedia {
        what: what.into(),
        found: format!("no {named}, but {}", others.join(", ")),
    })?;
    let tail = bin(&tail_for(&caps, what, wanted)?)?;
    pipeline.add(&tail).map_err(|e| wiring(&tail.name(), e))?;
    let end = |name| tail.static_pad(name).ok_or_else(|| wiring(&tail.name(), "no such pad"));
    let entry = end("sink")?;
    end("src")?.link(input).map_err(|e| wiring("appsink", e))?;
    tail.sync_state_with_parent().map_err(|e| wiring(&tail.name(), e))?;
    let is_raw = caps.structure(0).is_some_and(|s| s.name().ends_with("/x-raw"));
    let decoded = (is_encoded || wanted == FilePart::L16) && !is_raw;
    let entry = if decoded { decoder_before(pipeline, &entry)? } else { entry };
    pad.link(&entry).map_err(|e| wiring(&tail.name(), e))?;
    Ok(())
}

/// Puts a decoder in front of a pad, and returns the pad where encoded media enter.
fn decoder_before(pipeline: &gst::Pipeline, entry: &gst::Pad) -> Result<gst::Pad, SourceError> {
    let decode = make("decodebin")?;
    pipeline.add(&decode).map_err(|e| wiring("decodebin", e))?;
    link_later(&decode, entry, "decoded media do not fit");
    decode.sync_state_with_parent().map_err(|e| wiring("decodebin", e))?;
    decode.static_pad("sink").ok_or_else(|| wiring("decodebin", "no such pad"))
}

/// A bin from `sink` to `src` that encodes pictures anew.
pub(super) fn encoder(rate: Bitrate) -> Result<gst::Bin, SourceError> {
    bin(&format!("{} ! {}", h264_encoder(PICTURES, rate)?, forms::line(Codec::H264)))
}

/// A bin from `sink` to `src` that brings media of these caps into the form that is carried.
pub(super) fn entry(what: &str, caps: &gst::CapsRef) -> Result<gst::Bin, SourceError> {
    bin(&tail_for(caps, what, FilePart::First)?)
}

/// The launch line that brings media of these caps into the form that is carried.
fn tail_for(caps: &gst::CapsRef, what: &str, wanted: FilePart) -> Result<String, SourceError> {
    let codec = match wanted {
        // An encoder follows.
        FilePart::Encoded(_) => return Ok(I420.to_owned()),
        FilePart::L16 => Some(Codec::L16),
        FilePart::First | FilePart::Sound => forms::codec_of(caps),
    };
    if let Some(codec) = codec {
        return Ok(forms::line(codec));
    }
    let name = caps.structure(0).map_or("", |s| s.name().as_str());
    let (what, codec) = (what.to_owned(), name.to_owned());
    Err(match name {
        // A container for which there is no demultiplexer here.
        name if CONTAINERS.contains(&name) => {
            SourceError::CodecAbsent { codec, package: package_for_caps(name) }
        }
        name if name.starts_with("audio/") => SourceError::SoundUnsupported { what, codec },
        name => SourceError::CodecUnsupported { what, codec: codec_name(name).to_owned() },
    })
}

/// Pictures a second, as far as an encoder has to know.
pub(super) const PICTURES: u32 = 30;
/// Makes unencoded pictures such as encoders take.
pub(super) const I420: &str = "videoconvert ! capsfilter caps=video/x-raw,format=I420";

const CONTAINERS: [&str; 7] = [
    "video/quicktime",
    "video/x-matroska",
    "video/webm",
    "video/x-msvideo",
    "video/x-flv",
    "video/mpegts",
    "video/x-ms-asf",
];

/// The common name of the encoding of these caps.
fn codec_name(caps: &str) -> &str {
    match caps {
        "video/x-theora" => "Theora",
        "video/mpeg" => "MPEG-4 part 2 video",
        "video/x-raw" => "unencoded video",
        "video/x-h263" => "H.263",
        "image/png" => "PNG",
        other => other,
    }
}

//! From whatever a container, a launch line or a depayloader gives to one stream of access units
//! in the form that the payloaders want.

use std::sync::Arc;

use gstreamer as gst;
use gstreamer::prelude::*;
use parking_lot::Mutex;

use super::elements::{bin, make, package_for_caps, wiring};
use crate::error::SourceError;

/// What is wanted of a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The first video, else the first sound, as they are encoded.
    #[default]
    First,
    /// The first sound, as it is encoded.
    Sound,
    /// The first sound, decoded.
    L16,
}

impl Wanted {
    const fn name(self) -> &'static str {
        match self {
            Self::First => "video or sound",
            Self::Sound | Self::L16 => "sound",
        }
    }
}

/// Where an error from GStreamer's threads waits to be fetched.
pub(super) type Failure = Arc<Mutex<Option<SourceError>>>;

/// A `decodebin` in `pipeline`, for the caller to link, that only takes containers and packets apart: the
/// first video stream that it finds, else the first sound, goes through what it needs to `sink`.
/// `failure` gets what goes wrong.
pub(super) fn unpack_into(
    pipeline: &gst::Pipeline,
    sink: &gst::Element,
    what: &str,
    wanted: Wanted,
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
    wanted: Wanted,
) -> Result<(), SourceError> {
    let mut others = Vec::new();
    let pads = unpack.src_pads().into_iter().filter_map(|pad| {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        let name = caps.structure(0)?.name();
        match name.split('/').next()? {
            "video" | "image" if wanted == Wanted::First => Some((0, pad, caps)),
            "audio" => Some((1, pad, caps)),
            _ => {
                others.push(name.to_string());
                None
            }
        }
    });
    let found = pads.min_by_key(|(rank, ..)| *rank);
    let (_, pad, caps) = found.ok_or_else(|| SourceError::NotMedia {
        what: what.into(),
        found: format!("no {}, but {}", wanted.name(), others.join(", ")),
    })?;
    let tail = bin(tail_for(&caps, what, wanted)?)?;
    pipeline.add(&tail).map_err(|e| wiring(&tail.name(), e))?;
    let end = |name| tail.static_pad(name).ok_or_else(|| wiring(&tail.name(), "no such pad"));
    let entry = end("sink")?;
    end("src")?.link(input).map_err(|e| wiring("appsink", e))?;
    tail.sync_state_with_parent().map_err(|e| wiring(&tail.name(), e))?;
    let name = caps.structure(0).map_or("", |s| s.name().as_str());
    let decoded = wanted == Wanted::L16 && name != "audio/x-raw";
    let entry = if decoded { decoder_before(pipeline, &entry)? } else { entry };
    pad.link(&entry).map_err(|e| wiring(&tail.name(), e))?;
    Ok(())
}

/// Puts a decoder in front of a pad, and gives back where encoded media enters.
fn decoder_before(pipeline: &gst::Pipeline, entry: &gst::Pad) -> Result<gst::Pad, SourceError> {
    let decode = make("decodebin")?;
    pipeline.add(&decode).map_err(|e| wiring("decodebin", e))?;
    let weak = entry.downgrade();
    decode.connect_pad_added(move |_, decoded| {
        if let Some(entry) = weak.upgrade().filter(|entry| !entry.is_linked())
            && let Err(error) = decoded.link(&entry)
        {
            tracing::debug!(%error, "decoded sound does not fit");
        }
    });
    decode.sync_state_with_parent().map_err(|e| wiring("decodebin", e))?;
    decode.static_pad("sink").ok_or_else(|| wiring("decodebin", "no such pad"))
}

/// A bin from `sink` to `src` that brings media of these caps into the form that is carried.
pub(super) fn entry(what: &str, caps: &gst::CapsRef) -> Result<gst::Bin, SourceError> {
    bin(tail_for(caps, what, Wanted::First)?)
}

/// The launch line that brings media of these caps into the form that is carried.
fn tail_for(caps: &gst::CapsRef, what: &str, wanted: Wanted) -> Result<&'static str, SourceError> {
    let structure = caps.structure(0);
    let name = structure.map_or("", |s| s.name().as_str());
    let version = structure.and_then(|s| s.get::<i32>("mpegversion").ok());
    let line = match name {
        name if name == "audio/x-raw" || wanted == Wanted::L16 => AUDIO,
        // Parameter sets go in front of every IDR picture, within its access unit.
        "video/x-h264" => {
            "h264parse config-interval=-1 ! \
             capsfilter caps=video/x-h264,stream-format=byte-stream,alignment=au"
        }
        "video/x-h265" => {
            "h265parse config-interval=-1 ! \
             capsfilter caps=video/x-h265,stream-format=byte-stream,alignment=au"
        }
        "video/x-vp8" => "identity",
        "video/x-vp9" => "vp9parse ! capsfilter caps=video/x-vp9,alignment=super-frame",
        "video/x-av1" => {
            "av1parse ! capsfilter caps=video/x-av1,stream-format=obu-stream,alignment=tu"
        }
        "video/mpeg" if version.is_some_and(|version| version < 4) => "mpegvideoparse",
        "image/jpeg" => "jpegparse",
        "audio/mpeg" if version == Some(4) => {
            "aacparse ! capsfilter caps=audio/mpeg,mpegversion=4,stream-format=raw"
        }
        "audio/x-opus" => "opusparse",
        // A container that nothing here takes apart.
        name if CONTAINERS.contains(&name) => {
            let (codec, package) = (name.to_owned(), package_for_caps(name));
            return Err(SourceError::CodecAbsent { codec, package });
        }
        name if name.starts_with("audio/") => {
            let codec = name.to_owned();
            return Err(SourceError::SoundUnsupported { what: what.into(), codec });
        }
        name => {
            let codec = codec_name(name).to_owned();
            return Err(SourceError::CodecUnsupported { what: what.into(), codec });
        }
    };
    Ok(line)
}

const AUDIO: &str = "audioconvert ! audioresample ! \
     capsfilter caps=audio/x-raw,format=S16BE,layout=interleaved,rate=[8000,96000],channels=[1,2]";

const CONTAINERS: [&str; 7] = [
    "video/quicktime",
    "video/x-matroska",
    "video/webm",
    "video/x-msvideo",
    "video/x-flv",
    "video/mpegts",
    "video/x-ms-asf",
];

/// What people call the encoding of these caps.
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

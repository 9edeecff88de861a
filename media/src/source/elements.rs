//! GStreamer itself, its elements by name, and the Debian packages they come from.

use std::sync::OnceLock;

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_control_config::redacted;

use crate::error::SourceError;

/// Elements that are used by name, and the packages that contain them.
const PACKAGES: [(&str, &str); 5] = [
    (
        "gstreamer1.0-plugins-base",
        "appsink appsrc audioconvert audioresample audiotestsrc decodebin videoconvert videorate \
         videoscale videotestsrc",
    ),
    (
        "gstreamer1.0-plugins-good",
        "aacparse jpegdec jpegenc rtpL16depay rtpL16pay rtph264depay rtph264pay rtph265pay \
         rtpjitterbuffer rtpjpegdepay rtpjpegpay rtpmp4gpay rtpmpvdepay rtpmpvpay rtpopuspay \
         rtpvp8pay rtpvp9pay rtspsrc udpsrc v4l2src",
    ),
    (
        "gstreamer1.0-plugins-bad",
        "av1parse h264parse h265parse jpegparse mpeg2enc mpegvideoparse openh264enc opusparse \
         rtmp2sink rtmp2src srtpdec srtsink srtsrc tsdemux vp9parse",
    ),
    ("gstreamer1.0-plugins-ugly", "x264enc"),
    ("gstreamer1.0-libav", "avdec_h264 avdec_mpeg2video"),
];

/// The Debian package that an element comes from, if it is one of those used here.
pub(crate) fn package_of(element: &str) -> Option<&'static str> {
    let has = |elements: &str| elements.split(' ').any(|known| known == element);
    PACKAGES.iter().find(|(_, elements)| has(elements)).map(|(package, _)| *package)
}

/// The Debian package that handles encoded media of these caps, by their name.
pub(crate) fn package_for_caps(caps: &str) -> &'static str {
    let good = ["quicktime", "matroska", "webm", "msvideo", "x-wav", "x-flv", "x-m4a", "image/"];
    if good.iter().any(|part| caps.contains(part)) {
        "gstreamer1.0-plugins-good"
    } else if caps.contains("mpegts") || caps.contains("systemstream=(boolean)true") {
        "gstreamer1.0-plugins-bad"
    } else {
        "gstreamer1.0-plugins-bad gstreamer1.0-libav"
    }
}

/// Starts GStreamer, once. The output of its libraries goes to `tracing` instead; their own debug log
/// is silent unless `GST_DEBUG` is set.
///
/// # Errors
/// [`SourceError::Pipeline`] if GStreamer can't start.
pub(crate) fn init() -> Result<(), SourceError> {
    static STARTED: OnceLock<Result<(), SourceError>> = OnceLock::new();
    let start = || {
        gst::init().map_err(|e| SourceError::Pipeline {
            element: "GStreamer".into(),
            message: e.message().into(),
        })?;
        gst::glib::log_set_default_handler(|domain, _, message| {
            let message = redacted(message);
            tracing::debug!(target: "gstreamer", "{}: {message}", domain.unwrap_or("glib"));
        });
        Ok(())
    };
    STARTED.get_or_init(start).clone()
}

/// A new element of this kind.
///
/// # Errors
/// [`SourceError::CodecAbsent`] if it is not installed.
pub(crate) fn make(factory: &str) -> Result<gst::Element, SourceError> {
    gst::ElementFactory::make(factory).build().map_err(|_| SourceError::CodecAbsent {
        codec: format!("GStreamer's {factory}"),
        package: package_of(factory).unwrap_or("gstreamer1.0-plugins-base"),
    })
}

/// Links the first output of an element to this input when it appears; `misfit` reports that it can't.
pub(crate) fn link_later(element: &gst::Element, input: &gst::Pad, misfit: &'static str) {
    // Weak, as the element owns the closure.
    let input = input.downgrade();
    element.connect_pad_added(move |_, output| {
        if let Some(input) = input.upgrade().filter(|input| !input.is_linked())
            && let Err(error) = output.link(&input)
        {
            tracing::debug!(%error, "{misfit}");
        }
    });
}

/// An error of a connection between elements, as a value.
pub(crate) fn wiring(element: &str, message: impl ToString) -> SourceError {
    SourceError::Pipeline { element: element.into(), message: message.to_string() }
}

/// A bin from a launch line, with its open ends as pads `sink` and `src`.
///
/// # Errors
/// [`SourceError::CodecAbsent`] or [`SourceError::ElementAbsent`] for an element that is not installed,
/// [`SourceError::Launch`] for an invalid line.
pub(crate) fn bin(line: &str) -> Result<gst::Bin, SourceError> {
    parsed(line, true)
}

/// A bin from a launch line that begins with a source, with its end as pad `src`.
///
/// An input that an element links only when its pads appear (`qtdemux`, `rtspsrc`) looks open until
/// then, so inputs stay as they are.
///
/// # Errors
/// As [`bin`].
pub(crate) fn source_bin(line: &str) -> Result<gst::Bin, SourceError> {
    let bin = parsed(line, false)?;
    let (end, bin) = match open_end(&bin) {
        Some(end) => (end, bin),
        // The last element may have no output yet; an element after it takes its later output.
        None => {
            let followed = parsed(&format!("{line} ! identity"), false).ok();
            let message = "nothing comes out of its end".into();
            let absent = || SourceError::Launch { line: redacted(line), message };
            followed.and_then(|bin| Some((open_end(&bin)?, bin))).ok_or_else(absent)?
        }
    };
    let ghost = gst::GhostPad::builder_with_target(&end).map_err(|e| wiring("launch", e))?;
    bin.add_pad(&ghost.name("src").build()).map_err(|e| wiring("launch", e))?;
    Ok(bin)
}

/// The unlinked output of a bin's own elements; those inside of its bins belong to them.
fn open_end(bin: &gst::Bin) -> Option<gst::Pad> {
    let outputs = bin.children().into_iter().flat_map(|element| element.src_pads());
    outputs.into_iter().find(|pad| !pad.is_linked())
}

fn parsed(line: &str, open_ends: bool) -> Result<gst::Bin, SourceError> {
    let mut context = gst::ParseContext::new();
    let flags = gst::ParseFlags::FATAL_ERRORS;
    let wrong =
        |message: &str| SourceError::Launch { line: redacted(line), message: redacted(message) };
    gst::parse::bin_from_description_full(line, open_ends, Some(&mut context), flags)
        .map_err(|e| {
            // Other mistakes leave elements in the context too.
            let absent = e.matches(gst::ParseError::NoSuchElement);
            let missing = context.missing_elements().into_iter().next().filter(|_| absent);
            let Some(element) = missing else { return wrong(e.message()) };
            match package_of(&element) {
                Some(package) => {
                    SourceError::CodecAbsent { codec: format!("GStreamer's {element}"), package }
                }
                None => SourceError::ElementAbsent { element },
            }
        })
        .and_then(|element| element.downcast().map_err(|_| wrong("it is not a pipeline")))
}

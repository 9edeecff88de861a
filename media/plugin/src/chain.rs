//! The elements that bring what comes to a pad into the form that is sent.

use gstreamer as gst;

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
    #[error("GStreamer's {element} is missing; install it with: apt-get install {package}")]
    Missing { element: String, package: &'static str },
    #[error("can't prepare {caps}: {message}")]
    Wiring { caps: String, message: String },
}

/// A bin with pads `sink` and `src` for media of these caps.
///
/// Parameter sets go in front of every IDR picture, within its access unit, so that a receiver
/// can begin there, whatever the container did with them.
pub(crate) fn for_caps(caps: &gst::CapsRef) -> Result<gst::Element, ChainError> {
    let line = match caps.structure(0).map_or("", |s| s.name().as_str()) {
        "video/x-h264" => {
            "h264parse config-interval=-1 ! \
             capsfilter caps=video/x-h264,stream-format=byte-stream,alignment=au"
        }
        "video/mpeg" => "mpegvideoparse",
        "image/jpeg" => "jpegparse",
        "audio/x-raw" => {
            "audioconvert ! audioresample ! capsfilter caps=audio/x-raw,format=S16BE,\
             layout=interleaved,rate=[8000,96000],channels=[1,2]"
        }
        other => return Err(ChainError::Unknown(other.into())),
    };
    let mut context = gst::ParseContext::new();
    let flags = gst::ParseFlags::FATAL_ERRORS;
    gst::parse::bin_from_description_full(line, true, Some(&mut context), flags).map_err(|error| {
        match context.missing_elements().first() {
            Some(element) => ChainError::Missing {
                element: element.to_string(),
                package: if element.starts_with("audio") {
                    "gstreamer1.0-plugins-base"
                } else {
                    "gstreamer1.0-plugins-bad"
                },
            },
            None => ChainError::Wiring { caps: caps.to_string(), message: error.message().into() },
        }
    })
}

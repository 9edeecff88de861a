//! The form in which each encoding is carried, as GStreamer writes it, and the elements that convert
//! other forms to it.

use gstreamer as gst;

use crate::picture::Codec;

/// A form, one a line: its encoding, the elements that make it, and its caps.
type Form = (Codec, &'static str, &'static str);

#[rustfmt::skip]
const FORMS: [Form; Codec::COUNT] = [
    // Parameter sets go in front of every IDR picture, within its access unit.
    (Codec::H264, "h264parse config-interval=-1", "video/x-h264,stream-format=byte-stream,alignment=au"),
    (Codec::H265, "h265parse config-interval=-1", "video/x-h265,stream-format=byte-stream,alignment=au"),
    (Codec::Vp8, "identity", "video/x-vp8"),
    (Codec::Vp9, "vp9parse", "video/x-vp9,alignment=super-frame"),
    (Codec::Av1, "av1parse", "video/x-av1,stream-format=obu-stream,alignment=tu"),
    (Codec::Mpv, "mpegvideoparse", "video/mpeg,mpegversion={2,1},systemstream=false"),
    (Codec::Jpeg, "jpegparse", "image/jpeg"),
    (Codec::Aac, "aacparse", "audio/mpeg,mpegversion=4,stream-format=raw"),
    (Codec::Opus, "opusparse", "audio/x-opus"),
    (Codec::L16, "audioconvert ! audioresample",
        "audio/x-raw,format=S16BE,layout=interleaved,rate=[8000,96000],channels=[1,2]"),
];

fn form(codec: Codec) -> &'static Form {
    &FORMS[codec as usize]
}

/// The encoding of media of these caps, in whatever form; `None` if it is not carried.
pub(crate) fn codec_of(caps: &gst::CapsRef) -> Option<Codec> {
    let said = caps.structure(0)?;
    let version = said.get::<i32>("mpegversion").ok();
    let named = |(_, _, caps): &&Form| caps.split(',').next() == Some(said.name().as_str());
    let (codec, ..) = FORMS.iter().find(named)?;
    let is_other = match codec {
        Codec::Mpv => version == Some(4),
        Codec::Aac => version != Some(4),
        _ => false,
    };
    (!is_other).then_some(*codec)
}

/// The launch line that converts media of this encoding to the form that is carried.
pub(super) fn line(codec: Codec) -> String {
    let (_, elements, caps) = form(codec);
    format!("{elements} ! capsfilter caps={}", caps.replace(' ', ""))
}

/// The caps of that form.
pub(crate) fn caps(codec: Codec) -> gst::Caps {
    form(codec).2.parse().expect("the text is of caps")
}

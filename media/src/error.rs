//! Why a source delivers nothing: each text states what was found and what to do.

use selvedge_units::{Bitrate, Bytes, Duration};
use serde::{Deserialize, Serialize};

use crate::picture::jpeg::JpegError;

/// Why a source can't be opened, or broke off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No such file, or it can't be read.
    #[error("can't read \"{path}\": {reason}; paths are relative to the node file's folder")]
    NotFound {
        /// The path that was tried.
        path: String,
        /// The system's error.
        reason: String,
    },
    /// The file exists but holds neither video nor sound.
    #[error(
        "\"{what}\" is not a video or audio file ({found}); give an MP4, MPEG, Matroska, AVI or \
         WAV file, or MJPEG"
    )]
    NotMedia {
        /// The source.
        what: String,
        /// What it contains instead.
        found: String,
    },
    /// A file that ends before its container does.
    #[error(
        "\"{what}\" is cut off: it would have {declared} by what it says of itself, and has {found}; \
         copy it again, or keep what is there: ffmpeg -i IN -c copy OUT.mkv"
    )]
    CutOff {
        /// The source.
        what: String,
        /// The bytes that it should have at least.
        declared: Bytes,
        /// The bytes that it has.
        found: Bytes,
    },
    /// A plug-in that is needed to read or make this encoding is not installed.
    #[error("nothing here handles {codec}; install it with: apt-get install {package}")]
    CodecAbsent {
        /// The encoding, or the GStreamer element.
        codec: String,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// A launch line names an unknown element that is not installed.
    #[error(
        "GStreamer has no element \"{element}\" here; install the package that has it, or see what \
         there is: gst-inspect-1.0"
    )]
    ElementAbsent {
        /// The element.
        element: String,
    },
    /// The encoding is known, but is not carried.
    #[error(
        "\"{what}\" is {codec}, which is not carried; write ?encode=2 Mbit/s behind the file to send it as \
         H.264, or convert it: ffmpeg -i IN -c:v libx264 -bf 2 OUT.mp4"
    )]
    CodecUnsupported {
        /// The source.
        what: String,
        /// The encoding.
        codec: String,
    },
    /// Sound whose encoding is not carried as it is.
    #[error(
        "the sound of \"{what}\" is {codec}, which is not carried as it is; write ?l16 behind the file \
         to send it uncompressed, or convert it: ffmpeg -i IN -c:v copy -c:a aac OUT.mp4"
    )]
    SoundUnsupported {
        /// The source.
        what: String,
        /// The encoding.
        codec: String,
    },
    /// JPEG images that RTP can't carry.
    #[error(
        "the images of \"{what}\" can't travel as RTP JPEG: {reason}; convert them: \
         ffmpeg -i IN -vf scale=640:-8 -pix_fmt yuvj420p -c:v mjpeg -huffman default OUT.avi; in a \
         launch line write video/x-raw,format=I420 before jpegenc"
    )]
    Jpeg {
        /// The source.
        what: String,
        /// The error in them.
        reason: JpegError,
    },
    /// An invalid option of a `test:` or `rtp:` source.
    #[error("{option} in \"{what}\" is not understood; {remedy}")]
    Option {
        /// The source.
        what: String,
        /// The option as it was given.
        option: String,
        /// What to write.
        remedy: &'static str,
    },
    /// A launch line that GStreamer does not understand, or that does not end in encoded media.
    #[error(
        "launch line \"{line}\": {message}; write elements that end in encoded media, such as \
         \"videotestsrc is-live=true ! x264enc\""
    )]
    Launch {
        /// The line.
        line: String,
        /// The error in it.
        message: String,
    },
    /// The knob of a launch line turns nothing.
    #[error(transparent)]
    Knob(Box<KnobFault>),
    /// A camera or port that can't be opened.
    #[error("can't open {device}: {message}; {remedy}")]
    Device {
        /// The camera's file, or the address.
        device: String,
        /// The system's error.
        message: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A camera or server in the network that does not answer, or that has gone.
    #[error(
        "no media from \"{what}\": {message}; see that it is on, can be reached, and takes the login"
    )]
    Unreachable {
        /// The source, without its login.
        what: String,
        /// GStreamer's error.
        message: String,
    },
    /// A session description that describes nothing to receive.
    #[error("\"{path}\": {message}")]
    Description {
        /// The file.
        path: String,
        /// The error in it.
        message: String,
    },
    /// Nothing arrived in time.
    #[error("\"{what}\" gave nothing for {waited}; see that it can be read and is not stuck")]
    Stalled {
        /// The source.
        what: String,
        /// For how long.
        waited: Duration,
    },
    /// A GStreamer element failed.
    #[error("{element} failed: {message}; set GST_DEBUG=3 for more")]
    Pipeline {
        /// The element.
        element: String,
        /// Its error.
        message: String,
    },
    /// An error reported by the process of a source, or its death.
    #[error("{message}")]
    Isolated {
        /// The kind of trouble.
        trouble: Trouble,
        /// The text.
        message: String,
    },
}

/// Why the knob of a launch line can't set its encoder's rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KnobFault {
    /// No element has this name.
    #[error("the launch line has no element \"{0}\"; write name={0} behind its encoder")]
    Element(String),
    /// The element has no such property.
    #[error("{element} has no property \"{property}\"; {}", see(.factory, .nearest.as_deref()))]
    Property {
        /// The element's name.
        element: String,
        /// Its kind.
        factory: String,
        /// The property.
        property: String,
        /// The probable intention.
        nearest: Option<String>,
    },
    /// The property holds something else than a whole number.
    #[error("{knob} is no whole number but a {found}; write the property that holds the bitrate")]
    NoNumber {
        /// `ELEMENT.PROPERTY`.
        knob: String,
        /// The type of its values.
        found: String,
    },
    /// The element takes no other value while it runs.
    #[error(
        "{knob} can't change while the element runs; write another property, or take another encoder than {factory}"
    )]
    Fixed {
        /// `ELEMENT.PROPERTY`.
        knob: String,
        /// The element's kind.
        factory: String,
    },
    /// The launch line states no rate, and the node file no limit.
    #[error(
        "{0} is 0 in the launch line; write the rate there, or most = \"3 Mbit/s\" beside property"
    )]
    Unstated(String),
    /// There is nothing between the least and the most.
    #[error(
        "the least, {least}, is more than the most, {most}; write most = beside it, or a higher rate in the launch line"
    )]
    Empty {
        /// `least`, stated or by default.
        least: Bitrate,
        /// `most`, stated or by default.
        most: Bitrate,
    },
    /// The property does not take what is to be set.
    #[error(
        "{knob} takes {} to {}, and is to be set from {} to {}; write least and most within that, or another unit",
        .takes.0, .takes.1, .set.0, .set.1
    )]
    Range {
        /// `ELEMENT.PROPERTY`.
        knob: String,
        /// The least and the most that the property takes.
        takes: (Bitrate, Bitrate),
        /// What `least` and `most` are, stated or by default.
        set: (Bitrate, Bitrate),
    },
}

impl From<KnobFault> for SourceError {
    fn from(fault: KnobFault) -> Self {
        Self::Knob(Box::new(fault))
    }
}

fn see(factory: &str, nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => format!("see which it has: gst-inspect-1.0 {factory}"),
    }
}

/// The meaning of an error for a user of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// Nothing answers, or nothing arrives.
    Silent,
    /// This machine lacks what the source needs.
    Lacking,
    /// The source's process has died, whatever the source does.
    Died,
    /// The knob of a launch line is wrong.
    Knob,
    /// Something else is wrong.
    Other,
}

impl SourceError {
    /// The key of the source's stream, in a node file, whose value must be changed.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        if matches!(self.trouble(), Trouble::Knob) { "knobs.bitrate" } else { "source" }
    }

    /// The meaning of the error for a user of the source.
    #[must_use]
    pub const fn trouble(&self) -> Trouble {
        match self {
            Self::Unreachable { .. } | Self::Stalled { .. } => Trouble::Silent,
            Self::CodecAbsent { .. } | Self::ElementAbsent { .. } => Trouble::Lacking,
            Self::Knob(_) => Trouble::Knob,
            Self::Isolated { trouble, .. } => *trouble,
            _ => Trouble::Other,
        }
    }
}

//! Sources: one file for each kind, one feed and one payloader behind them all.
//!
//! `kind -> feed (encoded access units) -> timeline -> packetizer -> FrameSink`. The feed runs in
//! GStreamer's threads and waits when it is a few units ahead; the rest runs in the thread that
//! calls [`Source::run`].

pub(crate) mod alone;
mod av1_packets;
mod camera;
mod carry;
mod descriptors;
pub(crate) mod elements;
mod encoder;
mod feed;
mod file;
pub(crate) mod forms;
mod framer;
mod framing;
mod launch;
mod network;
mod nominal;
mod packetizer;
mod rtp;
mod run;
mod test;
mod together;
mod truncation;
mod unit;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use selvedge_control_config::{EncoderKnob, FilePart, SourceUri, Url, redacted};
use selvedge_units::{Bitrate, Duration};

use crate::error::SourceError;
use crate::frame::StreamInfo;
use crate::thumbnail::{Imager, Thumbnailer};

pub use self::rtp::packet_caps;
pub use encoder::{Encoder, EncoderOrders, LEAST_PART, RemoteEncoder, key_unit_request};
use feed::{Feed, Timing};
pub use framer::Framer;
use framing::Framing;
pub use together::Pair;
use together::Together;
use unit::{Format, Unit};

/// How long opening may take, and a file may give nothing.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The period of a source that does not state its own: that of test signals, and of most cameras.
const PERIOD_DEFAULT: Duration = Duration::from_millis(40);
/// Units looked at for a period that the medium does not state.
const LOOK_AHEAD: usize = 9;

/// An open source.
///
/// Its elements are stopped when it is dropped.
#[derive(Debug)]
pub struct Source {
    opener: SourceOpener,
    feed: Feed,
    /// Its encoder, if it is encoded here and the rate may change.
    encoder: Option<Encoder>,
    framing: Framing,
    info: StreamInfo,
    thumbnailer: Option<Thumbnailer>,
    imager: Option<Imager>,
    /// The period that others say it has.
    expected: Duration,
    /// What it shares with another stream of its file.
    together: Option<Together>,
    /// Units that were read to learn of the stream and are not delivered yet.
    ahead: VecDeque<Unit>,
    /// When its first unit had come.
    opened: std::time::Instant,
}

/// Makes the feed of a source, again for each time it loops.
#[derive(Clone, Debug)]
pub(crate) struct SourceOpener {
    /// The source as errors name it.
    what: String,
    make: SourceKind,
    repeat: bool,
}

/// The kinds of source. A new kind is a case here, a line in each of the two functions below,
/// and a file; one more of the network is a line in the table of [`network`].
#[derive(Clone, Debug)]
enum SourceKind {
    File(PathBuf, FilePart),
    /// A launch line: a test signal's own, or a user's, with its knob.
    Line(String, Timing, Option<EncoderKnob>),
    Rtp(rtp::Expected),
    Camera(String),
    Network(Url),
}

/// GStreamer's version, if it starts and has elements of each package that sources need.
///
/// # Errors
/// [`SourceError::Pipeline`] if it does not start, [`SourceError::CodecAbsent`] for an element that
/// is not installed.
pub fn version() -> Result<String, SourceError> {
    elements::init()?;
    for factory in ["qtdemux", "tsdemux", "h264parse", "rtph264pay", "avdec_h264"] {
        elements::make(factory)?;
    }
    Ok(gstreamer::version_string().to_string())
}

/// Finds mistakes in the description of a source, as far as that is possible without starting it:
/// options, elements that are not installed, an invalid launch line or session description. Does not
/// look for media files, devices and hosts.
///
/// # Errors
/// [`SourceError`] as for [`Source::open`].
pub fn description(uri: &SourceUri, base_dir: &Path) -> Result<(), SourceError> {
    elements::init()?;
    match SourceOpener::new(uri, base_dir)?.make {
        SourceKind::Line(line, _, knob) => launch::check(&line, knob.as_ref()),
        _ => Ok(()),
    }
}

/// The mean rate that a source's description states, headers not included, and its period: the settings
/// of the encoder of a test signal or a launch line. `None` where it does not state them.
#[must_use]
pub fn stated_rate(uri: &SourceUri) -> Option<(Bitrate, Duration)> {
    match SourceOpener::new(uri, Path::new("")).ok()?.make {
        SourceKind::Line(line, ..) => nominal::nominal(&line),
        SourceKind::File(_, FilePart::Encoded(rate)) => Some((rate, PERIOD_DEFAULT)),
        _ => None,
    }
}

impl SourceOpener {
    pub(crate) fn new(uri: &SourceUri, base_dir: &Path) -> Result<Self, SourceError> {
        let what = match uri {
            SourceUri::File { path, .. } => format!("file:{path}"),
            SourceUri::Rtp { listen, .. } => format!("rtp://{listen}"),
            other => other.to_string(),
        };
        let elsewhere = |message: &str| elements::wiring(&what, message);
        let make = match uri {
            SourceUri::File { path, part, .. } => SourceKind::File(base_dir.join(path), *part),
            SourceUri::Test(what) => SourceKind::Line(test::line(what)?, Timing::Stored, None),
            SourceUri::Launch { line, bitrate } => {
                SourceKind::Line(line.clone(), Timing::Unknown, bitrate.clone())
            }
            SourceUri::Rtp { listen, encoding, clock, payload_type, from } => {
                let rate = if encoding.contains('/') { String::new() } else { format!("/{clock}") };
                let stated = format!("{encoding}{rate}");
                let expected = rtp::Expected::new(*listen, &stated, *payload_type)?;
                SourceKind::Rtp(rtp::Expected { from: *from, ..expected })
            }
            SourceUri::Sdp { path, from } => {
                let expected = rtp::described(&base_dir.join(path))?;
                SourceKind::Rtp(rtp::Expected { from: *from, ..expected })
            }
            SourceUri::Network(url) => SourceKind::Network(url.clone()),
            SourceUri::Camera(device) => SourceKind::Camera(device.clone()),
            SourceUri::Record { .. } => {
                return Err(elsewhere(
                    "a recording is read by the engine's side, not by GStreamer",
                ));
            }
            SourceUri::Bond { .. } | SourceUri::Tunnel(_) => {
                return Err(elsewhere("a bond brings packets, which GStreamer does not read"));
            }
            SourceUri::Program | SourceUri::Streamlets | SourceUri::Shared { .. } => {
                return Err(elsewhere("its frames are the program's, not GStreamer's"));
            }
        };
        let repeat = matches!(uri, SourceUri::File { repeat: true, .. });
        Ok(Self { what, make, repeat })
    }

    fn feed(&self) -> Result<Feed, SourceError> {
        match &self.make {
            SourceKind::File(path, wanted) => file::feed(&self.what, path, *wanted),
            SourceKind::Line(line, timing, knob) => {
                launch::feed(&self.what, line, *timing, knob.as_ref())
            }
            SourceKind::Rtp(expected) => rtp::feed(&self.what, expected),
            SourceKind::Camera(device) => camera::feed(&self.what, device),
            SourceKind::Network(url) => network::feed(&self.what, url),
        }
    }

    /// The knob that sets its encoder's rate.
    const fn knob(&self) -> Option<&EncoderKnob> {
        match &self.make {
            SourceKind::Line(_, _, knob) => knob.as_ref(),
            _ => None,
        }
    }

    /// Loads the ciphers of a source whose packets are sealed. What lacks shows when it is opened.
    pub(crate) fn load_ciphers(&self) {
        if let SourceKind::Rtp(rtp::Expected { key: Some(key), .. }) = &self.make {
            rtp::load_ciphers(key);
        }
    }

    /// What is known of the stream without waiting for it, all that is needed where nobody may be
    /// sending yet: its format, and the parameters of that which units don't show.
    fn known_format(&self) -> Option<(Format, Option<String>)> {
        match &self.make {
            SourceKind::Rtp(expected) => Some((expected.format(), expected.fmtp())),
            _ => None,
        }
    }

    /// Whether it waits for packets for as long as it takes, and connects to nothing.
    const fn waits_for_packets(&self) -> bool {
        matches!(self.make, SourceKind::Rtp(_))
    }

    /// A fault of something that is no file is reported as such.
    fn explain(&self, error: SourceError) -> SourceError {
        let what = || self.what.clone();
        let found = match &error {
            SourceError::Pipeline { message, .. }
                if matches!(self.make, SourceKind::Network(_)) =>
            {
                return SourceError::Unreachable { what: what(), message: message.clone() };
            }
            SourceError::CodecUnsupported { codec, .. } => format!("it ends in {codec}"),
            SourceError::NotMedia { found, .. } => found.clone(),
            _ => return error,
        };
        match &self.make {
            SourceKind::Line(line, Timing::Unknown, _) => {
                SourceError::Launch { line: redacted(line), message: found }
            }
            SourceKind::File(..) => error,
            SourceKind::Network(_) => SourceError::Unreachable { what: what(), message: found },
            _ => SourceError::Pipeline { element: what(), message: found },
        }
    }
}

//! Source URIs: the text forms of [`SourceUri`], read and printed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use selvedge_units::{Bitrate, nearest};

use super::address::{self, AddressError};
use super::url::{self, Url, UrlError};
use super::{FilePart, SourceUri, quoted, redacted};

/// Why a text is not a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No kind such as `file:` in front.
    #[error(
        "{0} does not say what kind of source it is; write file: before a path, \
             or one of test:, rtp://, rtsp://, srt://, rtmp://, udp://, sdp:, camera:, record:, bond:, shm:, launch:"
    )]
    NoScheme(String),
    /// An unknown kind.
    #[error("{scheme} is not a kind of source; {}", meant(*.nearest))]
    Scheme {
        /// The text before the colon, quoted.
        scheme: String,
        /// The probable intention.
        nearest: Option<&'static str>,
    },
    /// Nothing after the colon, or control characters.
    #[error("{0} is incomplete or holds control characters; write such as \"{1}\"")]
    Empty(String, &'static str),
    /// Longer than [`SourceUri::LONGEST`].
    #[error("the source has {0} bytes; write at most {most}", most = SourceUri::LONGEST)]
    TooLong(usize),
    /// An option that this kind of source does not have.
    #[error("{option} is not an option of this source; {known}")]
    Option {
        /// The option, quoted.
        option: String,
        /// The options that there are.
        known: &'static str,
    },
    /// A value that an option cannot have.
    #[error("{option} will not do; write {instead}")]
    Value {
        /// The option with its value, quoted.
        option: String,
        /// The values that it may have.
        instead: &'static str,
    },
    /// An option is given twice.
    #[error("option {0} is given twice; keep one")]
    Twice(String),
    /// An unknown test signal.
    #[error("{0} is not a test signal; write one of test:video, test:mpeg2, test:jpeg, test:audio")]
    Test(String),
    /// An RTP source that does not state its encoding.
    #[error("the encoding is missing; write such as \"rtp://127.0.0.1:5004?encoding=H264\"")]
    NoEncoding,
    /// A recording that does not state its encoding.
    #[error("the encoding is missing; write such as \"record:lecture.rtpdump?encoding=H264\"")]
    NoRecordEncoding,
    /// A program's frames without their encoding.
    #[error("the encoding is missing; write such as \"shm:/run/selvedge/cam.sock?encoding=H264\"")]
    NoSharedEncoding,
    /// Not an address to receive at.
    #[error("{0}")]
    Address(#[from] AddressError),
    /// Not the address of a source in the network.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// Not a device.
    #[error("{0} is not a device; write its path, such as \"camera:/dev/video0\"")]
    Device(String),
}

/// Reads the whole text of a source; `rest` is the text after the colon.
type Read = fn(text: &str, rest: &str) -> Result<SourceUri, SourceError>;

/// The kinds of source that are read here, one a line; those of [`url::SCHEMES`] are all read alike.
const KINDS: [(&str, Read); 9] = [
    ("file", file),
    ("test", |_, rest| test(rest)),
    ("rtp", |text, _| rtp(text)),
    ("sdp", sdp),
    ("camera", |_, rest| camera(rest)),
    ("record", record),
    ("bond", bond),
    ("shm", shared),
    ("launch", launch),
];

impl SourceUri {
    /// The longest source that is read, in bytes.
    pub const LONGEST: usize = 4096;

    /// As [`FromStr`] reads it, with its login. Only for the process that opens it.
    #[must_use]
    pub fn reveal(&self) -> String {
        match self {
            Self::Network(url) => url.reveal().to_owned(),
            Self::Launch { line, .. } => format!("launch:{line}"),
            other => other.to_string(),
        }
    }

    /// The only sender whose packets count.
    #[must_use]
    pub const fn sender(&self) -> Option<IpAddr> {
        match self {
            Self::Rtp { from, .. } | Self::Sdp { from, .. } => *from,
            _ => None,
        }
    }

    /// Restricts the source to this sender's packets; false if the kind of source does not allow that.
    pub const fn keep_to(&mut self, sender: IpAddr) -> bool {
        match self {
            Self::Rtp { from, .. } | Self::Sdp { from, .. } => {
                *from = Some(sender);
                true
            }
            _ => false,
        }
    }
}

impl FromStr for SourceUri {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        if text.len() > Self::LONGEST {
            return Err(SourceError::TooLong(text.len()));
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(SourceError::NoScheme(quoted(text)));
        };
        if let Some((_, read)) = KINDS.iter().find(|(name, _)| *name == scheme) {
            return read(text, rest);
        }
        if let Some(&known) = url::SCHEMES.iter().find(|(name, _)| *name == scheme) {
            return Ok(Self::Network(Url::new(text, known)?));
        }
        if scheme.contains(['/', '.']) {
            return Err(SourceError::NoScheme(quoted(text)));
        }
        Err(SourceError::Scheme {
            scheme: quoted(&format!("{scheme}:")),
            nearest: nearest(scheme, schemes()),
        })
    }
}

/// All that may stand before the colon.
fn schemes() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name).chain(url::SCHEMES.iter().map(|(name, _)| *name))
}

impl fmt::Display for SourceUri {
    /// As `FromStr` reads it, which does not know the program's own source; logins are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, repeat, part } => {
                let part = match part {
                    FilePart::First => None,
                    FilePart::Sound => Some("sound".to_owned()),
                    FilePart::L16 => Some("l16".to_owned()),
                    FilePart::Encoded(rate) => Some(format!("encode={rate}")),
                };
                let repeat = repeat.then(|| "loop".to_owned());
                let options: Vec<_> = part.into_iter().chain(repeat).collect();
                let mark = if options.is_empty() { "" } else { "?" };
                write!(f, "file:{path}{mark}{}", options.join("&"))
            }
            Self::Test(what) => write!(f, "test:{what}"),
            Self::Rtp { listen, encoding, clock, payload_type, from: _ } => {
                write!(f, "rtp://{listen}?encoding={encoding}&clock={clock}")?;
                payload_type.map_or(Ok(()), |pt| write!(f, "&pt={pt}"))
            }
            Self::Sdp { path, from: _ } => write!(f, "sdp:{path}"),
            Self::Network(url) => write!(f, "{url}"),
            Self::Camera(device) => write!(f, "camera:{device}"),
            Self::Record { path, encoding, repeat } => {
                let repeat = if *repeat { "&loop" } else { "" };
                write!(f, "record:{path}?encoding={encoding}{repeat}")
            }
            Self::Bond { bond, stream: None } => write!(f, "bond:{bond}"),
            Self::Bond { bond, stream: Some(stream) } => write!(f, "bond:{bond}/{stream}"),
            Self::Launch { line, bitrate: _ } => write!(f, "launch:{}", redacted(line)),
            Self::Tunnel(device) => write!(f, "tunnel:{device}"),
            Self::Shared { path, encoding, bitrate } => {
                write!(f, "shm:{path}?encoding={encoding}")?;
                bitrate.map_or(Ok(()), |rate| write!(f, "&bitrate={rate}"))
            }
            Self::Streamlets => f.write_str("its streamlets"),
            Self::Program => f.write_str("the program"),
        }
    }
}

/// An option: its name, which values it takes, and what to write instead of others.
pub(super) type Choice = (&'static str, fn(&str) -> bool, &'static str);

const LOOP: Choice = ("loop", str::is_empty, "loop alone");
const FILE: [Choice; 4] = [
    LOOP,
    ("sound", str::is_empty, "sound alone"),
    ("l16", str::is_empty, "l16 alone"),
    (
        "encode",
        |rate| rate.parse().is_ok_and(|rate| ENCODED.contains(&rate)),
        "encode=50 kbit/s to encode=200 Mbit/s",
    ),
];
/// The rates at which a file may be encoded anew.
const ENCODED: RangeInclusive<Bitrate> = Bitrate::from_kbps(50)..=Bitrate::from_mbps(200);
const RATE: Choice =
    ("rate", |rate| in_range(rate, 1, 240), "rate=1 to rate=240, in frames per second");
const SIZE: Choice = (
    "size",
    |size| size.split_once('x').is_some_and(|(w, h)| is_even(w) && is_even(h)),
    "size=WxH with even numbers of 16 to 4096, such as size=320x240",
);
const ENCODING: Choice = (
    "encoding",
    |name| ["H264", "H265", "VP8", "VP9", "MPV", "JPEG", "L16"].contains(&name),
    "encoding=H264, H265, VP8, VP9, MPV, JPEG or L16",
);
const SHARED: [Choice; 2] = [
    (
        "encoding",
        |name| ["H264", "H265", "VP8", "VP9", "AV1", "JPEG", "opus"].contains(&name),
        "encoding=H264, H265, VP8, VP9, AV1, JPEG or opus",
    ),
    (
        "bitrate",
        |rate| rate.parse().is_ok_and(|rate| ENCODED.contains(&rate)),
        "bitrate=50 kbit/s to bitrate=200 Mbit/s",
    ),
];
const RTP: [Choice; 3] = [
    ENCODING,
    ("clock", |clock| in_range(clock, 8_000, 192_000), "clock=8000 to clock=192000, in Hz"),
    ("pt", |pt| in_range(pt, 0, 127), "pt=0 to pt=127"),
];

/// The options given after `?`, by name.
struct Given<'t>(Vec<(&'t str, &'t str, &'t str)>);

impl<'t> Given<'t> {
    /// Options that are among these choices; `known` lists those that there are.
    fn new(text: &'t str, choices: &[Choice], known: &'static str) -> Result<Self, SourceError> {
        let given = options(text)?;
        for (name, value, option) in &given {
            let option = || quoted(option);
            let choice = choices.iter().find(|(choice, ..)| choice == name);
            let (_, fits, instead) =
                choice.ok_or_else(|| SourceError::Option { option: option(), known })?;
            if !fits(value) {
                return Err(SourceError::Value { option: option(), instead });
            }
        }
        Ok(Self(given))
    }

    fn get(&self, name: &str) -> Option<&'t str> {
        self.0.iter().find(|(other, ..)| *other == name).map(|(_, value, _)| *value)
    }
}

/// A path, which ends where options begin.
fn path<'t>(text: &str, rest: &'t str, example: &'static str) -> Result<&'t str, SourceError> {
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    let wrong = path.is_empty() || path.contains(char::is_control);
    if wrong { Err(SourceError::Empty(quoted(text), example)) } else { Ok(path) }
}

fn file(text: &str, rest: &str) -> Result<SourceUri, SourceError> {
    let path = path(text, rest, "file:clips/lecture.mp4")?.to_owned();
    let known = "write ?loop, and one of ?sound, ?l16 or ?encode=2 Mbit/s; a path cannot hold a question mark";
    let given = Given::new(rest, &FILE, known)?;
    let parts = ["sound", "l16", "encode"];
    let mut parts = parts.into_iter().filter_map(|name| Some((name, given.get(name)?)));
    let part = match parts.next() {
        Some(("sound", _)) => FilePart::Sound,
        Some(("l16", _)) => FilePart::L16,
        Some((_, rate)) => FilePart::Encoded(rate.parse().unwrap_or(*ENCODED.start())),
        None => FilePart::First,
    };
    if let Some((other, _)) = parts.next() {
        return Err(SourceError::Option { option: quoted(other), known });
    }
    Ok(SourceUri::File { path, repeat: given.get("loop").is_some(), part })
}

fn test(rest: &str) -> Result<SourceUri, SourceError> {
    let (signal, _) = rest.split_once('?').unwrap_or((rest, ""));
    let (choices, known) = match signal {
        "video" | "mpeg2" | "jpeg" => ([RATE, SIZE].as_slice(), "use rate or size"),
        "audio" => ([RATE].as_slice(), "there is rate"),
        _ => return Err(SourceError::Test(quoted(signal))),
    };
    Given::new(rest, choices, known)?;
    Ok(SourceUri::Test(rest.to_owned()))
}

fn rtp(text: &str) -> Result<SourceUri, SourceError> {
    let (location, _) = text.split_once('?').unwrap_or((text, ""));
    let listen: SocketAddr = address::listen(location)?;
    let given = Given::new(text, &RTP, "use encoding, clock or pt")?;
    let encoding = given.get("encoding").ok_or(SourceError::NoEncoding)?.to_owned();
    let clock = match (encoding.as_str(), given.get("clock").and_then(|clock| clock.parse().ok())) {
        // RFC 3551, payload types 10 and 11.
        ("L16", clock) => clock.unwrap_or(44_100),
        (_, None | Some(90_000)) => 90_000,
        (_, Some(clock)) => {
            let option = quoted(&format!("clock={clock}"));
            return Err(SourceError::Value { option, instead: "clock=90000: all video has it" });
        }
    };
    let payload_type = given.get("pt").and_then(|pt| pt.parse().ok());
    Ok(SourceUri::Rtp { listen, encoding, clock, payload_type, from: None })
}

fn sdp(text: &str, rest: &str) -> Result<SourceUri, SourceError> {
    if rest.is_empty() || rest.contains(char::is_control) {
        return Err(SourceError::Empty(quoted(text), "sdp:camera.sdp"));
    }
    Ok(SourceUri::Sdp { path: rest.to_owned(), from: None })
}

fn bond(text: &str, rest: &str) -> Result<SourceUri, SourceError> {
    let (bond, stream) = match rest.split_once('/') {
        Some((bond, stream)) => (bond, Some(stream)),
        None => (rest, None),
    };
    let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_control);
    if !is_name(bond) || !stream.is_none_or(is_name) {
        return Err(SourceError::Empty(quoted(text), "bond:van or bond:van/lecture"));
    }
    Ok(SourceUri::Bond { bond: bond.to_owned(), stream: stream.map(str::to_owned) })
}

fn launch(text: &str, line: &str) -> Result<SourceUri, SourceError> {
    if line.trim().is_empty() || line.contains('\0') {
        return Err(SourceError::Empty(quoted(text), "launch:v4l2src ! x264enc ! h264parse"));
    }
    Ok(SourceUri::Launch { line: line.to_owned(), bitrate: None })
}

fn camera(device: &str) -> Result<SourceUri, SourceError> {
    if !device.starts_with('/') || device.contains(char::is_control) {
        return Err(SourceError::Device(quoted(device)));
    }
    Ok(SourceUri::Camera(device.to_owned()))
}

fn record(text: &str, rest: &str) -> Result<SourceUri, SourceError> {
    let path = path(text, rest, "record:lecture.rtpdump?encoding=H264")?.to_owned();
    let known = "use encoding=H264 and loop; a path cannot hold a question mark";
    let given = Given::new(rest, &[ENCODING, LOOP], known)?;
    let encoding = given.get("encoding").ok_or(SourceError::NoRecordEncoding)?.to_owned();
    Ok(SourceUri::Record { path, encoding, repeat: given.get("loop").is_some() })
}

fn shared(text: &str, rest: &str) -> Result<SourceUri, SourceError> {
    let path = path(text, rest, "shm:/run/selvedge/cam.sock?encoding=H264")?.to_owned();
    let known = "use encoding=H264 and bitrate=4 Mbit/s; a path cannot hold a question mark";
    let given = Given::new(rest, &SHARED, known)?;
    let encoding = given.get("encoding").ok_or(SourceError::NoSharedEncoding)?.to_owned();
    let bitrate = given.get("bitrate").and_then(|rate| rate.parse().ok());
    Ok(SourceUri::Shared { path, encoding, bitrate })
}

/// The options after `?`: names, values, and both as they are written.
pub(super) fn options(text: &str) -> Result<Vec<(&str, &str, &str)>, SourceError> {
    let Some((_, all)) = text.split_once('?') else { return Ok(Vec::new()) };
    let mut options: Vec<(&str, &str, &str)> = Vec::new();
    for option in all.split('&') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if options.iter().any(|&(other, ..)| other == name) {
            return Err(SourceError::Twice(quoted(name)));
        }
        options.push((name, value, option));
    }
    Ok(options)
}

pub(super) fn in_range(value: &str, least: u32, most: u32) -> bool {
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    digits && value.parse().is_ok_and(|n: u32| (least..=most).contains(&n))
}

fn is_even(value: &str) -> bool {
    in_range(value, 16, 4096) && value.ends_with(['0', '2', '4', '6', '8'])
}

fn meant(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean \"{nearest}:\"?"),
        None => {
            let all: Vec<String> = schemes().map(|name| format!("{name}:")).collect();
            format!("use one of {}", all.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_and_prints_alike() {
        for text in [
            "file:clips/lecture.mp4",
            "file:/srv/a b.ts?loop",
            "file:a.mp4?sound&loop",
            "file:a.mp3?l16",
            "file:a.mp4?encode=2500 kbit/s&loop",
            "test:video",
            "test:mpeg2?rate=25&size=320x240",
            "test:audio?rate=50",
            "rtp://127.0.0.1:5004?encoding=H264&clock=90000&pt=96",
            "rtp://[::]:5004?encoding=L16&clock=16000",
            "sdp:camera.sdp",
            "rtsp://cam.example:8554/1?channel=2",
            "srt://:9000?mode=listener&latency=50",
            "rtmp://cam.example/live/key",
            "udp://239.1.2.3:1234",
            "camera:/dev/video0",
            "bond:van",
            "bond:van/lecture",
            "launch:videotestsrc ! x264enc ! h264parse",
        ] {
            let source: SourceUri = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(source.to_string(), text);
        }
    }

    #[test]
    fn the_clock_follows_from_the_encoding() {
        let clock = |text: &str| match text.parse() {
            Ok(SourceUri::Rtp { clock, .. }) => clock,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(clock("rtp://127.0.0.1:5004?encoding=MPV"), 90_000);
        assert_eq!(clock("rtp://127.0.0.1:5004?encoding=L16"), 44_100);
    }

    #[test]
    fn a_bad_source_says_what_to_write() {
        for (text, part) in [
            ("clips/a.mp4", "write file: before a path"),
            ("/srv/a:b.mp4", "write file: before a path"),
            ("", "does not say what kind"),
            ("fiel:a.mp4", "did you mean \"file:\"?"),
            ("http://a/b", "use one of file:, test:"),
            ("file:", "incomplete"),
            ("file:a\0b", "control characters"),
            ("file:a.mp4?lop", "write ?loop"),
            ("file:a.mp4?", "write ?loop"),
            ("file:a.mp4?encode", "write encode=50 kbit/s to encode=200 Mbit/s"),
            ("file:a.mp4?encode=49 kbit/s", "write encode=50 kbit/s to"),
            ("file:a.mp4?encode=2 Mbit/s&sound", "and one of ?sound"),
            ("test:bars", "is not a test signal"),
            ("test:video?rate=0", "rate=1 to rate=240"),
            ("test:video?rate=+5", "rate=1 to rate=240"),
            ("test:video?size=321x240", "even numbers"),
            ("test:audio?size=320x240", "there is rate"),
            ("test:video?rate=5&rate=6", "given twice"),
            ("test:video?", "use rate or size"),
            ("rtp://127.0.0.1:5004", "encoding is missing"),
            ("rtp://127.0.0.1:5004?encoding=AV1", "MPV, JPEG or L16"),
            ("rtp://127.0.0.1:5004?encoding=H264&clock=8000", "clock=90000"),
            ("rtp://127.0.0.1:5004?encoding=H264&pt=128", "pt=127"),
            ("rtp://here:5004?encoding=H264", "numeric host"),
            ("sdp:", "incomplete"),
            ("rtsq://cam/1", "did you mean \"rtsp:\"?"),
            ("udp://here:1", "a numeric one"),
            ("camera:video0", "camera:/dev/video0"),
            ("launch: ", "incomplete"),
            ("bond:van/", "incomplete"),
            ("record:?encoding=H264", "incomplete"),
            ("record:x.rtpdump", "encoding is missing"),
            ("record:x.rtpdump?encoding=H266", "will not do"),
            ("record:x.rtpdump?encoding=H264&fast", "is not an option"),
        ] {
            let error = text.parse::<SourceUri>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
        let long = format!("launch:{}", "a".repeat(5000));
        assert_eq!(long.parse::<SourceUri>(), Err(SourceError::TooLong(5007)));
    }
}

//! `to`: where a stream goes. The engine itself sends to the numeric address of one RTP receiver; any
//! other address is a [`Destination`], to which an output carries packets: one line here and one in
//! `media/src/output/`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use super::address::{AddressError, receiver, receiver_at};
use super::source::{Choice, in_range, options};
use super::{LinkConfig, Placement, SourceUri, StreamConfig, Url, UrlError, quoted, redacted};

/// The receiver in the spec of a stream whose output has no numeric address.
const NONE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// A kind of output as node files write it.
struct Kind {
    scheme: &'static str,
    example: &'static str,
    options: &'static [Choice],
}

/// The kinds, one a line.
const KINDS: [Kind; 7] = [
    Kind { scheme: "rtp", example: "rtp://studio.example:5004", options: &GROUP },
    Kind { scheme: "udp", example: "udp://192.0.2.7:1234", options: &GROUP },
    Kind { scheme: "srt", example: "srt://192.0.2.7:9000?mode=caller", options: &SRT },
    Kind { scheme: "rtsp", example: SERVED, options: &[] },
    Kind { scheme: "rtmp", example: "rtmp://live.example/app/KEY", options: &[] },
    Kind { scheme: "rtmps", example: "rtmps://live.example/app/KEY", options: &[] },
    Kind { scheme: "file", example: "file:NAME.mkv", options: &[] },
];

/// An address at which players ask for a stream.
const SERVED: &str = "rtsp://0.0.0.0:8554/NAME";

/// Options of the kinds that can send to a group.
const GROUP: [Choice; 2] = [
    ("ttl", |ttl| in_range(ttl, 1, 255), "ttl=1 to ttl=255"),
    ("interface", is_device, "a device's name, such as interface=eth0"),
];

/// Options of SRT.
const SRT: [Choice; 5] = [
    ("mode", |mode| ["caller", "listener"].contains(&mode), "mode=caller or mode=listener"),
    ("latency", |latency| in_range(latency, 20, 60_000), "latency=20 to latency=60000, in ms"),
    ("passphrase", |phrase| (10..=79).contains(&phrase.len()), "10 to 79 characters"),
    ("pbkeylen", |length| ["16", "24", "32"].contains(&length), "pbkeylen=16, 24 or 32"),
    ("streamid", |id| (1..=512).contains(&id.len()), "1 to 512 characters"),
];

/// Why a text does not name a place where a stream can go, or why the stream can't go there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Not an address of its kind.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No stream key.
    #[error("{0} names no application and stream key; write such as \"{1}\"")]
    Key(String, &'static str),
    /// Players could not name the stream.
    #[error(
        "{0} is no address at which players can ask for the stream; write such as \"{SERVED}\", with a numeric \
         host, a port, a name of letters, digits, -, _, . and /, and USER:PASSWORD@ in front of the host or no login"
    )]
    Served(String),
    /// A recording in an unknown container.
    #[error("{0} is not a recording; write \"file:NAME.mkv\", or \"file:NAME.mp4\"")]
    Container(String),
    /// Not the path of a socket.
    #[error("{0} is no path of a socket; write such as \"shm:/run/selvedge/view.sock\"")]
    Socket(String),
    /// Unknown, or given twice.
    #[error("{option} is not an option here, or given twice; for {scheme}:// there is {known}")]
    Option {
        /// The option, quoted.
        option: String,
        /// The kind of output.
        scheme: &'static str,
        /// The options that are known.
        known: String,
    },
    /// An option with a wrong value. The value is not repeated: it may be a secret.
    #[error("the value of \"{option}\" will not do; write {instead}")]
    Value {
        /// The option's name.
        option: &'static str,
        /// The values that it may have.
        instead: &'static str,
    },
    /// A key of the stream or of its link does not go with an output.
    #[error("{to} {why}")]
    Conflict {
        /// The stream's destination.
        to: String,
        /// The reason, and what to write.
        why: &'static str,
    },
}

/// Where an output carries a stream's packets. Printed, it is without secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Destination(Place);

#[derive(Clone, PartialEq, Eq)]
enum Place {
    Url(Url),
    /// The same, and the text that replaces its stream key where it is printed.
    Keyed(Url, String),
    File(String),
    /// The path of a socket for viewers.
    Shared(String),
}

impl Destination {
    /// The kind of output, such as `rtp`.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        match &self.0 {
            Place::Url(url) | Place::Keyed(url, _) => url.scheme(),
            Place::File(_) => "file",
            Place::Shared(_) => "shm",
        }
    }

    const fn url(&self) -> Option<&Url> {
        match &self.0 {
            Place::Url(url) | Place::Keyed(url, _) => Some(url),
            Place::File(_) | Place::Shared(_) => None,
        }
    }

    /// The file of a recording, or the socket for viewers.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match &self.0 {
            Place::File(path) | Place::Shared(path) => Some(path),
            _ => None,
        }
    }

    /// The same with a relative path of the file resolved in this folder.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> Self {
        match self.0 {
            Place::File(path) => {
                Self(Place::File(folder.join(path).to_string_lossy().into_owned()))
            }
            Place::Shared(path) => {
                Self(Place::Shared(folder.join(path).to_string_lossy().into_owned()))
            }
            _ => self,
        }
    }

    /// The whole address with its secrets, for the code that connects. Nothing of it may be printed.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.url().map_or("", Url::reveal)
    }

    /// The text that `***` replaces where an address with a stream key is printed.
    #[must_use]
    pub fn secret(&self) -> &str {
        match &self.0 {
            Place::Keyed(url, shown) => &url.reveal()[shown.len() - HIDDEN.len()..],
            _ => "",
        }
    }

    /// The host, by name or address; empty for an output that waits for callers.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url().map_or("", |url| url.host_port().0)
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.url().and_then(|url| url.host_port().1?.parse().ok()).unwrap_or(0)
    }

    /// The name by which players ask a server for the stream.
    #[must_use]
    pub fn mount(&self) -> &str {
        self.url().map_or("", |url| url.path().trim_matches('/'))
    }

    /// The user and password that players must know. Nothing of it may be printed.
    #[must_use]
    pub fn login(&self) -> Option<(String, String)> {
        self.url()?.login()
    }

    /// Whether the packets that it takes are the RTP of the streams' own encodings.
    #[must_use]
    pub const fn takes_rtp(&self) -> bool {
        matches!(self.scheme().as_bytes(), b"rtp" | b"rtsp")
    }

    /// The value of an option. It may be a secret.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<String> {
        self.url()?.option(name)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Url(url) => url.fmt(f),
            Place::Keyed(_, shown) => f.write_str(&redacted(shown)),
            Place::File(path) => write!(f, "file:{path}"),
            Place::Shared(path) => write!(f, "shm:{path}"),
        }
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({self})")
    }
}

/// Printed in place of a stream key.
const HIDDEN: &str = "***";

/// Reads the address of a server that takes streams by their keys; no error repeats the key.
fn keyed(text: &str, kind: &Kind) -> Result<Destination, DestinationError> {
    let place = kind.scheme.len() + 3;
    // The key follows the application, which may have secrets of its own after a `?`.
    let mut parts = text[place..].match_indices(['/', '?']).map(|(at, _)| place + at);
    let (host_end, app_end) = (parts.next(), parts.next());
    let key_from = app_end.or(host_end).map_or(text.len(), |at| at + 1);
    let shown = format!("{}{HIDDEN}", &text[..key_from]);
    Url::parse(&shown, (kind.scheme, kind.example))?;
    if key_from == text.len() || app_end.is_none_or(|end| host_end.is_some_and(|at| end == at + 1))
    {
        return Err(DestinationError::Key(quoted(&redacted(&shown)), kind.example));
    }
    let url = Url::parse(text, (kind.scheme, kind.example))
        .map_err(|_secret| UrlError::Character(quoted(&redacted(&shown))))?;
    Ok(Destination(Place::Keyed(url, shown)))
}

/// Reads the address at which this host serves a stream.
fn served(text: &str, kind: &Kind) -> Result<Destination, DestinationError> {
    // A login with characters that an address can't hold is not shown in part either.
    let shown =
        text.rsplit_once('@').map(|(_, place)| format!("{}://{HIDDEN}@{place}", kind.scheme));
    let wrong = || DestinationError::Served(quoted(shown.as_deref().unwrap_or(text)));
    let url = Url::parse(text, (kind.scheme, kind.example)).map_err(|_secret| wrong())?;
    let to = Destination(Place::Url(url));
    let is_named = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let mount = to.mount();
    let fits = to.host().parse::<IpAddr>().is_ok_and(|host| !host.is_multicast())
        && to.port() > 0
        && (1..=128).contains(&mount.len())
        && text.ends_with(mount)
        && mount.chars().all(is_named)
        && to.login().is_none_or(|(user, password)| !user.is_empty() && !password.is_empty());
    if fits { Ok(to) } else { Err(wrong()) }
}

/// Reads `to`: the receiver of RTP packets that the engine sends itself; and the destination, if an
/// output carries the packets.
pub(super) fn read(text: &str) -> Result<(SocketAddr, Option<Destination>), DestinationError> {
    if let Some(path) = text.strip_prefix("file:") {
        let stem = path.strip_suffix(".mkv").or_else(|| path.strip_suffix(".mp4"));
        let named = stem.is_some_and(|stem| !stem.is_empty() && !stem.ends_with('/'));
        let recording = named.then(|| (NONE, Some(Destination(Place::File(path.to_owned())))));
        return recording.ok_or_else(|| DestinationError::Container(quoted(text)));
    }
    if let Some(path) = text.strip_prefix("shm:") {
        let is_path = !path.is_empty() && !path.contains(|c: char| c == '?' || c.is_control());
        let viewers = is_path.then(|| (NONE, Some(Destination(Place::Shared(path.to_owned())))));
        return viewers.ok_or_else(|| DestinationError::Socket(quoted(text)));
    }
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    let Some(kind) = KINDS.iter().find(|kind| kind.scheme == scheme) else {
        return Ok((receiver(text)?, None));
    };
    if scheme.starts_with("rtmp") {
        return Ok((NONE, Some(keyed(text, kind)?)));
    }
    if scheme == "rtsp" {
        return Ok((NONE, Some(served(text, kind)?)));
    }
    let place = text.split_once('?').map_or(text, |(place, _)| place);
    let waits = || options(text).is_ok_and(|all| all.iter().any(|o| o.2 == "mode=listener"));
    let host_port = &place[scheme.len() + 3..];
    let address = match receiver_at(text, host_port) {
        Ok(address) if scheme == "rtp" && place == text => return Ok((address, None)),
        Ok(address) => address,
        // Not being a numeric address of one host is no mistake here.
        Err(AddressError::NamedHost(_) | AddressError::Malformed(_)) => NONE,
        Err(AddressError::Multicast(_)) => host_port.parse().unwrap_or(NONE),
        // An output that waits for callers need not name an address of the host.
        Err(AddressError::Unspecified(_)) if waits() => NONE,
        Err(error) => return Err(error.into()),
    };
    let url = Url::parse(text, (kind.scheme, kind.example))?;
    if url.host_port().0.is_empty() && !waits() {
        return Err(UrlError::Host(quoted(text), kind.example).into());
    }
    kind.check_options(text)?;
    Ok((address, Some(Destination(Place::Url(url)))))
}

impl Kind {
    fn check_options(&self, text: &str) -> Result<(), DestinationError> {
        let unknown = |option: &str| {
            let known: Vec<&str> = self.options.iter().map(|(name, ..)| *name).collect();
            let known = known.join(", ");
            DestinationError::Option { option: quoted(option), scheme: self.scheme, known }
        };
        let given = options(text).map_err(|_twice| unknown("?"))?;
        for (name, value, _) in given {
            let known = self.options.iter().find(|(option, ..)| *option == name);
            let &(option, fits, instead) = known.ok_or_else(|| unknown(name))?;
            if !fits(value) {
                return Err(DestinationError::Value { option, instead });
            }
        }
        Ok(())
    }
}

/// Why a stream's output can't carry it on this link, if so; and the key that is to blame.
pub(super) fn find_conflict(
    stream: &StreamConfig,
    link: &LinkConfig,
) -> Option<(&'static str, DestinationError)> {
    let to = stream.output.as_ref()?;
    let (key, why) = match stream {
        _ if link.placement != Placement::Inline => (
            "to",
            "is sent by the node itself; write placement = \"inline\" for its link, or an address",
        ),
        StreamConfig { stack: Some(_), .. } => {
            ("to", "is no end of a stack; write stack = \"none\", or a numeric RTP address")
        }
        StreamConfig { sdp: Some(_), .. } if to.scheme() == "rtsp" => {
            ("sdp", "describes itself to each player; leave sdp out")
        }
        StreamConfig { sdp: Some(_), .. } if to.scheme() != "rtp" => {
            ("sdp", "does not get RTP; leave sdp out")
        }
        StreamConfig { sdp: Some(_), .. } if stream.spec.to == NONE => {
            ("sdp", "is a name, which SDP files don't tell; write the address, or leave sdp out")
        }
        StreamConfig { source: SourceUri::Record { .. } | SourceUri::Bond { .. }, .. }
            if !to.takes_rtp() =>
        {
            ("source", "does not get RTP, as recordings and bonds bring it; write another source")
        }
        _ => return None,
    };
    Some((key, DestinationError::Conflict { to: to.to_string(), why }))
}

/// Whether Linux may have a device of this name.
fn is_device(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=15).contains(&name.len()) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str) -> Destination {
        read(text).unwrap_or_else(|e| panic!("{text}: {e}")).1.expect("an output")
    }

    #[test]
    fn one_numeric_receiver_of_rtp_is_the_engines() {
        for text in ["rtp://127.0.0.1:5004", "rtp://[::1]:5004"] {
            let (address, output) = read(text).unwrap();
            assert_eq!((format!("rtp://{address}"), output), (text.to_owned(), None));
        }
    }

    #[test]
    fn names_and_groups_are_carried() {
        for (text, host, port) in [
            ("rtp://studio.example:5004", "studio.example", 5004),
            ("rtp://239.1.2.3:5004?ttl=4&interface=eth0", "239.1.2.3", 5004),
            ("rtp://[ff02::5]:9", "ff02::5", 9),
            ("rtp://10.0.0.1:9?interface=eth1.7", "10.0.0.1", 9),
            ("udp://10.0.0.1:9", "10.0.0.1", 9),
            ("srt://10.0.0.1:9?latency=200&pbkeylen=16", "10.0.0.1", 9),
            ("srt://:9?mode=listener", "", 9),
            ("srt://0.0.0.0:9?mode=listener", "0.0.0.0", 9),
        ] {
            let to = output(text);
            assert_eq!((to.host(), to.port(), to.to_string().as_str()), (host, port, text));
        }
        let group = output("rtp://239.1.2.3:5004?ttl=4&interface=eth0");
        assert_eq!(group.option("ttl").as_deref(), Some("4"));
        assert_eq!(group.option("other"), None);
        let secret = output("srt://a:9?passphrase=0123456789%61&streamid=publish:me");
        assert_eq!(secret.option("passphrase").as_deref(), Some("0123456789a"));
        assert_eq!(format!("{secret}"), "srt://a:9?passphrase=***&streamid=***");
        assert!(!format!("{secret:?}").contains("0123456789"));
    }

    #[test]
    fn what_does_not_go_with_an_output_is_said() {
        let errors = |link: &str, source: &str, to: &str, more: &str| {
            let link = format!("[link.up]\nrate = \"6 Mbit/s\"\n{link}\n");
            let text = format!("{link}[stream.a]\nsource = \"{source}\"\nto = \"{to}\"\n{more}\n");
            crate::parse(&text, "a.toml")
                .map_or_else(|errors| errors.to_string(), |_| String::new())
        };
        let (name, group, udp) = ("rtp://studio:9", "rtp://239.1.1.1:9", "udp://127.0.0.1:9");
        let sdp = "sdp = \"a.sdp\"";
        let stack = "stack = \"ui | unreliable | frag(1400) | net\"";
        assert_eq!(errors("", "test:video", group, sdp), "");
        for (found, part) in [
            (errors("placement = \"coprocessor\"", "test:video", name, ""), "by the node itself"),
            (errors("", "test:video", name, stack), "is no end of a stack"),
            (errors("", "test:video", name, sdp), "is a name"),
            (errors("", "test:video", udp, sdp), "leave sdp out"),
            (errors("", "record:x?encoding=H264", udp, ""), "as recordings and bonds"),
        ] {
            assert!(found.contains(part), "{found}");
        }
    }

    #[test]
    fn a_picture_and_a_sound_of_one_link_share_an_output() {
        let file = |streams: &[(&str, &str)]| {
            let streams = streams.iter().enumerate().map(|(n, (link, to))| {
                format!(
                    "[stream.s{n}]\nlink = \"{link}\"\nsource = \"test:video\"\nto = \"{to}\"\n"
                )
            });
            let links = ["a", "b"].map(|name| format!("[link.{name}]\nrate = \"6 Mbit/s\"\n"));
            crate::parse(&(links.concat() + &streams.collect::<String>()), "a.toml")
        };
        let (key, other) = ("rtmp://a/live/hush", "rtmp://a/live/hush-other");
        let shared = file(&[("a", key), ("a", key), ("a", other), ("b", "file:x.mkv")]).unwrap();
        let streams = shared.config.streams;
        let with = |n: usize| streams.iter().filter(|s| streams[n].shares_output(s)).count();
        assert_eq!([0, 1, 2, 3].map(with), [1, 1, 0, 0]);
        for (streams, part) in [
            (
                vec![("a", key), ("b", key)],
                "a.toml:12:6: stream.s1.to: rtmp://a/live/*** is sent to by stream \"s0\", too (line 8), over another link",
            ),
            (vec![("a", key), ("a", key), ("a", key)], "one picture and one sound"),
            (vec![("a", "rtp://studio:9"), ("a", "rtp://studio:9")], "give each stream its own"),
            (
                vec![("a", "rtp://10.0.0.1:9"), ("a", "rtp://10.0.0.1:9")],
                "give each stream its own",
            ),
        ] {
            let errors = file(&streams).expect_err(part).to_string();
            assert!(errors.contains(part) && !errors.contains("hush"), "{errors}");
        }
    }

    #[test]
    fn a_served_stream_has_a_name_and_may_have_a_login() {
        let to = output("rtsp://me:p%40ss@0.0.0.0:8554/studio/cam-1");
        assert_eq!((to.host(), to.port(), to.mount()), ("0.0.0.0", 8554, "studio/cam-1"));
        assert_eq!(to.login(), Some(("me".into(), "p@ss".into())));
        assert_eq!(to.to_string(), "rtsp://***@0.0.0.0:8554/studio/cam-1");
        let open = output("rtsp://[::]:8554/cam");
        assert_eq!((open.mount(), open.login()), ("cam", None));
    }

    #[test]
    fn stream_keys_are_shown_nowhere() {
        for (text, shown) in [
            ("rtmp://a.example/live2/hush-1234", "rtmp://a.example/live2/***"),
            ("rtmps://me:word@a:443/live/x/hush?k=1", "rtmps://***@a:443/live/***"),
            ("rtmp://[::1]:1935/live?hush=1/key", "rtmp://[::1]:1935/live?***"),
        ] {
            let to = output(text);
            assert_eq!((to.to_string(), to.reveal()), (shown.to_owned(), text));
            assert!(text.ends_with(to.secret()) && to.secret().contains("hush"), "{text}");
            assert!(!format!("{to:?}").contains("hush"), "{to:?}");
        }
    }

    #[test]
    fn a_recording_is_a_file_beside_the_node_file() {
        let to = output("file:kept/day.mkv");
        assert_eq!((to.scheme(), to.path(), to.host()), ("file", Some("kept/day.mkv"), ""));
        assert_eq!(to.in_folder(Path::new("/a")).path(), Some("/a/kept/day.mkv"));
        assert_eq!(output("file:/b/day.mp4").in_folder(Path::new("/a")).path(), Some("/b/day.mp4"));
    }

    #[test]
    fn what_is_no_destination_says_what_to_write() {
        for (text, part) in [
            ("127.0.0.1:5004", "write \"rtp://HOST:PORT\""),
            ("rtp://studio.example", "no port of 1 to 65535"),
            ("rtp://studio.example:70000", "no port of 1 to 65535"),
            ("rtp://255.255.255.255:9", "broadcast"),
            ("rtp://0.0.0.0:9?ttl=1", "no host's address"),
            ("rtp://239.1.1.1:9?ttl=0", "ttl=1 to ttl=255"),
            ("rtp://239.1.1.1:9?ttl=1&ttl=2", "given twice"),
            ("rtp://239.1.1.1:9?interface=an/other", "interface=eth0"),
            ("rtp://239.1.1.1:9?hops=2", "there is ttl, interface"),
            ("udp://:9", "names no host"),
            ("srt://:9", "names no host"),
            ("srt://a", "no port of 1 to 65535"),
            ("srt://a:9?mode=rendezvous", "mode=caller or mode=listener"),
            ("srt://a:9?passphrase=hush-hush", "10 to 79 characters"),
            ("rtmp://a", "application and stream key"),
            ("rtmp://a/hush", "application and stream key"),
            ("rtmp://a/live/", "application and stream key"),
            ("rtmp:///live/hush", "names no host"),
            ("rtmp://a:0/live/hush", "port of 1 to 65535"),
            ("rtmp://a/live/hush hush", "characters that an address can't"),
            ("rtsp://0.0.0.0/cam", "with a numeric host, a port"),
            ("rtsp://0.0.0.0:8554", "no address at which players"),
            ("rtsp://0.0.0.0:8554/", "no address at which players"),
            ("rtsp://0.0.0.0:8554/cam/", "no address at which players"),
            ("rtsp://0.0.0.0:8554/cam?x=1", "no address at which players"),
            ("rtsp://studio:8554/cam", "with a numeric host"),
            ("rtsp://239.1.1.1:8554/cam", "with a numeric host"),
            ("rtsp://hush:hu sh@0.0.0.0:8554/cam", "rtsp://***@0.0.0.0"),
            ("rtsp://hush@0.0.0.0:8554/cam", "or no login"),
            ("file:day.avi", "write \"file:NAME.mkv\""),
            ("file:.mp4", "write \"file:NAME.mkv\""),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}

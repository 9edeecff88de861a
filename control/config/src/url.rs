//! Addresses of sources in the network, `SCHEME://[LOGIN@]HOST[:PORT][/PATH]`, from the node file to
//! the code that connects to them. Printed, they are without their logins.

use std::fmt;

use super::{quoted, redacted};

/// The schemes that there are, each with an example for messages.
pub(super) const SCHEMES: [(&str, &str); 4] = [
    ("rtsp", "rtsp://192.0.2.7/stream1"),
    ("srt", "srt://192.0.2.7:9000?mode=caller"),
    ("rtmp", "rtmp://192.0.2.7/live/camera"),
    ("udp", "udp://0.0.0.0:1234"),
];

/// Why a text is not an address in the network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Spaces, quotes or controls.
    #[error("{0} holds characters that an address can't; write such as %20 for a space")]
    Character(String),
    /// Nothing to connect to.
    #[error("{0} names no host; write such as \"{1}\"")]
    Host(String, &'static str),
    /// No port, or none that exists.
    #[error("{0} has no port of 1 to 65535; write such as \"{1}\"")]
    Port(String, &'static str),
    /// Arriving packets need an address of this host, or of a group.
    #[error("{0} is not an address to receive at; write a numeric one, such as \"{1}\"")]
    Listen(String, &'static str),
}

/// The address of a source or an output in the network.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    text: String,
    scheme: &'static str,
}

impl Url {
    /// Reads the address of a source.
    pub(super) fn new(
        text: &str,
        (scheme, example): (&'static str, &'static str),
    ) -> Result<Self, UrlError> {
        let url = Self::parse(text, (scheme, example))?;
        match url.host_port().0.parse::<std::net::IpAddr>() {
            Err(_) if scheme == "udp" => Err(UrlError::Listen(quoted(text), example)),
            _ => Ok(url),
        }
    }

    /// Reads an address of this scheme.
    pub(super) fn parse(
        text: &str,
        (scheme, example): (&'static str, &'static str),
    ) -> Result<Self, UrlError> {
        let shown = || quoted(text);
        if text
            .contains(|c: char| c.is_whitespace() || c.is_control() || "\"'<>\\^`{|}".contains(c))
        {
            return Err(UrlError::Character(shown()));
        }
        let url = Self { text: text.to_owned(), scheme };
        if !text[scheme.len()..].starts_with("://") {
            return Err(UrlError::Host(shown(), example));
        }
        let (host, port) = url.host_port();
        let port = port.map(|port| port.parse::<u16>().ok().filter(|&port| port > 0));
        match (scheme, port) {
            // A caller has a host; a listener of SRT may leave it out.
            ("rtsp" | "rtmp" | "rtmps" | "udp" | "rtp", _) if host.is_empty() => {
                Err(UrlError::Host(shown(), example))
            }
            (_, Some(None)) | ("srt" | "udp" | "rtp", None) => {
                Err(UrlError::Port(shown(), example))
            }
            _ => Ok(url),
        }
    }

    /// The whole address, with secrets.
    pub(super) fn reveal(&self) -> &str {
        &self.text
    }

    /// `rtsp`, `srt`, `rtmp`, `rtmps`, `udp` or `rtp`.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The host without brackets, empty where any will do; and the port as it is written.
    #[must_use]
    pub fn host_port(&self) -> (&str, Option<&str>) {
        let authority = self.authority();
        let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
        match place.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        }
    }

    /// User and password, `%` sequences resolved. Nothing of it may be printed.
    #[must_use]
    pub fn login(&self) -> Option<(String, String)> {
        let (login, _) = self.authority().rsplit_once('@')?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        Some((resolved(user), resolved(password)))
    }

    /// The value of an option after `?`, `%` sequences resolved. It may be a secret.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<String> {
        let (_, options) = self.text.split_once('?')?;
        let mut pairs = options.split('&').filter_map(|option| option.split_once('='));
        pairs.find_map(|(found, value)| (found == name).then(|| resolved(value)))
    }

    /// The address without its login, for code that receives the login apart. Options may still hold
    /// secrets.
    #[must_use]
    pub fn without_login(&self) -> String {
        match self.authority().rsplit_once('@') {
            Some((login, _)) => {
                let at = self.scheme.len() + 3;
                format!("{}{}", &self.text[..at], &self.text[at + login.len() + 1..])
            }
            None => self.text.clone(),
        }
    }

    /// The path, from its first `/`; empty if there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        let rest = &self.text[self.scheme.len() + 3..];
        let place = rest.split(['?', '#']).next().unwrap_or_default();
        place.find('/').map_or("", |at| &place[at..])
    }

    fn authority(&self) -> &str {
        let rest = &self.text[self.scheme.len() + 3..];
        &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())]
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.text))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// Text whose `%` sequences stand for bytes.
fn resolved(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Url, UrlError> {
        let scheme = text.split_once(':').expect("a scheme").0;
        let known = SCHEMES.into_iter().find(|(name, _)| *name == scheme);
        Url::new(text, known.expect("a known one"))
    }

    #[test]
    fn an_address_comes_apart() {
        let url = read("rtsp://me:p%40ss@cam.example:8554/1?a=b").unwrap();
        assert_eq!(url.host_port(), ("cam.example", Some("8554")));
        assert_eq!(url.login(), Some(("me".into(), "p@ss".into())));
        assert_eq!(url.without_login(), "rtsp://cam.example:8554/1?a=b");
        assert_eq!(url.to_string(), "rtsp://***@cam.example:8554/1?a=b");
        assert_eq!(format!("{url:?}"), "Url(rtsp://***@cam.example:8554/1?a=b)");
        assert_eq!(read("udp://[ff02::5]:1234").unwrap().host_port(), ("ff02::5", Some("1234")));
        assert_eq!(read("srt://:9000?mode=listener").unwrap().host_port(), ("", Some("9000")));
        assert_eq!(read("rtmp://a/live/x").unwrap().login(), None);
    }

    #[test]
    fn what_is_no_address_says_what_to_write() {
        for (text, part) in [
            ("rtsp:cam", "names no host"),
            ("rtsp:///1", "names no host"),
            ("rtsp://me:word@/1", "names no host"),
            ("rtsp://cam:0/1", "port of 1 to 65535"),
            ("rtsp://cam:x/1", "port of 1 to 65535"),
            ("srt://cam", "port of 1 to 65535"),
            ("udp://cam:1", "a numeric one"),
            ("udp://10.0.0.1", "port of 1"),
            ("rtsp://cam/a b", "%20"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("me:word"), "{error}");
        }
    }
}

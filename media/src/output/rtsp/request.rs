//! Requests of RTSP (RFC 2326): from the bytes of a connection to what they ask for. Pure; the bytes come
//! from strangers, so that each length has a bound.

/// The longest head of a request, and the most bytes that may follow it: a body, or a packet of RTCP.
const HEAD_MAX: usize = 4096;
const BODY_MAX: usize = 8192;
/// The first byte of a packet between requests (section 10.12).
const INTERLEAVED: u8 = b'$';

/// Why the bytes of a connection are no requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("its head is longer than {HEAD_MAX} bytes, or what follows it than {BODY_MAX}")]
    TooLong,
    #[error("it is no request of RTSP/1.0")]
    Malformed,
}

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Request(Request<'a>),
    /// A packet of RTP or RTCP.
    Packet,
}

/// A request without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) uri: &'a str,
    fields: &'a str,
}

/// How a client wants the packets of one track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Datagrams to these ports of the host that the request came from, for RTP and RTCP.
    Udp { rtp: u16, rtcp: u16 },
    /// Between the responses, in these channels.
    Tcp { rtp: u8, rtcp: u8 },
}

impl<'a> Message<'a> {
    /// The first message of these bytes, and how many of them it takes; `None` if it is not all there yet.
    ///
    /// # Errors
    /// [`RequestError`]; the connection is of no further use.
    pub(super) fn first(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, RequestError> {
        if bytes.first() == Some(&INTERLEAVED) {
            let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
            let size = 4 + usize::from(u16::from_be_bytes([head[2], head[3]]));
            if size > BODY_MAX {
                return Err(RequestError::TooLong);
            }
            return Ok((bytes.len() >= size).then_some((Self::Packet, size)));
        }
        let blank = bytes.iter().take_while(|byte| b"\r\n".contains(byte)).count();
        let text = &bytes[blank..];
        let Some(end) = text.windows(4).take(HEAD_MAX).position(|four| four == b"\r\n\r\n") else {
            return if bytes.len() > HEAD_MAX { Err(RequestError::TooLong) } else { Ok(None) };
        };
        let head = std::str::from_utf8(&text[..end]).map_err(|_| RequestError::Malformed)?;
        let request = Request::new(head).ok_or(RequestError::Malformed)?;
        let body = match request.field("Content-Length").map(str::parse::<usize>) {
            None => 0,
            Some(length) => length.map_err(|_| RequestError::Malformed)?,
        };
        if body > BODY_MAX {
            return Err(RequestError::TooLong);
        }
        let size = blank + end + 4 + body;
        Ok((bytes.len() >= size).then_some((Self::Request(request), size)))
    }
}

impl<'a> Request<'a> {
    fn new(head: &'a str) -> Option<Self> {
        let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
        let mut words = line.split(' ');
        let (method, uri, version) = (words.next()?, words.next()?, words.next()?);
        let is_whole = words.next().is_none() && version == "RTSP/1.0" && !uri.is_empty();
        let is_method = (1..=16).contains(&method.len())
            && method.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
        let is_text = |line: &str| !line.contains(|c: char| c.is_control() && c != '\t');
        let is_plain = head.split("\r\n").all(is_text);
        (is_whole && is_method && is_plain).then_some(Self { method, uri, fields })
    }

    /// The value of a header field, in its first line of this name.
    pub(super) fn field(&self, name: &str) -> Option<&'a str> {
        let mut lines = self.fields.split("\r\n").filter_map(|line| line.split_once(':'));
        let found = lines.find(|(field, _)| field.trim().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// The path of its address, without slashes around it.
    pub(super) fn path(&self) -> &'a str {
        let rest = self
            .uri
            .split_once("://")
            .map_or(self.uri, |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
        rest.split('?').next().unwrap_or_default().trim_matches('/')
    }

    /// The first way of its `Transport` that is served; a client that names no channels gets these.
    pub(super) fn transport(&self, channels: (u8, u8)) -> Option<Transport> {
        let ways = self.field("Transport")?.split(',');
        ways.filter_map(|way| transport(way.trim(), channels)).next()
    }
}

/// One way of a `Transport` (section 12.39). Groups and other hosts than the client are not served.
fn transport(way: &str, channels: (u8, u8)) -> Option<Transport> {
    let mut parts = way.split(';').map(str::trim);
    let profile = parts.next()?;
    let value = |name: &str| {
        let pairs = way.split(';').filter_map(|part| part.trim().split_once('='));
        pairs.into_iter().find(|pair| pair.0 == name).map(|pair| pair.1)
    };
    let records =
        value("mode").is_some_and(|mode| !mode.trim_matches('"').eq_ignore_ascii_case("play"));
    if records || parts.any(|part| part == "multicast") {
        return None;
    }
    match profile {
        "RTP/AVP/TCP" => {
            let named = value("interleaved").map(pair::<u8>);
            let (rtp, rtcp) = named.unwrap_or(Some(channels))?;
            Some(Transport::Tcp { rtp, rtcp })
        }
        "RTP/AVP" | "RTP/AVP/UDP" => {
            let (rtp, rtcp) = pair::<u16>(value("client_port")?)?;
            (rtp > 0 && rtcp > 0).then_some(Transport::Udp { rtp, rtcp })
        }
        _ => None,
    }
}

/// `6-7`.
fn pair<T: std::str::FromStr + PartialEq>(text: &str) -> Option<(T, T)> {
    let (one, other) = text.split_once('-')?;
    let (one, other) = (one.parse().ok()?, other.parse().ok()?);
    (one != other).then_some((one, other))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn first(text: &str) -> Result<Option<(Message<'_>, usize)>, RequestError> {
        Message::first(text.as_bytes())
    }

    #[test]
    fn requests_and_packets_come_apart() {
        let text =
            "\r\nSETUP rtsp://h:1/cam/track1?x RTSP/1.0\r\nCSeq: 3\r\ncontent-length:2\r\n\r\nab$";
        let (message, size) = first(text).unwrap().unwrap();
        let Message::Request(request) = message else { panic!("{message:?}") };
        assert_eq!((request.method, request.path(), size), ("SETUP", "cam/track1", text.len() - 1));
        assert_eq!((request.field("cseq"), request.field("Session")), (Some("3"), None));
        for end in 0..text.len() - 1 {
            assert_eq!(first(&text[..end]), Ok(None), "{end}");
        }
        assert_eq!(first("$\u{1}\0\u{2}abc"), Ok(Some((Message::Packet, 6))));
        assert_eq!(first("$\u{1}\0\u{2}a"), Ok(None));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let long = |n| "a".repeat(n);
        for (text, error) in [
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), RequestError::Malformed),
            ("PLAY rtsp://h/a\r\n\r\n".to_owned(), RequestError::Malformed),
            ("play rtsp://h/a RTSP/1.0\r\n\r\n".to_owned(), RequestError::Malformed),
            ("PLAY  RTSP/1.0\r\n\r\n".to_owned(), RequestError::Malformed),
            ("PLAY a RTSP/1.0\r\nContent-Length: -1\r\n\r\n".to_owned(), RequestError::Malformed),
            ("PLAY a RTSP/1.0\r\nContent-Length: 9999\r\n\r\n".to_owned(), RequestError::TooLong),
            ("PLAY a RTSP/1.0\r\nX: \0\r\n\r\n".to_owned(), RequestError::Malformed),
            (long(HEAD_MAX + 1), RequestError::TooLong),
            ("$\u{1}\u{7f}\u{7f}".to_owned(), RequestError::TooLong),
        ] {
            assert_eq!(first(&text), Err(error), "{text:.40}");
        }
    }

    #[test]
    fn the_first_way_that_is_served_is_taken() {
        for (ways, transport) in [
            (
                "RTP/AVP;unicast;client_port=5000-5001",
                Some(Transport::Udp { rtp: 5000, rtcp: 5001 }),
            ),
            (
                "RTP/AVP/UDP;client_port=5000-5001;mode=\"PLAY\"",
                Some(Transport::Udp { rtp: 5000, rtcp: 5001 }),
            ),
            ("RTP/AVP/TCP;unicast;interleaved=4-5", Some(Transport::Tcp { rtp: 4, rtcp: 5 })),
            ("RTP/AVP/TCP;unicast", Some(Transport::Tcp { rtp: 2, rtcp: 3 })),
            (
                "RTP/AVP;multicast, RTP/AVP/TCP;interleaved=0-1",
                Some(Transport::Tcp { rtp: 0, rtcp: 1 }),
            ),
            ("RTP/AVP;unicast;client_port=5000", None),
            ("RTP/AVP;client_port=0-1", None),
            ("RTP/AVP;client_port=70000-70001", None),
            ("RTP/AVP/TCP;interleaved=4-4", None),
            ("RTP/AVP;client_port=5000-5001;mode=record", None),
            ("RTP/SAVP;client_port=5000-5001", None),
        ] {
            let fields = format!("Transport: {ways}");
            let request = Request { method: "SETUP", uri: "*", fields: &fields };
            assert_eq!(request.transport((2, 3)), transport, "{ways}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..200_usize) {
            let text = b"SETUP rtsp://h/a RTSP/1.0\r\nTransport: RTP/AVP;client_port=1-2\r\n\r\n";
            let mixed = [&text[..cut.min(text.len())], &bytes].concat();
            if let Ok(Some((message, size))) = Message::first(&mixed) {
                prop_assert!(0 < size && size <= mixed.len());
                if let Message::Request(request) = message {
                    let _ = (request.path(), request.transport((0, 1)));
                }
            }
        }
    }
}

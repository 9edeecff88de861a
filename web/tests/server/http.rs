//! One request over one TCP connection, as bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Nothing here takes this long unless the server hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The status with the error's code and field, empty where there are none.
    pub(crate) fn error(&self) -> (u16, String, String) {
        let json = self.json();
        let error = &json["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty() && !text("remedy").is_empty(), "{json}");
        (self.status, text("code"), text("field"))
    }
}

pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(server).unwrap();
    tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
    tcp
}

/// `request` is `METHOD PATH`; a Host header is added unless `headers` has one.
pub(crate) fn ask(
    server: SocketAddr,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut tcp = connect(server);
    ask_on(&mut tcp, server, request, headers, body)
}

/// The same over an existing connection, plain or by TLS.
pub(crate) fn ask_on(
    stream: &mut (impl Read + Write),
    server: SocketAddr,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut text = format!("{request} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text += &format!("Host: {server}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    // The server may answer and hang up before it has read all of a body that is too long.
    let _ = stream.write_all(text.as_bytes());
    read_answer(stream)
}

pub(crate) fn read_answer(stream: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..n]);
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status in {text:?}"));
    Answer { status, head: head.into(), body: body.into() }
}

pub(crate) fn get(server: SocketAddr, path: &str) -> Answer {
    ask(server, &format!("GET {path}"), &[], "")
}

pub(crate) fn patch(server: SocketAddr, path: &str, body: &str) -> Answer {
    ask(server, &format!("PATCH {path}"), &[], body)
}

//! As much of HTTP as a test needs: one request, one answer.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::TIMEOUT;

/// The status and the body of what `host` (an address with its port) answers.
pub(crate) fn request(host: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(host).unwrap_or_else(|e| panic!("{host}: {e}"));
    stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    let len = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .expect("the server listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server closes");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {head}")), body.to_owned())
}

/// What the node at `host` says of itself.
pub(crate) fn node(host: &str) -> Value {
    let (status, body) = request(host, "GET", "/api/v1/node", "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("the snapshot is JSON")
}

/// One stream of the node at `host`.
pub(crate) fn stream(host: &str, name: &str) -> Value {
    let (status, body) = request(host, "GET", &format!("/api/v1/streams/{name}"), "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("the snapshot is JSON")
}

//! The bytes of a connection to the server of RTSP: messages, one after the other, and what each asks for. A message does
//! not depend on what follows it, and no bytes are waited for without end.

use crate::request::{Message, Request, RequestError, Transport};

/// The longest head, and what may follow it.
const LONGEST: usize = 4_096 + 4 + 8_192;

pub(crate) fn fuzz(mut bytes: &[u8]) {
    loop {
        let found = Message::first(bytes);
        let Ok(Some((message, size))) = found else {
            let blank = bytes.iter().take_while(|byte| b"\r\n".contains(byte)).count();
            assert!(found.is_err() || bytes.len() - blank <= LONGEST, "{found:?}");
            return;
        };
        assert!((1..=bytes.len()).contains(&size));
        assert_eq!(Message::first(&bytes[..size]), found);
        let cut = Message::first(&bytes[..size - 1]);
        assert!(matches!(cut, Ok(None) | Err(RequestError::TooLong)), "{cut:?}");
        if let Message::Request(request) = message {
            check(&request);
        }
        bytes = &bytes[size..];
    }
}

fn check(request: &Request<'_>) {
    assert!(!request.method.is_empty() && !request.uri.is_empty());
    assert!(!request.path().starts_with('/') && !request.path().ends_with('/'));
    assert!(request.field("CSeq").is_none_or(|value| value == value.trim()));
    match request.transport((0, 1)) {
        Some(Transport::Udp { rtp, rtcp }) => assert!(rtp > 0 && rtcp > 0 && rtp != rtcp),
        Some(Transport::Tcp { rtp, rtcp }) => assert!(rtp != rtcp),
        None => {}
    }
}

//! Answers of servers, good and bad, from memory and over loopback.

use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use super::*;

const LONG: Duration = Duration::from_secs(10);

fn answer(bytes: &[u8]) -> Result<String, String> {
    // One byte at a time, as a network may deliver them.
    let mut reader = BufReader::with_capacity(1, bytes);
    body(&mut reader)
        .map(|body| String::from_utf8(body).unwrap())
        .map_err(|error| error.to_string())
}

#[test]
fn bodies_end_by_length_by_chunks_or_by_the_connection() {
    let good = |text: &str| answer(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(good("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}and more"), "{}");
    assert_eq!(good("HTTP/1.0 200 OK\n\n{\"a\":1}"), "{\"a\":1}");
    assert_eq!(
        good(
            "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTRANSFER-ENCODING: Chunked\r\n\r\n\
             3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n"
        ),
        "abc0123456789"
    );
}

#[test]
fn bad_answers_are_named() {
    for (text, part) in [
        ("", "without an end"),
        ("SSH-2.0-OpenSSH\r\n", "no status line"),
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", "SELVEDGE_TOKEN"),
        ("HTTP/1.1 500 Oops\r\n\r\n", "status 500"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "too early"),
        ("HTTP/1.1 200 OK\r\nContent-Length: +9\r\n\r\nabc", "bad content length"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 8388609\r\n\r\n", "longer than 8 MiB"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "unknown transfer"),
        ("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "bad header"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "bad chunk size"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n800001\r\n", "longer than"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", "without an end"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", "ends elsewhere"),
    ] {
        let error = answer(text.as_bytes()).unwrap_err();
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn endless_answers_come_to_an_end() {
    let endless = |start: &str| {
        let mut reader = BufReader::new(io::Cursor::new(start.to_owned()).chain(io::repeat(b'a')));
        body(&mut reader).unwrap_err().to_string()
    };
    assert!(endless("HTTP/1.1 200 OK\r\n\r\n").contains("longer than"));
    assert!(endless("HTTP/1.1 200 OK\r\nX: ").contains("without an end"));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(endless(chunked).contains("without an end"));
    assert!(endless(&format!("{chunked}0\r\n")).contains("without an end"));
}

#[test]
fn addresses_are_completed_or_refused() {
    let address = |text: &str| Client::new(text, None, None).map(|client| client.address);
    for (text, full) in [
        ("127.0.0.1:7700", "127.0.0.1:7700"),
        ("http://studio:80/", "studio:80"),
        ("studio", "studio:7700"),
        ("[::1]", "[::1]:7700"),
        ("[::1]:9", "[::1]:9"),
    ] {
        assert_eq!(address(text).unwrap(), full);
    }
    for text in ["", "http://", "a b", "a:b", "a:0", "a:99999", "a/b", "a\r\nX: y"] {
        assert!(matches!(address(text), Err(HttpError::Address(_))), "{text:?}");
    }
    let token = Client::new("studio", Some("a\r\nX: y, and some more"), None);
    assert!(matches!(token, Err(HttpError::Token(TokenError::Form))));
}

#[test]
fn tls_is_spoken_to_other_machines_unless_the_address_says_otherwise() {
    let encrypted = |text: &str| Client::new(text, None, None).unwrap().trusted.is_some();
    for text in
        ["studio", "10.0.0.1:7700", "[2001:db8::1]", "https://localhost", "localhost.example"]
    {
        assert!(encrypted(text), "{text}");
    }
    for text in ["127.0.0.1", "127.8.9.1:1", "localhost:7700", "[::1]", "[::1]:9", "http://studio"]
    {
        assert!(!encrypted(text), "{text}");
    }
    assert!(matches!(Client::new("ftp://studio", None, None), Err(HttpError::Address(_))));
}

#[test]
fn a_server_that_speaks_otherwise_is_told_from_one_that_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // As long as a request line: the bytes are not a request.
        stream.read_exact(&mut [0; 16]).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        stream
    });
    let client = Client::new(&format!("https://{address}"), None, None).unwrap();
    let error = client.request("GET", "/", LONG).unwrap_err();
    assert!(error.to_string().contains("write http://"), "{error}");
    drop(answering.join());
    let (address, _requests) =
        server(b"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\n\r\n");
    let error = Client::new(&address, None, None).unwrap().request("GET", "/", LONG).unwrap_err();
    assert!(error.to_string().contains("write https://"), "{error}");
}

/// Answers one connection with `bytes`, keeps it open until the client leaves, and returns the request.
fn server(bytes: &'static [u8]) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG.into())).unwrap();
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
            request.push(byte[0]);
        }
        send.send(String::from_utf8(request).unwrap()).unwrap();
        stream.write_all(bytes).unwrap();
        // Ends when the client closes, or after the time above.
        while stream.read(&mut byte).is_ok_and(|n| n == 1) {}
    });
    (address, receive)
}

#[test]
fn a_question_names_host_and_token() {
    let (address, requests) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull");
    let client = Client::new(&address, Some("0123456789abcdef"), None).unwrap();
    assert_eq!(client.request("GET", "/api/v1/node", LONG).unwrap(), b"null");
    let request = requests.recv_timeout(LONG.into()).unwrap();
    assert!(request.starts_with("GET /api/v1/node HTTP/1.1\r\n"));
    assert!(request.contains(&format!("\r\nHost: {address}\r\n")));
    assert!(request.contains("\r\nAuthorization: Bearer 0123456789abcdef\r\n"));
}

#[test]
fn a_silent_server_is_given_up() {
    let (address, _requests) = server(b"HTTP/1.1 200 OK\r\n");
    let client = Client::new(&address, None, None).unwrap();
    let error = client.request("GET", "/", Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, HttpError::Timeout(_)), "{error}");
}

#[test]
fn where_nobody_listens_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = Client::new(&address, None, None).unwrap().request("GET", "/", LONG).unwrap_err();
    assert!(matches!(error, HttpError::Connect { .. }), "{error}");
}
